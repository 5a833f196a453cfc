//! Metrics: one registry for the process, filled by the composition root and read by the admin endpoint.
//!
//! Every subsystem registers a struct of its own through [`Metrics::subsystem`]; there are no globals. Names come out
//! as `berth_subsystem_thing_unit`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

/// What every metric name begins with.
pub const PREFIX: &str = "berth";

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why the metrics could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not encode the metrics")]
pub struct EncodeError(#[from] std::fmt::Error);

/// The registry of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    program: String,
    version: String,
}

impl Metrics {
    /// A registry that says which program and version this is (`berth_build_info`).
    #[must_use]
    pub fn new(program: &str, version: &str) -> Self {
        let mut metrics = Self { registry: Registry::with_prefix(PREFIX) };
        let build = metrics.register(
            "build_info",
            "The program and its version; always 1",
            Family::<BuildLabels, Gauge>::default(),
        );
        build.get_or_create(&BuildLabels { program: program.to_owned(), version: version.to_owned() }).set(1);
        metrics
    }

    /// Registers a metric under its name and gives it back, to keep in the subsystem's struct.
    ///
    /// Counters get `_total` appended; the help text goes without a full stop.
    pub fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(name, help, metric.clone());
        metric
    }

    /// The place where one subsystem registers its metrics.
    pub fn subsystem(&mut self, name: &str) -> Subsystem<'_> {
        Subsystem { registry: self.registry.sub_registry_with_prefix(name) }
    }

    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// When a metric refuses to be written.
    pub fn encode(&self) -> Result<String, EncodeError> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A part of the registry whose names begin with the subsystem's.
#[derive(Debug)]
pub struct Subsystem<'a> {
    registry: &'a mut Registry,
}

impl Subsystem<'_> {
    /// Registers a metric under its name and gives it back, to keep in the subsystem's struct.
    pub fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(name, help, metric.clone());
        metric
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn names_carry_prefix_and_subsystem() {
        let mut metrics = Metrics::new("program", "1.2.3");
        let renewals = metrics.subsystem("lease").register(
            "renewals",
            "Renewals of the lease",
            Counter::<u64>::default(),
        );
        renewals.inc();
        let text = metrics.encode().unwrap();
        assert!(text.contains("berth_lease_renewals_total 1\n"), "{text}");
        assert!(text.contains("berth_build_info{program=\"program\",version=\"1.2.3\"} 1\n"), "{text}");
    }
}
