//! A container's first process: where it is, and when and how it ends, without asking a runtime.
//!
//! A descriptor of the process tells its end in the moment it comes, long before kubelet has heard of it. How it ended
//! can be read from then until its parent has collected it, which is a matter of luck; what is lost here, kubelet says a
//! second later. Success is never concluded: a kernel writes 0 also where it does not want to say.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::processes::{alive, of_pod, read_at, started};
use super::{Exit, FoundContainer, HostError, NetnsId, cgroup_path};

/// Signal that the kernel ends a process with.
const KILLED: u8 = 9;

/// The first process of a container.
pub(super) struct Process {
    descriptor: OwnedFd,
    folder: OwnedFd,
    network: super::NetnsId,
    started: u64,
    pid: u32,
    memory: Option<Memory>,
}

/// The container's count of processes that were killed for lack of memory.
struct Memory {
    file: File,
    before: u64,
}

/// Looks for the oldest process of a container among those of its pod.
///
/// # Errors
/// What must be read cannot be.
pub(super) fn find(folder: &Path, pod_uid: &str, container: &str) -> Result<Option<Process>, HostError> {
    let mut oldest: Option<Process> = None;
    for pid in of_pod(folder)? {
        // A process out of sight is written as 0.
        if pid == 0 {
            return Err(HostError::ProcessesHidden { pod_uid: pod_uid.to_owned() });
        }
        if let Some(one) = examine(pid, pod_uid, container)?
            && oldest.as_ref().is_none_or(|old| (one.started, one.pid) < (old.started, old.pid))
        {
            oldest = Some(one);
        }
    }
    if let Some(process) = &mut oldest {
        process.memory = memory_of(folder, container);
    }
    Ok(oldest)
}

/// The process, if it belongs to the container.
fn examine(pid: u32, pod_uid: &str, container: &str) -> Result<Option<Process>, HostError> {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let path = PathBuf::from(format!("/proc/{pid}"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Some(folder) = alive(rustix::fs::openat(CWD, &path, flags, Mode::empty()), &path)? else {
        return Ok(None);
    };
    let Some(cgroups) = alive(read_at(&folder, "cgroup"), &path)? else { return Ok(None) };
    let belongs = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(cgroup_path::memberships)
        .any(|one| one.pod_uid == pod_uid && one.container.as_deref() == Some(container));
    if !belongs {
        return Ok(None);
    }
    let opened = rustix::fs::openat(&folder, "ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let Some(namespace) = alive(opened, &path)? else { return Ok(None) };
    let network = NetnsId::of(&namespace).map_err(|source| HostError::Read { path: path.clone(), source })?;
    let Some(descriptor) = alive(pidfd_open(number, PidfdFlags::NONBLOCK), &path)? else { return Ok(None) };
    // Read after the descriptor was opened: as long as it answers, the number is still that of the process it stands for.
    let Some(stat) = alive(read_at(&folder, "stat"), &path)? else { return Ok(None) };
    Ok(started(&stat).map(|started| Process { descriptor, folder, network, started, pid, memory: None }))
}

impl Process {
    /// As the callers know it. To be called in a runtime, which wakes whoever waits for the end.
    ///
    /// # Errors
    /// The descriptor cannot be waited for.
    pub(super) fn into_found(self) -> Result<FoundContainer, HostError> {
        let Self { descriptor, folder, network, mut memory, pid, .. } = self;
        #[allow(
            deprecated,
            reason = "it is unsound for types that change their descriptor, which OwnedFd does not"
        )]
        let waits = AsyncFd::with_interest(descriptor, Interest::READABLE)
            .map_err(|source| HostError::Read { path: PathBuf::from(format!("/proc/{pid}")), source })?;
        let exit = async move {
            // An error would come from a runtime that ends; whoever waits then is about to end too.
            let _ = waits.readable().await;
            let seen = read_at(&folder, "stat").map_or(Exit::Somehow, |stat| exit_of(&stat));
            let is_killed = matches!(seen, Exit::Signal(KILLED) | Exit::Somehow);
            if is_killed && memory.as_mut().is_some_and(Memory::has_killed) {
                Exit::OutOfMemory
            } else {
                seen
            }
        };
        Ok(FoundContainer { network, exit: Box::pin(exit) })
    }
}

/// What the line `/proc/PID/stat` of a process that has ended tells of its end: field 52, in the form of `wait`.
fn exit_of(stat: &str) -> Exit {
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let status: u32 = fields.get(49).and_then(|text| text.parse().ok()).unwrap_or_default();
    let [signal, code, ..] = status.to_le_bytes();
    match (signal & 0x7f, code) {
        (0, 0) => Exit::Somehow,
        (0, code) => Exit::Code(code),
        (signal, _) => Exit::Signal(signal),
    }
}

/// The count of a container, opened while it lives: its folder goes with it.
fn memory_of(pod: &Path, container: &str) -> Option<Memory> {
    let entries = std::fs::read_dir(pod).ok()?;
    let is_its =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(container));
    let own = entries.filter_map(Result::ok).map(|entry| entry.path()).find(is_its)?;
    let file = ["memory.events", "memory.oom_control"]
        .iter()
        .flat_map(|name| [own.join(name), beside(&own).join(name)])
        .find_map(|path| File::open(path).ok())?;
    let mut memory = Memory { file, before: 0 };
    memory.before = memory.count()?;
    Some(memory)
}

/// The same folder in the hierarchy of memory, where each controller has one of its own.
fn beside(folder: &Path) -> PathBuf {
    let text = folder.to_string_lossy();
    PathBuf::from(text.replacen("/pids/", "/memory/", 1))
}

impl Memory {
    fn count(&mut self) -> Option<u64> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0)).ok()?;
        self.file.read_to_string(&mut text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    }

    fn has_killed(&mut self) -> bool {
        self.count().is_some_and(|count| count > self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, exit_of};

    fn stat(status: u32) -> String {
        let mut fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        fields[0] = "Z".to_owned();
        fields[49] = status.to_string();
        format!("77 (tricky) name) {}", fields.join(" "))
    }

    #[test]
    fn only_a_failure_is_concluded_from_what_the_kernel_keeps() {
        let table = [
            (0, Exit::Somehow),
            (3 << 8, Exit::Code(3)),
            (255 << 8, Exit::Code(255)),
            (9, Exit::Signal(9)),
            (11 | 0x80, Exit::Signal(11)),
        ];
        for (status, expected) in table {
            assert_eq!(exit_of(&stat(status)), expected, "{status}");
        }
        assert_eq!(exit_of("77 (cut"), Exit::Somehow);
    }
}
