//! The machine we run on.

use std::fs;
use std::path::{Path, PathBuf};

use berth_api::game_server::PortProtocol;
use berth_runtime::CancellationToken;
use futures::future::BoxFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use super::hierarchy::Hierarchy;
use super::metrics::{OutcomeLabels, ProbeLabels, ProbeOutcome};
use super::processes::{self, Look};
use super::watcher::Watcher;
use super::{
    FoundContainer, Host, HostError, HostMetrics, NetnsId, SandboxRequest, SdkSockets, cgroup_path,
    container, netns, port, requirements,
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxSettings {
    /// Where the host's cgroups are mounted: `/sys/fs/cgroup`.
    pub cgroup_mount: PathBuf,
    /// Kubelet's `cgroupRoot`, `/` unless set.
    pub cgroup_root: String,
    /// The boot id to give out instead of the kernel's, for machines that play several nodes.
    pub boot_id: Option<String>,
}

impl Default for LinuxSettings {
    fn default() -> Self {
        Self { cgroup_mount: PathBuf::from("/sys/fs/cgroup"), cgroup_root: "/".to_owned(), boot_id: None }
    }
}

/// The machine we run on. Dropping it ends all waiting for sandboxes.
#[derive(Debug)]
pub struct LinuxHost {
    boot_id: Option<String>,
    hierarchy: Hierarchy,
    host_namespaces: Vec<NetnsId>,
    watcher: Watcher,
    metrics: HostMetrics,
}

impl LinuxHost {
    /// Checks [`requirements`], raises the limit of open files (each server has four listeners) and begins to watch for
    /// sandboxes. To be called in the host's network namespace.
    ///
    /// # Errors
    /// A requirement is not met, or cgroups cannot be watched.
    pub fn start(settings: &LinuxSettings, metrics: HostMetrics) -> Result<Self, HostError> {
        requirements(settings)?;
        raise_file_limit();
        let hierarchy = Hierarchy::find(&settings.cgroup_mount, &settings.cgroup_root)?;
        let host_namespaces = netns::of_host()?;
        let watcher = Watcher::start(hierarchy.clone(), host_namespaces.clone(), metrics.clone())?;
        Ok(Self { boot_id: settings.boot_id.clone(), hierarchy, host_namespaces, watcher, metrics })
    }

    async fn wait_for_sandbox(
        &self,
        request: SandboxRequest,
        cancel: &CancellationToken,
    ) -> Result<SdkSockets, HostError> {
        if !cgroup_path::is_pod_uid(&request.pod_uid) {
            return Err(HostError::PodUid(request.pod_uid));
        }
        let answered = self.watcher.ask(request)?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(HostError::Cancelled),
            answer = answered => answer.unwrap_or(Err(HostError::WatcherGone)),
        }
    }
}

impl LinuxHost {
    async fn listen_on_host(&self, request: SandboxRequest) -> Result<SdkSockets, HostError> {
        let Some(own) = self.host_namespaces.first().copied() else { return Err(HostError::WatcherGone) };
        let listening = tokio::task::spawn_blocking(move || netns::listen_here(own, &request));
        listening.await.unwrap_or(Err(HostError::WatcherGone))
    }
}

impl Host for LinuxHost {
    fn boot_id(&self) -> Result<String, HostError> {
        if let Some(id) = &self.boot_id {
            return Ok(id.clone());
        }
        let path = Path::new(BOOT_ID);
        let text =
            fs::read_to_string(path).map_err(|source| HostError::BootId { path: path.to_owned(), source })?;
        Ok(text.trim().to_owned())
    }

    fn is_port_free(&self, port: u16, protocol: PortProtocol) -> Result<bool, HostError> {
        let free = port::is_free(port, protocol);
        let outcome = match &free {
            Ok(true) => ProbeOutcome::Free,
            Ok(false) => ProbeOutcome::Used,
            Err(_) => ProbeOutcome::Error,
        };
        self.metrics.probes.get_or_create(&ProbeLabels { outcome }).inc();
        free
    }

    fn current_sandbox(&self, pod_uid: &str) -> Result<Option<NetnsId>, HostError> {
        if !cgroup_path::is_pod_uid(pod_uid) {
            return Err(HostError::PodUid(pod_uid.to_owned()));
        }
        let Some(folder) = self.hierarchy.pod_folder(pod_uid) else { return Ok(None) };
        Ok(match processes::look(&folder, pod_uid, &self.host_namespaces)? {
            Look::Found(sandbox) => Some(sandbox.id),
            Look::Gone | Look::Empty | Look::Starting => None,
        })
    }

    fn find_container(
        &self,
        pod_uid: &str,
        container: &str,
    ) -> BoxFuture<'static, Result<Option<FoundContainer>, HostError>> {
        let folder = if cgroup_path::is_pod_uid(pod_uid) {
            Ok(self.hierarchy.pod_folder(pod_uid))
        } else {
            Err(HostError::PodUid(pod_uid.to_owned()))
        };
        let (pod_uid, container) = (pod_uid.to_owned(), container.to_owned());
        Box::pin(async move {
            let Some(folder) = folder? else { return Ok(None) };
            let looked = tokio::task::spawn_blocking(move || container::find(&folder, &pod_uid, &container));
            let found = looked.await.unwrap_or(Err(HostError::WatcherGone))?;
            found.map(container::Process::into_found).transpose()
        })
    }

    fn open_sdk<'a>(
        &'a self,
        request: SandboxRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SdkSockets, HostError>> {
        Box::pin(async move {
            let result = if request.on_host {
                self.listen_on_host(request).await
            } else {
                self.wait_for_sandbox(request, cancel).await
            };
            let outcome = result.as_ref().map_or_else(HostError::category, |_| "listening");
            self.metrics.sandboxes.get_or_create(&OutcomeLabels { outcome }).inc();
            result
        })
    }
}

/// As many open files as we may have: services are given 1024 for the sake of programs that use `select`.
fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        warn!(%error, ?current, "could not raise the limit of open files");
    }
}
