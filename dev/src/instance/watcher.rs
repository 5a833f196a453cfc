//! A small process that ends an instance's processes once their owner is dead.
//!
//! Tests are killed, time out and abort, and share clusters that nothing drops: without this each would leave an API
//! server running until the next one sweeps.

use std::io;
use std::process::{Child, Command, Stdio};

use crate::process::Identity;

const SCRIPT: &str = include_str!("watch.sh");

/// The watcher of an instance; held for as long as we live.
#[derive(Debug)]
pub(super) struct Watcher {
    child: Child,
}

impl Watcher {
    /// It carries the instance's mark itself, and so goes with the instance.
    pub(super) fn start((name, value): &(String, String)) -> io::Result<Self> {
        let child = Command::new("/usr/bin/setsid")
            .args(["--", "/bin/bash", "-c", SCRIPT, "berth-dev-watcher"])
            .arg(format!("{name}={value}"))
            .env_clear()
            .env(name, value)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Its instance is down by now, and it with it; unless that failed, and then it has work to do.
        let pid = self.child.id().try_into().unwrap_or(i32::MAX);
        if Identity::of(pid).is_none() {
            let _ = self.child.wait();
        }
    }
}
