//! What a node's daemons are configured with. Pure.
//!
//! Paths are the node's own: `/run`, `/var/lib` and `/var/log` in there are folders of the node.

use std::path::Path;

use serde_json::{Value, json};

use super::network::{Network, NodeIndex};
use crate::certificates::CredentialFiles;
use crate::images::PAUSE;

pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
const CNI_CONFIGURATION: &str = "/var/lib/cni/net.d";

/// Machine-wide settings that a node has its own view of: the setting, and the value that kubelet insists on.
pub(super) const TUNABLES: [(&str, &str); 6] = [
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];
/// The setting that tells one boot from another, and here also one node from another.
pub(super) const BOOT_ID: &str = "kernel.random.boot_id";

/// containerd 1.6 reads version 2; newer ones still do.
pub(super) fn containerd() -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE, runc dies of a score below its own.
  restrict_oom_score_adj = true
  disable_tcp_service = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{CNI_CONFIGURATION}"
"#
    )
}

/// Pods on a bridge of the node's, behind the node's address, with host ports.
pub(super) fn cni(network: Network, index: NodeIndex) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/var/lib/cni/addresses",
                    "ranges": [[{"subnet": network.pods(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    })
}

/// What kubelet's configuration names.
pub(super) struct Kubelet<'a> {
    pub(super) network: Network,
    pub(super) index: NodeIndex,
    pub(super) users_authority: &'a Path,
    pub(super) server: &'a CredentialFiles,
    pub(super) resolver: &'a Path,
}

pub(super) fn kubelet(node: &Kubelet<'_>) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": node.users_authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": node.server.certificate,
        "tlsPrivateKeyFile": node.server.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.network.cgroup(node.index)),
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        // The disk is the machine's: how full it is says nothing about the node.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        // No registry could bring an image back.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        // There is no name server. A port of the node's own that nothing listens on refuses at once, and kubelet
        // writes no warning for each pod, as it does when no address is given.
        "clusterDNS": [node.network.node(node.index)],
        "clusterDomain": "cluster.local",
        "resolvConf": node.resolver,
        "oomScoreAdj": 0,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "staticPodPath": "",
    })
}

pub(super) fn proxy(network: Network, name: &str, kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "hostnameOverride": name,
        "mode": "iptables",
        "clusterCIDR": network.all_pods(),
        // These belong to the machine, and a network namespace may not set them.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    })
}

/// Run inside a node once its cable is plugged in. Can be run again.
///
/// What has no other way goes to a bridge that joins nothing: Services are rewritten on the way there, and nothing
/// else leaves the machine.
pub(super) fn network_script(network: Network, index: NodeIndex) -> String {
    let address = network.node(index);
    format!(
        "set -e
ip address replace {address}/24 dev eth0
ip link set eth0 up
ip link show services >/dev/null 2>&1 || ip link add services type bridge
ip link set services up
ip route replace default dev services src {address}
echo 1 >/proc/sys/net/ipv4/ip_forward
for device in all default eth0 services; do echo 0 >/proc/sys/net/ipv4/conf/$device/rp_filter; done
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_keeps_to_the_control_group_of_its_node() {
        let path = Path::new("/x");
        let server = CredentialFiles { certificate: path.to_owned(), key: path.to_owned() };
        let (network, index) = (Network::of_instance(3), NodeIndex::new(1).unwrap());
        let text =
            kubelet(&Kubelet { network, index, users_authority: path, server: &server, resolver: path });
        assert_eq!(text["cgroupRoot"], "/berth-3-node-1");
        assert_eq!(text["clusterDNS"], json!(["10.99.3.11"]));
    }

    #[test]
    fn pods_of_a_node_share_its_range() {
        let text = cni(Network::of_instance(3), NodeIndex::new(2).unwrap());
        assert_eq!(text["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.103.2.0/24");
    }
}
