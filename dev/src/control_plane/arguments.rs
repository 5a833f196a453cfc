//! What each daemon of a control plane is started with. Pure.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::certificates::CredentialFiles;

/// Addresses of Services. They mean something inside nodes only.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The API server's own Service.
pub(super) const FIRST_SERVICE: &str = "10.96.0.1";

/// Everything that the command lines name.
#[derive(Debug)]
pub(super) struct Layout {
    /// The folder of etcd's data.
    pub(super) data: PathBuf,
    /// Where the API server listens.
    pub(super) address: Ipv4Addr,
    pub(super) ports: Ports,
    /// Signs for users, servers and tokens.
    pub(super) authority: CredentialFiles,
    /// Signs for whoever may speak in other users' names.
    pub(super) front_authority: CredentialFiles,
    pub(super) server: CredentialFiles,
    pub(super) kubelet_client: CredentialFiles,
    pub(super) front_client: CredentialFiles,
    pub(super) tokens: CredentialFiles,
    /// Policy and log, when writes are to be counted.
    pub(super) audit: Option<AuditFiles>,
    pub(super) controller_kubeconfig: PathBuf,
    pub(super) scheduler_kubeconfig: PathBuf,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peers: u16,
    pub(super) api_server: u16,
    pub(super) controller_manager: u16,
    pub(super) scheduler: u16,
}

#[derive(Debug, Clone)]
pub(super) struct AuditFiles {
    pub(super) policy: PathBuf,
    pub(super) log: PathBuf,
}

pub(super) fn etcd(layout: &Layout) -> Vec<String> {
    let Ports { etcd, etcd_peers, .. } = layout.ports;
    vec![
        format!("--data-dir={}", layout.data.display()),
        format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
        format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
        format!("--listen-peer-urls=http://127.0.0.1:{etcd_peers}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{etcd_peers}"),
        format!("--initial-cluster=default=http://127.0.0.1:{etcd_peers}"),
        // The machine going down takes the cluster with it anyway.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn api_server(layout: &Layout) -> Vec<String> {
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", layout.ports.etcd),
        format!("--bind-address={}", layout.address),
        format!("--advertise-address={}", layout.address),
        format!("--secure-port={}", layout.ports.api_server),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--anonymous-auth=false".to_owned(),
        format!("--client-ca-file={}", layout.authority.certificate.display()),
        format!("--tls-cert-file={}", layout.server.certificate.display()),
        format!("--tls-private-key-file={}", layout.server.key.display()),
        format!("--kubelet-client-certificate={}", layout.kubelet_client.certificate.display()),
        format!("--kubelet-client-key={}", layout.kubelet_client.key.display()),
        format!("--kubelet-certificate-authority={}", layout.authority.certificate.display()),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", layout.tokens.certificate.display()),
        format!("--service-account-signing-key-file={}", layout.tokens.key.display()),
        format!("--requestheader-client-ca-file={}", layout.front_authority.certificate.display()),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        format!("--proxy-client-cert-file={}", layout.front_client.certificate.display()),
        format!("--proxy-client-key-file={}", layout.front_client.key.display()),
        // Extension servers are reached at their pods: Services mean nothing in our network namespace.
        "--enable-aggregator-routing=true".to_owned(),
        // A restart in a test must not wait for connections that nobody closes.
        "--shutdown-delay-duration=0s".to_owned(),
    ];
    if let Some(audit) = &layout.audit {
        flags.push(format!("--audit-policy-file={}", audit.policy.display()));
        flags.push(format!("--audit-log-path={}", audit.log.display()));
        flags.push("--audit-log-mode=blocking".to_owned());
    }
    flags
}

pub(super) fn controller_manager(layout: &Layout) -> Vec<String> {
    let mut flags = background(&layout.controller_kubeconfig, layout.ports.controller_manager);
    flags.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", layout.tokens.key.display()),
        format!("--root-ca-file={}", layout.authority.certificate.display()),
        format!("--cluster-signing-cert-file={}", layout.authority.certificate.display()),
        format!("--cluster-signing-key-file={}", layout.authority.key.display()),
    ]);
    flags
}

pub(super) fn scheduler(layout: &Layout) -> Vec<String> {
    background(&layout.scheduler_kubeconfig, layout.ports.scheduler)
}

/// What both daemons that work behind the API server take.
fn background(kubeconfig: &std::path::Path, port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // Alone, it need not wait for a lease.
        "--leader-elect=false".to_owned(),
    ]
}
