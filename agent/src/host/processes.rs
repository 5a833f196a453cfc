//! Finding a pod's sandbox: the oldest of its processes that is in a network namespace other than the host's.
//!
//! The oldest, because a game that is allowed to may make network namespaces of its own; the sandbox's own process is
//! there before any of the game's. Each process is looked at through one descriptor of its folder in procfs, so that a
//! number given out again is never mistaken for it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::cgroup_path;
use super::{HostError, NetnsId};

/// Cgroups below a container that are looked into: runtimes put one, an init system in a container two.
const DEPTH: usize = 4;
/// Most bytes read from one file of procfs.
const LIMIT: usize = 16 * 1024;

/// A sandbox that was found, held open.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: NetnsId,
    pub(super) namespace: OwnedFd,
    pub(super) pid: u32,
    pub(super) container: Option<String>,
    started: u64,
}

/// What a look at a pod's cgroup shows.
#[derive(Debug)]
pub(super) enum Look {
    /// The cgroup is not there.
    Gone,
    /// No container has come yet.
    Empty,
    /// A container has come, and none of its processes is in a namespace of the pod's own.
    Starting,
    /// Here it is.
    Found(Sandbox),
}

/// Looks for the sandbox of a pod whose cgroup is `folder`, passing over the namespaces in `not`.
///
/// # Errors
/// What must be read cannot be.
pub(super) fn look(folder: &Path, pod_uid: &str, not: &[NetnsId]) -> Result<Look, HostError> {
    let mut seen = Seen::default();
    match gather(folder, DEPTH, &mut seen) {
        Ok(()) => {}
        Err((_, error)) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
        Err((path, source)) => return Err(HostError::Read { path, source }),
    }
    let mut oldest: Option<Sandbox> = None;
    for pid in seen.processes {
        // A process out of sight is written as 0.
        if pid == 0 {
            return Err(HostError::ProcessesHidden { pod_uid: pod_uid.to_owned() });
        }
        if let Some(one) = examine(pid, pod_uid, not)?
            && oldest.as_ref().is_none_or(|old| (one.started, one.pid) < (old.started, old.pid))
        {
            oldest = Some(one);
        }
    }
    Ok(match oldest {
        Some(sandbox) => Look::Found(sandbox),
        None if seen.has_containers => Look::Starting,
        None => Look::Empty,
    })
}

/// The processes in a pod's cgroup.
///
/// # Errors
/// The cgroup cannot be read.
pub(super) fn of_pod(folder: &Path) -> Result<Vec<u32>, HostError> {
    let mut seen = Seen::default();
    match gather(folder, DEPTH, &mut seen) {
        Ok(()) => Ok(seen.processes),
        Err((_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err((path, source)) => Err(HostError::Read { path, source }),
    }
}

#[derive(Default)]
struct Seen {
    processes: Vec<u32>,
    has_containers: bool,
}

fn gather(folder: &Path, depth: usize, seen: &mut Seen) -> Result<(), (PathBuf, io::Error)> {
    let list = folder.join("cgroup.procs");
    match fs::read_to_string(&list) {
        Ok(text) => seen.processes.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok())),
        // A threaded cgroup lists no processes, one that is being removed nothing at all.
        Err(error) if matches!(errno(&error), Some(Errno::OPNOTSUPP | Errno::NODEV)) => {}
        Err(error) => return Err((list, error)),
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return Err((folder.to_owned(), error)),
    };
    for entry in entries.filter_map(Result::ok) {
        if depth == 0 || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        seen.has_containers = true;
        match gather(&entry.path(), depth - 1, seen) {
            // It went away while we looked.
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// The process, if it belongs to the pod and is in a namespace that is not passed over.
fn examine(pid: u32, pod_uid: &str, not: &[NetnsId]) -> Result<Option<Sandbox>, HostError> {
    let path = PathBuf::from(format!("/proc/{pid}"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, &path, flags, Mode::empty());
    let Some(process) = alive(opened, &path)? else { return Ok(None) };
    let opened = rustix::fs::openat(&process, "ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let path = path.join("ns/net");
    let Some(namespace) = alive(opened, &path)? else { return Ok(None) };
    let id = NetnsId::of(&namespace).map_err(|source| HostError::Read { path: path.clone(), source })?;
    if not.contains(&id) {
        return Ok(None);
    }
    let Some(cgroups) = alive(read_at(&process, "cgroup"), &path)? else { return Ok(None) };
    let Some(stat) = alive(read_at(&process, "stat"), &path)? else { return Ok(None) };
    let membership = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(cgroup_path::memberships)
        .find(|membership| membership.pod_uid == pod_uid);
    Ok(match (membership, started(&stat)) {
        (Some(membership), Some(started)) => {
            Some(Sandbox { id, namespace, pid, container: membership.container, started })
        }
        (None, _) | (_, None) => None,
    })
}

/// Field 22 of `/proc/PID/stat`: when the process started, in ticks since boot. The name before it may hold anything.
pub(super) fn started(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

pub(super) fn read_at(process: &OwnedFd, name: &str) -> Result<String, Errno> {
    let file = rustix::fs::openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut piece = [0_u8; 4096];
    while text.len() < LIMIT {
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// None for a process that has ended meanwhile.
pub(super) fn alive<T>(result: Result<T, Errno>, path: &Path) -> Result<Option<T>, HostError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(error) => Err(HostError::Read { path: path.to_owned(), source: error.into() }),
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::started;

    #[test]
    fn the_start_is_read_whatever_the_name_is() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        for name in ["pause", "a b", "tricky) S 1 2 (x", ""] {
            let stat = format!("77 ({name}) S {}", numbers.join(" "));
            assert_eq!(started(&stat), Some(22), "{name}");
        }
        assert_eq!(started("77 (cut"), None);
    }
}
