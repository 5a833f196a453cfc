//! The files of a node: what its daemons are configured with, and the folders that are its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::HOLD;
use crate::access::AccessError;
use crate::certificates::Authority;
use crate::cluster::ClusterError;
use crate::cluster::configuration::{self, Kubelet};
use crate::cluster::network::{Network, NodeIndex};
use crate::control_plane::ControlPlane;

/// Makes the folders that are a node's own, and the script of its first process.
pub(super) fn lay_out(folder: &Path) -> Result<(), ClusterError> {
    for place in [
        "etc",
        "log",
        "tunables",
        "lib-changes",
        "lib-work",
        "lib/berth",
        "lib/containerd",
        "lib/kubelet",
        "lib/cni/net.d",
    ] {
        make_folder(&folder.join(place))?;
    }
    write(&folder.join("etc/hold.sh"), HOLD)
}

/// How a node's kubelet reaches the API server.
pub(super) fn kubelet_access(
    control_plane: &ControlPlane,
    folder: &Path,
    name: &str,
) -> Result<PathBuf, AccessError> {
    let path = folder.join("etc/kubelet.kubeconfig");
    control_plane.access().ensure_kubeconfig(&path, &format!("system:node:{name}"), &["system:nodes"])
}

/// The files that the daemons of a real node are started with.
pub(super) struct Files {
    pub(super) containerd: PathBuf,
    pub(super) kubelet: PathBuf,
    pub(super) proxy: PathBuf,
}

impl Files {
    pub(super) fn write(
        control_plane: &ControlPlane,
        network: Network,
        index: NodeIndex,
        folder: &Path,
    ) -> Result<Self, ClusterError> {
        let name = format!("node-{index}");
        let etc = folder.join("etc");
        let (access, certificates) =
            (control_plane.access(), control_plane.instance().subfolder("certificates")?);
        let authority: &Authority = access.authority();
        let server = authority.ensure_server(
            &certificates,
            &format!("kubelet-{name}"),
            &[network.node(index).to_string(), name.clone()],
        )?;
        let proxy_access =
            access.ensure_kubeconfig(&etc.join("proxy.kubeconfig"), "system:kube-proxy", &[])?;
        let files = Self {
            containerd: etc.join("containerd.toml"),
            kubelet: etc.join("kubelet.json"),
            proxy: etc.join("proxy.json"),
        };
        let resolver = etc.join("resolv.conf");
        let kubelet = configuration::kubelet(&Kubelet {
            network,
            index,
            users_authority: &authority.files().certificate,
            server: &server,
            resolver: &resolver,
        });
        let proxy = configuration::proxy(network, &name, &proxy_access);
        let cni = configuration::cni(network, index);
        write(&files.containerd, &configuration::containerd())?;
        write(&files.kubelet, &kubelet.to_string())?;
        write(&files.proxy, &proxy.to_string())?;
        write(&folder.join("lib/cni/net.d/10-pods.conflist"), &cni.to_string())?;
        write(&resolver, &format!("nameserver {}\n", network.node(index)))?;
        Ok(files)
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(path).map_err(at(path))
}

/// Leaves a file that says the same already: kube-proxy ends when its configuration is touched, and a shell reads its
/// script as it goes.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(at(path))
}

pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> ClusterError {
    move |source| ClusterError::File { path: path.to_owned(), source }
}
