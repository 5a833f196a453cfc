//! Metrics: one registry for the process, filled by the composition root and read by the admin endpoint.
//!
//! Every subsystem registers a struct of its own through [`Metrics::subsystem`]; there are no globals. Names come out
//! as `berth_subsystem_thing_unit`.

use std::fmt::Write as _;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

/// What every metric name begins with.
pub const PREFIX: &str = "berth";

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How the text ends.
const END: &str = "# EOF\n";

/// Why the metrics could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not encode the metrics")]
pub struct EncodeError(#[from] std::fmt::Error);

/// The registry of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    described: Vec<Description>,
}

/// What is said of a metric, also while it has no value yet.
#[derive(Debug)]
struct Description {
    name: String,
    help: String,
    kind: MetricType,
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
        let mut metrics = Self { registry: Registry::with_prefix(PREFIX), described: Vec::new() };
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
        register(&mut self.registry, &mut self.described, (PREFIX, name), help, metric)
    }

    /// The place where one subsystem registers its metrics.
    pub fn subsystem(&mut self, name: &str) -> Subsystem<'_> {
        Subsystem {
            prefix: format!("{PREFIX}_{name}"),
            registry: self.registry.sub_registry_with_prefix(name),
            described: &mut self.described,
        }
    }

    /// All metrics as OpenMetrics text. Those by label that have no value yet are described as well: who writes a rule
    /// for a failure sees its name before the first one.
    ///
    /// # Errors
    /// When a metric refuses to be written.
    pub fn encode(&self) -> Result<String, EncodeError> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        text.truncate(text.trim_end_matches(END).len());
        let missing: Vec<&Description> =
            self.described.iter().filter(|one| !text.contains(&format!("# TYPE {} ", one.name))).collect();
        for Description { name, help, kind } in missing {
            writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {}", kind.as_str())?;
        }
        text.push_str(END);
        Ok(text)
    }
}

fn register<M: Metric + Clone>(
    registry: &mut Registry,
    described: &mut Vec<Description>,
    (prefix, name): (&str, &str),
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    let kind = metric.metric_type();
    described.push(Description { name: format!("{prefix}_{name}"), help: help.to_owned(), kind });
    metric
}

/// A part of the registry whose names begin with the subsystem's.
#[derive(Debug)]
pub struct Subsystem<'a> {
    prefix: String,
    registry: &'a mut Registry,
    described: &'a mut Vec<Description>,
}

impl Subsystem<'_> {
    /// Registers a metric under its name and gives it back, to keep in the subsystem's struct.
    pub fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        register(self.registry, self.described, (&self.prefix, name), help, metric)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn a_metric_without_a_value_is_described() {
        let mut metrics = Metrics::new("program", "1.2.3");
        metrics.subsystem("writes").register(
            "failures",
            "Writes that failed",
            Family::<BuildLabels, Counter<u64>>::default(),
        );
        let text = metrics.encode().unwrap();
        let wanted =
            "# HELP berth_writes_failures Writes that failed.\n# TYPE berth_writes_failures counter\n# EOF\n";
        assert!(text.ends_with(wanted), "{text}");
        assert_eq!(text.matches("# TYPE berth_build_info ").count(), 1, "{text}");
    }

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
