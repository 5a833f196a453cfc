//! What the host's answers are counted by.

use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Counters of the host; see the fields.
#[derive(Clone, Debug)]
pub struct HostMetrics {
    /// Pods whose sandbox is waited for (`berth_host_sandboxes_waiting`).
    pub waiting: Gauge,
    /// Seconds from the first sight of a pod's newest container to listening in its sandbox
    /// (`berth_host_sandbox_delay_seconds`).
    pub sandbox_delay: Histogram,
    /// Sandboxes asked for, by how it ended (`berth_host_sandboxes_total`).
    pub sandboxes: Family<OutcomeLabels, Counter>,
    /// Times that events about cgroups were lost (`berth_host_cgroup_overflows_total`).
    pub overflows: Counter,
    /// Ports tried, by what was found (`berth_host_port_probes_total`).
    pub probes: Family<ProbeLabels, Counter>,
}

/// How the search for a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// `listening`, or the category of the error.
    pub outcome: &'static str,
}

/// What a port was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ProbeLabels {
    /// See [`ProbeOutcome`].
    pub outcome: ProbeOutcome,
}

/// What a port was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ProbeOutcome {
    /// Nobody uses it.
    Free,
    /// Somebody does.
    Used,
    /// The host would not say.
    Error,
}

impl HostMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(metrics: &mut Metrics) -> Self {
        let mut host = metrics.subsystem("host");
        let buckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];
        Self {
            waiting: host.register("sandboxes_waiting", "Pods whose sandbox is waited for", Gauge::default()),
            sandbox_delay: host.register(
                "sandbox_delay_seconds",
                "Time from the first sight of a pod's newest container to listening in its sandbox",
                Histogram::new(buckets),
            ),
            sandboxes: host.register("sandboxes", "Sandboxes asked for, by how it ended", Family::default()),
            overflows: host.register(
                "cgroup_overflows",
                "Times that events about cgroups were lost",
                Counter::default(),
            ),
            probes: host.register("port_probes", "Ports tried, by what was found", Family::default()),
        }
    }
}
