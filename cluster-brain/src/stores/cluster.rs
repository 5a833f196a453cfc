//! The nodes: what Kubernetes says of each, what its agent says, and whether the agent's lease was seen renewed. Pure.
//!
//! A lease is live for its duration from the moment at which this process *saw* it renewed, by its own monotonic clock.
//! A lease that a list shows may be an hour old, so listing is not seeing: a fresh process waits for one renewal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fencing::{Sight, Standing};
use berth_api::game_node::GameNodeStatus;
use berth_api::node_lease::{self, Holder};
use berth_runtime::clock::Instant;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

/// What decisions need of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeRecord {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_cordoned: bool,
    /// Kernel boot, as kubelet says.
    pub(crate) boot_id: String,
    /// The control plane has not heard of its kubelet for a while.
    pub(crate) is_kubelet_silent: bool,
}

impl NodeRecord {
    pub(crate) fn read(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let is_unknown =
            |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == "Unknown";
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            is_cordoned: spec.unschedulable.unwrap_or(false),
            boot_id: status.node_info.map(|info| info.boot_id).unwrap_or_default(),
            is_kubelet_silent: status.conditions.iter().flatten().any(is_unknown),
        }
    }
}

/// What is known of a node's lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaseRecord {
    /// Who holds it; `None` when it was given back or is not an agent's.
    pub(crate) holder: Option<Holder>,
    renewal: String,
    duration: Duration,
    /// When we saw it renewed last.
    seen: Option<Instant>,
}

impl LeaseRecord {
    fn read(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let renewed = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        Self {
            renewal: format!("{holder} {} {renewed}", spec.lease_transitions.unwrap_or(0)),
            holder: holder.parse().ok(),
            duration: duration.map_or(node_lease::DURATION, Duration::from_secs),
            seen: None,
        }
    }

    /// Somebody holds it, and was seen to renew it within its duration.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        self.holder.is_some() && self.seen.is_some_and(|seen| now < seen + self.duration)
    }
}

/// What an agent says that may open its node for a server. The rest changes with every server, and is no news to us.
fn what_counts(said: &GameNodeStatus) -> impl PartialEq + use<> {
    let ports: BTreeMap<_, _> =
        said.ports.iter().map(|(range, count)| (range.clone(), count.total)).collect();
    let identity = (said.node_uid.clone(), said.boot_id.clone(), said.format_versions.clone());
    (said.phase, identity, said.allocatable, said.others, ports)
}

/// Since when, without a gap, we would have heard of a renewal.
#[derive(Debug, Default)]
struct Hearing {
    /// The longest silence of a watch that lives: our own renewals come through it.
    gap: Option<Duration>,
    /// We lead since then, and so judge.
    term: Option<Instant>,
    since: Option<Instant>,
    last: Option<Instant>,
}

/// Every node of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) nodes: BTreeMap<String, NodeRecord>,
    pub(crate) game_nodes: BTreeMap<String, GameNodeStatus>,
    pub(crate) leases: BTreeMap<String, LeaseRecord>,
    /// What we have told the nodes that are not needed.
    pub(crate) surplus: BTreeMap<String, String>,
    /// How each node stands, as was last judged; nothing while nobody may judge.
    pub(crate) standings: BTreeMap<String, Standing>,
    hearing: Hearing,
    /// When the leases were last listed in full.
    leases_listed: Option<Instant>,
    listing: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Cluster {
    /// A list of one kind was begun.
    pub(crate) fn begin_list(&mut self, kind: &'static str) {
        self.listing.insert(kind, BTreeSet::new());
    }

    /// An object of a list or a watch has this name.
    pub(crate) fn note_name(&mut self, kind: &'static str, name: &str) {
        if let Some(names) = self.listing.get_mut(kind) {
            names.insert(name.to_owned());
        }
    }

    /// The list is complete: the names that it did not show, out of those we know.
    pub(crate) fn end_list(&mut self, kind: &'static str, known: Vec<String>) -> Vec<String> {
        let Some(listed) = self.listing.remove(kind) else { return Vec::new() };
        known.into_iter().filter(|name| !listed.contains(name)).collect()
    }

    /// A Node is so now. True when that may make room somewhere.
    pub(crate) fn put_node(&mut self, name: &str, node: NodeRecord) -> bool {
        let before = self.nodes.insert(name.to_owned(), node);
        before.as_ref() != self.nodes.get(name)
    }

    /// An agent says so now. True when that may make room somewhere.
    pub(crate) fn put_game_node(&mut self, name: &str, status: GameNodeStatus) -> bool {
        let after = what_counts(&status);
        let before = self.game_nodes.insert(name.to_owned(), status);
        before.is_none_or(|before| what_counts(&before) != after)
    }

    /// We have told a node so, or nothing any more. True when that may make room somewhere.
    pub(crate) fn put_word(&mut self, name: &str, word: Option<String>) -> bool {
        match word {
            Some(word) => {
                self.surplus.insert(name.to_owned(), word);
                false
            }
            None => self.surplus.remove(name).is_some(),
        }
    }

    /// A GameNode is gone.
    pub(crate) fn lose_game_node(&mut self, name: &str) {
        self.game_nodes.remove(name);
        self.surplus.remove(name);
    }

    /// A list has shown a lease: whether it is live is not known from that.
    pub(crate) fn list_lease(&mut self, name: &str, lease: &Lease) {
        let mut record = LeaseRecord::read(lease);
        record.seen = self.leases.get(name).and_then(|before| before.seen);
        self.leases.insert(name.to_owned(), record);
    }

    /// A watch has shown a lease. True when it was not live before and is now.
    pub(crate) fn see_lease(&mut self, name: &str, lease: &Lease, now: Instant) -> bool {
        let mut record = LeaseRecord::read(lease);
        let before = self.leases.get(name);
        let was_live = before.is_some_and(|before| before.is_live(now));
        record.seen = match before {
            Some(before) if before.renewal == record.renewal => before.seen,
            _ => Some(now),
        };
        let is_live = record.is_live(now);
        self.leases.insert(name.to_owned(), record);
        is_live && !was_live
    }

    /// A lease is gone. Who held it may act until its end, and make it again, so it counts as given back just now.
    pub(crate) fn lose_lease(&mut self, name: &str, now: Instant) {
        if let Some(lease) = self.leases.get_mut(name) {
            if lease.holder.take().is_some() {
                lease.seen = Some(now);
            }
            lease.renewal.clear();
        }
    }

    /// Forgets the leases that nobody holds and that nobody waits for: their nodes are gone, and their time is over.
    pub(crate) fn forget_leases(&mut self, now: Instant) {
        let Self { leases, nodes, .. } = self;
        leases.retain(|name, lease| {
            let is_over = lease.seen.is_some_and(|seen| now > seen + lease.duration + node_lease::MARGIN * 2);
            lease.holder.is_some() || nodes.contains_key(name) || !is_over
        });
    }

    /// The longest silence of a watch that lives.
    pub(crate) fn expect_leases_every(&mut self, gap: Duration) {
        self.hearing.gap = Some(gap);
    }

    /// The watch of the leases has shown something.
    pub(crate) fn hear(&mut self, now: Instant) {
        let gap = self.hearing.gap.unwrap_or(node_lease::RENEWAL);
        if self.hearing.last.is_none_or(|last| now.saturating_duration_since(last) > gap) {
            self.hearing.since = Some(now);
        }
        self.hearing.last = Some(now);
    }

    /// We lead from now on.
    pub(crate) fn begin_term(&mut self, now: Instant) {
        self.hearing.term = Some(now);
    }

    /// We do not lead any more.
    pub(crate) fn end_term(&mut self) {
        self.hearing.term = None;
        self.standings.clear();
    }

    /// How a node stands.
    pub(crate) fn standing(&self, node: &str) -> Standing {
        self.standings.get(node).copied().unwrap_or(Standing::Unsure)
    }

    /// What is seen of the nodes that have a lease, and of `others`; `None` while we would not hear of a renewal, or have
    /// no say.
    pub(crate) fn sights<'a>(
        &'a self,
        others: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Option<BTreeMap<String, Sight>> {
        let Hearing { gap, term, since, last } = &self.hearing;
        let is_deaf = now.saturating_duration_since((*last)?) > gap.unwrap_or(node_lease::RENEWAL);
        let begun = (*since)?.max((*term)?);
        if is_deaf {
            return None;
        }
        let sight = |name: &str| {
            let lease = self.leases.get(name);
            let heard = lease.and_then(|lease| lease.seen).map_or(begun, |seen| seen.max(begun));
            let node = self.nodes.get(name);
            Sight {
                unheard: now.saturating_duration_since(heard),
                duration: lease.map_or(node_lease::DURATION, |lease| lease.duration),
                is_live: lease.is_some_and(|lease| lease.is_live(now)),
                has_node: node.is_some(),
                is_kubelet_silent: node.is_some_and(|node| node.is_kubelet_silent),
            }
        };
        let names = self.leases.keys().map(String::as_str).chain(others);
        Some(names.map(|name| (name.to_owned(), sight(name))).collect())
    }

    /// The leases have been listed in full.
    pub(crate) fn note_leases_listed(&mut self, now: Instant) {
        self.hear(now);
        self.leases_listed = Some(now);
    }

    /// How long it may take until we know which leases are live; `None` once we do. Until then "no room" means little.
    pub(crate) fn unsettled(&self, now: Instant) -> Option<Duration> {
        let Some(listed) = self.leases_listed else { return Some(node_lease::RENEWAL) };
        let unseen = self
            .leases
            .values()
            .filter(|lease| lease.holder.is_some() && lease.seen.is_none_or(|seen| seen < listed));
        let settles = unseen.map(|lease| listed + lease.duration).max()?;
        (now < settles).then(|| settles - now)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_lease_is_live_from_a_renewal_that_was_seen() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut cluster = Cluster::default();
        cluster.list_lease("a", &lease("a/b/c", 1));
        cluster.note_leases_listed(at(0));
        assert!(!cluster.leases["a"].is_live(at(0)), "a list shows no renewal");
        assert_eq!(cluster.unsettled(at(1)), Some(Duration::from_secs(9)));
        assert!(!cluster.see_lease("a", &lease("a/b/c", 1), at(1)), "the same again");
        assert!(cluster.see_lease("a", &lease("a/b/c", 4), at(2)), "a renewal");
        assert_eq!(cluster.unsettled(at(2)), None);
        assert!(cluster.leases["a"].is_live(at(11)));
        assert!(!cluster.leases["a"].is_live(at(12)));
        assert!(cluster.see_lease("a", &lease("a/b/d", 4), at(20)), "another holder");
        assert!(!cluster.see_lease("a", &lease("", 5), at(21)), "given back");
        assert!(!cluster.leases["a"].is_live(at(21)));
    }

    #[test]
    fn a_lease_that_was_deleted_gives_its_holder_all_its_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut cluster = Cluster::default();
        cluster.begin_term(start);
        for second in 0..=100 {
            cluster.hear(at(second));
        }
        cluster.see_lease("a", &lease("a/b/c", 1), at(97));
        cluster.lose_lease("a", at(99));
        cluster.lose_lease("a", at(100));
        let sight = cluster.sights(std::iter::empty(), at(100)).expect("sights")["a"];
        assert_eq!((sight.unheard, sight.is_live), (Duration::from_secs(1), false));
        cluster.forget_leases(at(110));
        assert!(cluster.leases.contains_key("a"));
        cluster.forget_leases(at(114));
        assert!(cluster.leases.is_empty(), "its node is gone, and its time over");
    }

    #[test]
    fn a_lease_that_is_never_renewed_is_waited_for_once() {
        let start = Instant::now();
        let mut cluster = Cluster::default();
        assert!(cluster.unsettled(start).is_some(), "nothing was listed yet");
        cluster.list_lease("dead", &lease("a/b/c", 1));
        cluster.note_leases_listed(start);
        assert!(cluster.unsettled(start + Duration::from_secs(9)).is_some());
        assert_eq!(cluster.unsettled(start + Duration::from_secs(10)), None);
    }

    #[test]
    fn a_lease_that_appears_under_our_eyes_is_live() {
        let mut cluster = Cluster::default();
        let now = Instant::now();
        cluster.note_leases_listed(now);
        assert!(cluster.see_lease("new", &lease("a/b/c", 1), now));
    }
}
