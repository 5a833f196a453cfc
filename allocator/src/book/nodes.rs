//! Which nodes are closed: draining, cordoned, or without a sign of life from their agent. Pure.
//!
//! A lease has lapsed when *we* have not seen it renewed for its duration, by our own monotonic clock, while our watch of
//! leases went on without a gap. When all of them seem to have lapsed together, the fault is ours, and none is believed.

use std::collections::HashMap;
use std::time::Duration;

use berth_api::game_node::NodePhase;
use berth_api::node_lease;
use berth_runtime::clock::Instant;
use k8s_openapi::api::coordination::v1::Lease;

#[derive(Clone, Debug)]
struct LeaseSeen {
    renewal: String,
    duration: Duration,
    /// When we saw it renewed, or first saw it in the present watch.
    at: Instant,
}

/// What is known of the nodes.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    phases: HashMap<String, NodePhase>,
    leases: HashMap<String, LeaseSeen>,
    /// Since when the watch of leases has had no gap; `None` while it has one.
    watching_since: Option<Instant>,
}

impl Nodes {
    /// A node's agent says so. Answers whether it is news.
    pub fn set_phase(&mut self, node: &str, phase: NodePhase) -> bool {
        self.phases.insert(node.to_owned(), phase) != Some(phase)
    }

    /// Nothing is said of a node any more.
    pub fn forget_phase(&mut self, node: &str) {
        self.phases.remove(node);
    }

    /// Only these nodes are spoken of.
    pub fn keep_phases(&mut self, nodes: &std::collections::BTreeSet<String>) {
        self.phases.retain(|node, _| nodes.contains(node));
    }

    /// A lease as it is now.
    pub fn see_lease(&mut self, node: &str, lease: &Lease, now: Instant) {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let renewed = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
        let renewal = format!(
            "{} {} {renewed}",
            spec.holder_identity.unwrap_or_default(),
            spec.lease_transitions.unwrap_or(0)
        );
        let before = self.leases.get(node).filter(|before| before.renewal == renewal);
        let at = before.map_or(now, |before| before.at);
        let duration = seconds.map_or(node_lease::DURATION, Duration::from_secs);
        self.leases.insert(node.to_owned(), LeaseSeen { renewal, duration, at });
    }

    /// A lease is gone: nobody is there to let it lapse.
    pub fn forget_lease(&mut self, node: &str) {
        self.leases.remove(node);
    }

    /// The watch of leases has a gap.
    pub fn lose_sight(&mut self) {
        self.watching_since = None;
    }

    /// The watch of leases is complete again.
    pub fn regain_sight(&mut self, now: Instant) {
        self.watching_since.get_or_insert(now);
    }

    /// The nodes that nothing may be taken from at this moment.
    pub fn closed(&self, now: Instant) -> Closed<'_> {
        let all_lapsed =
            self.leases.len() > 1 && self.leases.values().all(|lease| self.has_lapsed(lease, now));
        Closed { nodes: self, now, leases_count: !all_lapsed }
    }

    fn has_lapsed(&self, lease: &LeaseSeen, now: Instant) -> bool {
        self.watching_since.is_some_and(|since| now >= lease.at.max(since) + lease.duration)
    }
}

/// The nodes that nothing may be taken from, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Closed<'a> {
    nodes: &'a Nodes,
    now: Instant,
    leases_count: bool,
}

impl Closed<'_> {
    /// Whether this one is.
    pub fn contains(&self, node: &str) -> bool {
        let is_inactive =
            self.nodes.phases.get(node).is_some_and(|phase| !matches!(phase, NodePhase::Active));
        let lease = self.nodes.leases.get(node).filter(|_| self.leases_count);
        is_inactive || lease.is_some_and(|lease| self.nodes.has_lapsed(lease, self.now))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some("a/b/c".to_owned()),
            lease_duration_seconds: Some(10),
            renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_node_that_is_not_active_is_closed_and_an_unknown_one_is_not() {
        let mut nodes = Nodes::default();
        for (phase, closed) in [
            (NodePhase::Starting, true),
            (NodePhase::Active, false),
            (NodePhase::Idle, true),
            (NodePhase::Cordoned, true),
            (NodePhase::Draining, true),
            (NodePhase::Drained, true),
            (NodePhase::Gone, true),
        ] {
            nodes.set_phase("a", phase);
            assert_eq!(nodes.closed(Instant::now()).contains("a"), closed, "{phase:?}");
        }
        assert!(!nodes.closed(Instant::now()).contains("b"));
    }

    #[test]
    fn a_lease_lapses_while_we_watch() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut nodes = Nodes::default();
        nodes.see_lease("a", &lease(1), at(0));
        nodes.see_lease("b", &lease(1), at(0));
        nodes.regain_sight(at(0));
        nodes.see_lease("b", &lease(4), at(9));
        let closed = |nodes: &Nodes, now| (nodes.closed(now).contains("a"), nodes.closed(now).contains("b"));
        assert_eq!(closed(&nodes, at(9)), (false, false));
        assert_eq!(closed(&nodes, at(10)), (true, false));
        nodes.see_lease("a", &lease(1), at(11));
        assert_eq!(closed(&nodes, at(11)), (true, false), "the same again is no renewal");
        nodes.see_lease("a", &lease(2), at(12));
        assert_eq!(closed(&nodes, at(12)), (false, false));
    }

    #[test]
    fn time_does_not_count_while_our_watch_has_a_gap() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut nodes = Nodes::default();
        nodes.see_lease("a", &lease(1), at(0));
        nodes.regain_sight(at(0));
        nodes.lose_sight();
        assert!(!nodes.closed(at(100)).contains("a"));
        nodes.regain_sight(at(100));
        assert!(!nodes.closed(at(109)).contains("a"));
        assert!(nodes.closed(at(110)).contains("a"));
    }

    #[test]
    fn when_all_lapse_together_none_is_believed() {
        let start = Instant::now();
        let mut nodes = Nodes::default();
        nodes.see_lease("a", &lease(1), start);
        nodes.see_lease("b", &lease(1), start);
        nodes.regain_sight(start);
        let later = start + Duration::from_secs(60);
        assert!(!nodes.closed(later).contains("a") && !nodes.closed(later).contains("b"));
    }
}
