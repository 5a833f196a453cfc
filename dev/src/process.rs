//! A process told apart from a later one that got the same number.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use serde::{Deserialize, Serialize};

/// A process: its number, and when it started. The kernel gives both to no two processes of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pid: i32,
    /// In the kernel's ticks since boot.
    started: u64,
}

impl Identity {
    /// The process that has this number now. `None` when there is none, or only what is left of a dead one.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
        // The first thread of a dying process is a zombie while others may still write files.
        let is_dead = matches!(stat.state, 'Z' | 'X' | 'x') && stat.num_threads <= 1;
        (!is_dead).then_some(Self { pid, started: stat.starttime })
    }

    /// A child that nobody has waited for: it is there even if it has ended already.
    pub(crate) fn of_child(child: &Child) -> Option<Self> {
        let pid = child.id().try_into().ok()?;
        let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
        Some(Self { pid, started: stat.starttime })
    }

    /// The running process.
    #[must_use]
    pub fn own() -> Self {
        let pid = Pid::as_raw(Some(rustix::process::getpid()));
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// Its number.
    #[must_use]
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// A handle that keeps meaning this process. `None` when it is gone.
    #[must_use]
    pub fn handle(self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Looked at after the handle was opened: the number cannot have changed hands in between.
        self.is_alive().then_some(handle)
    }

    /// Sends a signal. False when the process is gone, or not ours to signal.
    pub fn signal(self, signal: Signal) -> bool {
        self.handle().is_some_and(|handle| pidfd_send_signal(handle, signal).is_ok())
    }

    /// Takes note of its end, if it is a dead child of ours. The first process of a namespace does not end before
    /// every process in there has been taken note of.
    pub(crate) fn reap(self) {
        let stat = Process::new(self.pid).and_then(|process| process.stat());
        let is_ours = stat.is_ok_and(|stat| {
            stat.state == 'Z'
                && stat.starttime == self.started
                && stat.ppid == Pid::as_raw(Some(rustix::process::getpid()))
        });
        if is_ours {
            // Whoever holds the child's handle is told that there is no such child any more, and takes it for ended.
            let _ = waitpid(Pid::from_raw(self.pid), WaitOptions::NOHANG);
        }
    }

    /// Waits for its end; blocks. False when it outlives the limit.
    #[must_use]
    pub fn wait_gone(self, limit: Duration) -> bool {
        let Some(handle) = self.handle() else { return true };
        let limit = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&handle, PollFlags::IN)];
        poll(&mut waiting, Some(&limit)).is_ok_and(|ready| ready > 0) || !self.is_alive()
    }
}

/// Every living process whose environment has `name` set to `value`, except the running one.
///
/// A daemon's mark: it is there from the first instruction on, and its children have it too.
pub(crate) fn marked(name: &str, value: &str) -> Vec<Identity> {
    let own = Identity::own();
    let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
    processes
        .filter_map(Result::ok)
        .filter(|process| {
            let environment = process.environ().unwrap_or_default();
            environment.get(std::ffi::OsStr::new(name)).is_some_and(|found| found == value)
        })
        .filter_map(|process| Identity::of(process.pid))
        .filter(|found| *found != own)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::eventually::eventually;

    #[test]
    fn another_start_time_is_another_process() {
        let own = Identity::own();
        assert!(own.is_alive());
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
    }

    #[test]
    fn a_killed_process_is_gone_even_before_it_is_reaped() {
        let mut child = Command::new("sleep").arg("1000").env("BERTH_TEST_MARK", "one").spawn().unwrap();
        let identity = Identity::of(child.id().try_into().unwrap()).unwrap();
        assert!(!identity.wait_gone(Duration::from_millis(1)));
        assert!(identity.signal(Signal::KILL));
        assert!(identity.wait_gone(Duration::from_secs(10)));
        assert!(!identity.is_alive());
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_child_that_has_ended_is_known_until_it_is_waited_for() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().try_into().unwrap();
        let ended =
            eventually(Duration::from_secs(60), "the child to end", async || match Identity::of(pid) {
                None => Ok(()),
                Some(_) => Err("it runs"),
            });
        ended.await.unwrap();
        let identity = Identity::of_child(&child).unwrap();
        assert!(!identity.is_alive());
        assert!(child.wait().unwrap().success());
        assert_eq!(Identity::of_child(&child), None);
    }

    #[test]
    fn a_process_is_found_by_its_mark() {
        let value = format!("{:?}", Identity::own());
        let mut child = Command::new("sleep").arg("1000").env("BERTH_TEST_MARK", &value).spawn().unwrap();
        let found = marked("BERTH_TEST_MARK", &value);
        assert_eq!(
            found.iter().map(|found| found.pid()).collect::<Vec<_>>(),
            [i32::try_from(child.id()).unwrap()]
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
