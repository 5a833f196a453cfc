//! Whether to make, take, renew or wait for the lease. Pure.

use std::time::Duration;

use berth_api::node_lease::{Epoch, Holder};
use berth_runtime::clock::Instant;

/// A lease as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Who holds it; none where it was given back.
    pub holder: Option<String>,
    /// Its epoch.
    pub epoch: Epoch,
    /// How long it lasts without renewal.
    pub duration: Duration,
    /// Since when we have seen it unchanged, by our own clock.
    pub unchanged_since: Instant,
}

/// What is known of those who could hold it.
#[derive(Clone, Copy, Debug)]
pub struct Kin<'a> {
    /// We.
    pub me: &'a Holder,
    /// An earlier process of this boot of this node is dead: we hold its lock, and have not met it since.
    pub predecessor_is_dead: bool,
    /// How long after its end a foreign lease is left alone.
    pub margin: Duration,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make it.
    Create,
    /// Write it again.
    Renew(Epoch),
    /// Write it as the new holder.
    Take(Epoch),
    /// Look again then.
    WaitUntil(Instant),
}

/// The next step.
pub fn decide(seen: Option<&Sight>, kin: Kin<'_>, now: Instant) -> Step {
    let Some(seen) = seen else {
        return Step::Create;
    };
    let next = Epoch(seen.epoch.0.saturating_add(1));
    let Some(holder) = seen.holder.as_deref().filter(|holder| !holder.is_empty()) else {
        return Step::Take(next);
    };
    if holder == kin.me.to_string() {
        return Step::Renew(seen.epoch);
    }
    let is_predecessor = holder
        .parse::<Holder>()
        .is_ok_and(|other| other.node == kin.me.node && other.boot_id == kin.me.boot_id);
    let end = seen.unchanged_since + seen.duration + kin.margin;
    if (is_predecessor && kin.predecessor_is_dead) || now >= end {
        return Step::Take(next);
    }
    Step::WaitUntil(end)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_api::node_lease::{Epoch, Holder};
    use berth_runtime::clock::Instant;

    use super::{Kin, Sight, Step, decide};

    const MARGIN: Duration = Duration::from_secs(2);

    fn holder(node: &str, boot_id: &str, process_id: &str) -> Holder {
        Holder { node: node.into(), boot_id: boot_id.into(), process_id: process_id.into() }
    }

    #[test]
    fn who_may_take_the_lease_and_when() {
        let start = Instant::now();
        let lasts = Duration::from_secs(10);
        let me = holder("n", "b", "p");
        let wait = Step::WaitUntil(start + lasts + MARGIN);
        let table: [(&str, Option<&str>, bool, Duration, Step); 9] = [
            ("ours is renewed", Some("n/b/p"), true, Duration::ZERO, Step::Renew(Epoch(7))),
            ("ours is renewed even late", Some("n/b/p"), true, lasts * 9, Step::Renew(Epoch(7))),
            ("a dead predecessor's is taken", Some("n/b/old"), true, Duration::ZERO, Step::Take(Epoch(8))),
            ("a living one's is waited for", Some("n/b/old"), false, Duration::ZERO, wait),
            ("another boot's is waited for", Some("n/a/p"), true, Duration::ZERO, wait),
            ("another node's is waited for", Some("m/b/p"), true, lasts, wait),
            ("nonsense is waited for", Some("somebody"), true, Duration::ZERO, wait),
            (
                "one unchanged for so long is taken",
                Some("n/a/p"),
                false,
                lasts + MARGIN,
                Step::Take(Epoch(8)),
            ),
            ("one given back is taken", Some(""), false, Duration::ZERO, Step::Take(Epoch(8))),
        ];
        for (name, seen, predecessor_is_dead, later, expected) in table {
            let sight = Sight {
                holder: seen.map(str::to_owned),
                epoch: Epoch(7),
                duration: lasts,
                unchanged_since: start,
            };
            let kin = Kin { me: &me, predecessor_is_dead, margin: MARGIN };
            assert_eq!(decide(Some(&sight), kin, start + later), expected, "{name}");
        }
        let kin = Kin { me: &me, predecessor_is_dead: false, margin: MARGIN };
        assert_eq!(decide(None, kin, start), Step::Create);
    }
}
