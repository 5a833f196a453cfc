//! What a program in a pod could do, by what the kernel says of it in `/proc`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use berth_dev::Node;

/// The sets of capabilities of a process, as `/proc/PID/status` names them.
pub const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
/// The namespaces that a pod has of its own unless it asks for the host's.
const NAMESPACES: &str = "ipc mnt net pid uts";
/// What a runtime mounts into every container.
const RUNTIMES: [&str; 6] = ["/proc", "/dev", "/sys", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// A program that runs in a pod of a node.
#[derive(Debug)]
pub struct Program {
    status: BTreeMap<String, String>,
    shared: String,
    mounts: String,
    /// Whether it has a folder of secrets.
    pub sees_secrets: bool,
}

/// Reads what the node's kernel says of the process that this file of a container is run as.
///
/// # Errors
/// There is none.
pub async fn read(node: &Node, program: &str) -> anyhow::Result<Program> {
    let script = format!(
        r#"for process in /proc/[0-9]*; do
            [ "$(readlink $process/exe)" = {program} ] || continue
            # A probe is the same program, beside the one that is the container's.
            tr '\0' ' ' <$process/cmdline | grep -q ' status ' && continue
            cat $process/status
            echo ---
            for kind in {NAMESPACES}; do
                [ "$(readlink $process/ns/$kind)" = "$(readlink /proc/1/ns/$kind)" ] && echo $kind
            done
            echo ---
            cat $process/mountinfo
            echo ---
            [ -e $process/root/var/run/secrets ] && echo secrets
            exit 0
        done
        echo "no process runs {program}" >&2
        exit 1"#
    );
    let text = node.execute("sh", &["-c", &script]).await?;
    let mut parts = text.split("---\n");
    let mut part = || parts.next().map(str::to_owned).context("four parts");
    let status = part()?;
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let status = lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect();
    Ok(Program { status, shared: part()?, mounts: part()?, sees_secrets: part()?.contains("secrets") })
}

impl Program {
    /// Its sets of capabilities.
    pub fn capabilities(&self) -> BTreeMap<&'static str, u64> {
        let bits = |set: &str| self.status.get(set).and_then(|bits| u64::from_str_radix(bits, 16).ok());
        SETS.into_iter().filter_map(|set| Some((set, bits(set)?))).collect()
    }

    /// The first number of a line of its status.
    pub fn status(&self, key: &str) -> i64 {
        let first = self.status.get(key).and_then(|value| value.split_whitespace().next());
        first.and_then(|number| number.parse().ok()).unwrap_or(-1)
    }

    /// The namespaces it shares with the node.
    pub fn shared_with_node(&self) -> BTreeSet<&str> {
        self.shared.lines().collect()
    }

    /// What is mounted in it beside what a runtime mounts everywhere, and whether it can be written to.
    pub fn own_mounts(&self) -> BTreeMap<&str, &str> {
        let is_own = |place: &str| {
            !RUNTIMES.iter().any(|theirs| place == *theirs || place.starts_with(&format!("{theirs}/")))
        };
        let mounts = self.mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(4);
            Some((words.next()?, words.next()?.get(..2)?))
        });
        mounts.filter(|(place, _)| is_own(place)).collect()
    }
}
