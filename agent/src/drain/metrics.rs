//! Numbers about the end of a node.

use berth_runtime::metrics::Subsystem;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::Course;

/// Label of [`DrainMetrics::started`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabels {
    /// Who has said so.
    pub source: &'static str,
}

/// Label of [`DrainMetrics::node_writes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    /// What was written.
    pub step: &'static str,
}

/// Label of [`DrainMetrics::failures`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    /// What went wrong.
    pub category: &'static str,
}

/// Numbers about the end of a node.
#[derive(Clone, Debug)]
pub struct DrainMetrics {
    /// The course: 0 open, 1 closed, 2 draining, 3 drained, 4 spare.
    pub course: Gauge,
    /// Unix time by which the node will be gone; 0 where nobody knows.
    pub deadline: Gauge,
    /// Drains that have begun.
    pub started: Family<SourceLabels, Counter>,
    /// Times the node was let go since nobody needed it.
    pub spared: Counter,
    /// Notices taken back by a source that never takes one back.
    pub denied: Counter,
    /// Writes of the Node.
    pub node_writes: Family<WriteLabels, Counter>,
    /// Steps that failed.
    pub failures: Family<FailureLabels, Counter>,
    /// Times a taint was withheld because it would have evicted a pod.
    pub withheld: Counter,
    /// From the notice to the closed Node.
    pub until_cordoned: Histogram,
    /// From the notice to the last pod's end.
    pub until_drained: Histogram,
}

impl DrainMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        Self {
            course: subsystem.register(
                "course",
                "What the node is for: 0 open, 1 closed, 2 draining, 3 drained, 4 spare",
                Gauge::default(),
            ),
            deadline: subsystem.register(
                "deadline_timestamp_seconds",
                "When the node will be gone, in Unix time; 0 where nobody knows",
                Gauge::default(),
            ),
            started: subsystem.register("started", "Drains that have begun, by who asked", Family::default()),
            spared: subsystem.register(
                "idle_releases",
                "Times the node was let go since nobody needed it",
                Counter::default(),
            ),
            denied: subsystem.register(
                "denied_notices",
                "Notices taken back by a source that never takes one back",
                Counter::default(),
            ),
            node_writes: subsystem.register(
                "node_writes",
                "Writes of the Node object, by what was written",
                Family::default(),
            ),
            failures: subsystem.register("failures", "Steps that failed", Family::default()),
            withheld: subsystem.register(
                "withheld_taints",
                "Times a taint was withheld because it would have evicted a game server",
                Counter::default(),
            ),
            until_cordoned: subsystem.register(
                "notice_to_cordon_seconds",
                "From the notice to the closed Node",
                Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]),
            ),
            until_drained: subsystem.register(
                "seconds",
                "From the notice to the end of the last game server",
                Histogram::new([1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0]),
            ),
        }
    }

    /// Shows the course.
    pub fn show(&self, course: &Course) {
        self.course.set(match course {
            Course::Open => 0,
            Course::Closed { .. } => 1,
            Course::Draining { .. } => 2,
            Course::Drained { .. } => 3,
            Course::Spare { .. } => 4,
        });
        let deadline = course.notice().and_then(|notice| notice.deadline);
        self.deadline.set(deadline.map_or(0, jiff::Timestamp::as_second));
    }
}
