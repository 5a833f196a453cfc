//! What programs use of the machine, as the kernel counts it.

use std::collections::BTreeMap;

use berth_dev::install::Berth;
use berth_dev::{Cluster, Daemon};
use procfs::process::Process;

use crate::table::{Table, figure, quantile};

/// Processor seconds and resident memory of every process, by program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    programs: BTreeMap<&'static str, Vec<(f64, f64)>>,
}

impl Usage {
    /// Looks at all of a cluster's programs now.
    pub(crate) fn now(cluster: &Cluster, berth: &Berth) -> Self {
        let mut usage = Self::default();
        let control = cluster.control_plane();
        usage.look("etcd", control.etcd());
        usage.look("kube-apiserver", control.api_server());
        usage.look("berth-brain", berth.brain());
        for (position, node) in cluster.nodes().iter().enumerate() {
            usage.look("berth-agent", berth.agent(position));
            usage.look("berth-sdk", berth.sdk(position));
            usage.look("kubelet", node.kubelet());
        }
        usage
    }

    fn look(&mut self, program: &'static str, daemon: &Daemon) {
        let Some(figures) = figures(daemon) else { return };
        self.programs.entry(program).or_default().push(figures);
    }

    /// Adds rows of what was used since `before`.
    pub(crate) fn tell_cpu(&self, before: &Self, what: &str, table: &mut Table) {
        for (program, now) in &self.programs {
            let used = |all: &[(f64, f64)]| all.iter().map(|(cpu, _)| cpu).sum::<f64>();
            let spent = used(now) - before.programs.get(program).map_or(0.0, |then| used(then));
            table.add(format!("{what}: processor time of {program} ({} processes)", now.len()), spent, "s");
        }
    }

    /// Adds rows of what is resident.
    pub(crate) fn tell_memory(&self, what: &str, table: &mut Table) {
        for (program, now) in &self.programs {
            let sizes: Vec<f64> = now.iter().map(|(_, size)| *size).collect();
            let title = format!("{what}: memory of one {program} (median of {})", figure(sizes.len()));
            table.add(title, quantile(&sizes, 0.5), "MiB");
        }
    }
}

/// Processor seconds that a program has used, and the MiB that it has resident; nothing of one that has ended.
pub(crate) fn figures(daemon: &Daemon) -> Option<(f64, f64)> {
    let stat = Process::new(daemon.pid()).and_then(|process| process.stat()).ok()?;
    #[allow(clippy::cast_precision_loss, reason = "ticks and pages of a run are far below 2^52")]
    let (ticks, pages) = ((stat.utime + stat.stime) as f64, stat.rss as f64);
    #[allow(clippy::cast_precision_loss, reason = "hundreds and thousands")]
    let (pace, page) = (procfs::ticks_per_second() as f64, procfs::page_size() as f64);
    Some((ticks / pace, pages * page / 1_048_576.0))
}
