//! etcd and kube-apiserver, and on demand the controllers and the scheduler.
//!
//! Alone it needs no root and touches nothing but loopback, and is up in seconds: what most tests want. Its daemons
//! can be stopped, killed and started again on the same ports, for tests of what happens then.

mod arguments;
mod namespace;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use arguments::{AuditFiles, FIRST_SERVICE, Layout, Ports};

use crate::access::{Access, AccessError};
use crate::binaries::{Binaries, BinariesError};
use crate::certificates::{self, Authority, CertificateError};
use crate::eventually::{Overdue, eventually};
use crate::instance::{Daemon, DaemonError, Instance, InstanceError, Launch};

/// Four seconds on an idle machine; the limit is for one that compiles at the same time.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Counts every write, and nothing of its content.
const AUDIT_WRITES: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    verbs: [get, list, watch]
  - level: Metadata
";

/// A control plane that could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// Its programs.
    #[error("the programs of Kubernetes are not there")]
    Binaries(#[from] BinariesError),
    /// Its folder, ports or records.
    #[error("could not make a place for the control plane")]
    Instance(#[from] InstanceError),
    /// Its certificates.
    #[error("could not make the control plane's certificates")]
    Certificates(#[from] CertificateError),
    /// Ways into it.
    #[error("could not make a way into the cluster")]
    Access(#[from] AccessError),
    /// A file of its own.
    #[error("could not write {path}")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One of its daemons.
    #[error("a daemon of the control plane failed")]
    Daemon(#[from] DaemonError),
    /// A namespace.
    #[error("could not make a namespace")]
    Namespace(#[source] kube::Error),
    /// It does not become ready.
    #[error("the API server did not become ready; the end of its log:\n{last_words}")]
    NotReady {
        /// What it wrote.
        last_words: String,
        /// What we saw.
        source: Overdue,
    },
}

/// What a control plane is to have.
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    /// Whether kube-controller-manager runs: Deployments, Namespaces that end, garbage collection, service accounts.
    pub controllers: bool,
    /// Whether kube-scheduler runs.
    pub scheduler: bool,
    /// The address of this machine that the API server listens on.
    pub address: Ipv4Addr,
    /// Whether every write is logged, one JSON object a line, at [`ControlPlane::audit_log`].
    pub audit: bool,
    /// Flags for kube-apiserver beside ours.
    pub api_server_flags: Vec<String>,
}

impl Default for ControlPlaneOptions {
    /// The API server alone, on loopback.
    fn default() -> Self {
        Self {
            controllers: false,
            scheduler: false,
            address: Ipv4Addr::LOCALHOST,
            audit: false,
            api_server_flags: Vec::new(),
        }
    }
}

/// A running control plane.
pub struct ControlPlane {
    instance: Arc<Instance>,
    access: Access,
    administrator: kube::Config,
    kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
    etcd: Daemon,
    api_server: Daemon,
    controller_manager: Option<Daemon>,
    scheduler: Option<Daemon>,
}

impl ControlPlane {
    /// Starts one that belongs to this process: it is gone when it is dropped, or when this process has died.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        Self::start_in(&Instance::create("api")?, options).await
    }

    /// The one that all tests of a program may use side by side, each in a [namespace](Self::namespace) of its own: an
    /// API server alone, started at the first call, gone with the program.
    ///
    /// # Errors
    /// When it does not become ready. The next call tries again.
    pub async fn shared() -> Result<&'static Self, ControlPlaneError> {
        // The runtime that started it may be gone at the next call: nothing of it is in here, clients are made anew.
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(ControlPlaneOptions::default())).await
    }

    /// Makes a namespace that no other has, ready for pods: an API server alone has nobody to make the service account
    /// that admission asks for.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, purpose: &str) -> Result<String, ControlPlaneError> {
        namespace::make(self.client(), purpose).await.map_err(ControlPlaneError::Namespace)
    }

    /// Starts what does not run yet of an instance's control plane.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_in(
        instance: &Arc<Instance>,
        options: ControlPlaneOptions,
    ) -> Result<Self, ControlPlaneError> {
        let binaries = ensure_binaries().await?;
        let authority = Arc::new(Authority::ensure(&instance.subfolder("certificates")?, "ca")?);
        let port = instance.port("kube-apiserver")?;
        let access = Access::new((options.address, port).into(), Arc::clone(&authority));
        let layout = lay_out(instance, &options, &authority, &access)?;
        let start = |name: &str, arguments: Vec<String>| {
            Daemon::ensure(instance, Launch::new(name, binaries.program(name)).arguments(arguments))
        };

        let etcd = start("etcd", arguments::etcd(&layout))?;
        let mut flags = arguments::api_server(&layout);
        flags.extend(options.api_server_flags);
        let api_server = start("kube-apiserver", flags)?;
        let administrator = access.administrator().await?;
        let client = access.client_from(&administrator)?;
        wait_until_ready(&client, &etcd, &api_server).await?;
        let controller_manager = options
            .controllers
            .then(|| start("kube-controller-manager", arguments::controller_manager(&layout)))
            .transpose()?;
        let scheduler =
            options.scheduler.then(|| start("kube-scheduler", arguments::scheduler(&layout))).transpose()?;

        let kubeconfig = access.ensure_administrators(&instance.folder().join("kubeconfig"))?;
        let audit_log = layout.audit.map(|audit| audit.log);
        let instance = Arc::clone(instance);
        Ok(Self {
            instance,
            access,
            administrator,
            kubeconfig,
            audit_log,
            etcd,
            api_server,
            controller_manager,
            scheduler,
        })
    }

    /// The instance it runs in.
    #[must_use]
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// Where the API server is.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.access.server()
    }

    /// A client that may do everything. Each one is new and works in the runtime that asks for it: tests that share
    /// a control plane have a runtime each.
    ///
    /// # Panics
    /// Outside a runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.access
            .client_from(&self.administrator)
            .expect("a client was made of the same settings at the start")
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client for this user, who belongs to these groups.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<kube::Client, AccessError> {
        self.access.client(user, groups).await
    }

    /// Writes a kubeconfig for this user at `path`, readable by us alone. It names no other file. Leaves one that is
    /// there.
    ///
    /// # Errors
    /// When no certificate can be made or the file cannot be written.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str], path: &Path) -> Result<PathBuf, AccessError> {
        self.access.ensure_kubeconfig(path, user, groups)
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The log of writes, when one was asked for.
    #[must_use]
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// etcd.
    #[must_use]
    pub fn etcd(&self) -> &Daemon {
        &self.etcd
    }

    /// kube-apiserver.
    #[must_use]
    pub fn api_server(&self) -> &Daemon {
        &self.api_server
    }

    /// kube-controller-manager, when it was asked for.
    #[must_use]
    pub fn controller_manager(&self) -> Option<&Daemon> {
        self.controller_manager.as_ref()
    }

    /// kube-scheduler, when it was asked for.
    #[must_use]
    pub fn scheduler(&self) -> Option<&Daemon> {
        self.scheduler.as_ref()
    }

    /// Whether the API server says that it is ready.
    pub async fn is_ready(&self) -> bool {
        ask_readiness(&self.client()).await.is_ok()
    }

    /// Waits until the API server says that it is ready, as after a restart.
    ///
    /// # Errors
    /// When it does not say so in time.
    pub async fn wait_until_ready(&self) -> Result<(), ControlPlaneError> {
        wait_until_ready(&self.client(), &self.etcd, &self.api_server).await
    }
}

async fn ensure_binaries() -> Result<Binaries, BinariesError> {
    let work = tokio::task::spawn_blocking(|| Binaries::ensure(&mut |line| tracing::info!("{line}")));
    work.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Makes every file that the daemons' command lines name.
fn lay_out(
    instance: &Instance,
    options: &ControlPlaneOptions,
    authority: &Authority,
    access: &Access,
) -> Result<Layout, ControlPlaneError> {
    let folder = instance.subfolder("certificates")?;
    let front = Authority::ensure(&folder, "front-proxy-ca")?;
    let kubeconfig = |user: &str| {
        access.ensure_kubeconfig(&folder.join(format!("{user}.kubeconfig")), &format!("system:{user}"), &[])
    };
    Ok(Layout {
        data: instance.subfolder("etcd")?,
        address: options.address,
        ports: Ports {
            etcd: instance.port("etcd")?,
            etcd_peers: instance.port("etcd-peers")?,
            api_server: instance.port("kube-apiserver")?,
            controller_manager: instance.port("kube-controller-manager")?,
            scheduler: instance.port("kube-scheduler")?,
        },
        authority: authority.files().clone(),
        front_authority: front.files().clone(),
        server: authority.ensure_server(&folder, "kube-apiserver", &server_names(options.address))?,
        kubelet_client: authority.ensure_user(
            &folder,
            "kube-apiserver-kubelet-client",
            &["system:masters"],
        )?,
        front_client: front.ensure_user(&folder, "front-proxy-client", &[])?,
        tokens: certificates::ensure_signing_key(&folder, "service-accounts")?,
        audit: options.audit.then(|| audit_files(instance)).transpose()?,
        controller_kubeconfig: kubeconfig("kube-controller-manager")?,
        scheduler_kubeconfig: kubeconfig("kube-scheduler")?,
    })
}

fn server_names(address: Ipv4Addr) -> Vec<String> {
    let service = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut names: Vec<String> =
        service.into_iter().chain(["localhost", "127.0.0.1", FIRST_SERVICE]).map(str::to_owned).collect();
    if !address.is_loopback() {
        names.push(address.to_string());
    }
    names
}

fn audit_files(instance: &Instance) -> Result<AuditFiles, ControlPlaneError> {
    let folder = instance.subfolder("audit")?;
    let files = AuditFiles { policy: folder.join("policy.yaml"), log: folder.join("writes.jsonl") };
    match fs::write(&files.policy, AUDIT_WRITES) {
        Ok(()) => Ok(files),
        Err(source) => Err(ControlPlaneError::File { path: files.policy, source }),
    }
}

async fn ask_readiness(client: &kube::Client) -> Result<(), String> {
    let request = http_get("/readyz")?;
    client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>, String> {
    http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())
}

async fn wait_until_ready(
    client: &kube::Client,
    etcd: &Daemon,
    api_server: &Daemon,
) -> Result<(), ControlPlaneError> {
    let what = "the API server to be ready";
    let ready = eventually(START_LIMIT, what, async || {
        ask_readiness(client).await.map_err(|refusal| {
            let dead = [etcd, api_server].into_iter().find(|daemon| !daemon.is_alive());
            dead.map_or(refusal, |daemon| format!("{} has ended", daemon.name()))
        })
    });
    ready.await.map_err(|source| {
        let dead = [etcd, api_server].into_iter().find(|daemon| !daemon.is_alive()).unwrap_or(api_server);
        ControlPlaneError::NotReady { last_words: dead.last_words(), source }
    })
}
