//! The task that judges the nodes again and again while we lead, and wakes the servers of those that stand otherwise.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use k8s_openapi::api::core::v1::ObjectReference;
use tracing::{info, warn};

use super::judge::judge;
use super::{FencingMetrics, Standing};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::stores::{Stores, World};

/// How often: a part of what a server may take to be replaced, and little work.
const TICK: Duration = Duration::from_millis(250);

/// Judges nodes.
pub(crate) struct FenceKeeper {
    pub(crate) stores: Arc<Stores>,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: FencingMetrics,
    /// How long sessions of a silent node are kept.
    pub(crate) lost_after: Duration,
}

impl FenceKeeper {
    /// Judges until `stop`, and leaves no judgement behind.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        self.stores.change(|world, now| world.cluster.begin_term(now));
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => self.turn(),
            }
        }
        self.stores.change(|world, _| world.cluster.end_term());
        self.metrics.lapsed.set(0);
        self.metrics.held.set(0);
        Ok(())
    }

    fn turn(&self) {
        let changes = self.stores.change(|world, now| look(world, now, self.lost_after));
        for (node, before, after) in changes {
            match after {
                Standing::Live | Standing::Unsure => {
                    info!(node, standing = ?after, before = ?before, "a node stands otherwise");
                }
                Standing::Held => self.tell_held(node),
                Standing::Lapsed { .. } | Standing::Expired | Standing::Gone => {
                    warn!(node, standing = ?after, before = ?before, "nobody acts for a node");
                }
            }
        }
        let count = |wanted: fn(&Standing) -> bool| {
            let counted =
                self.stores.read(|world| world.cluster.standings.values().filter(|one| wanted(one)).count());
            i64::try_from(counted).unwrap_or(i64::MAX)
        };
        self.metrics.held.set(count(|standing| *standing == Standing::Held));
        self.metrics.lapsed.set(count(|standing| {
            matches!(standing, Standing::Lapsed { .. } | Standing::Expired | Standing::Gone)
        }));
    }

    fn tell_held(&self, node: String) {
        warn!(node, "too many agents fell silent together: nothing is taken back");
        let about = ObjectReference {
            api_version: Some("berth.dev/v1".to_owned()),
            kind: Some("GameNode".to_owned()),
            name: Some(node),
            ..ObjectReference::default()
        };
        let message =
            "its agent is silent, and so many others with it that nothing is taken back; delete the Node \
                       objects of machines that are gone"
                .to_owned();
        let reason = EventReason::NodesSilentTogether;
        self.announcer.say(Announcement { about, speaker: Speaker::Placement, reason, message });
    }
}

/// Judges, and gives what stands otherwise than before.
fn look(world: &mut World, now: Instant, lost_after: Duration) -> Vec<(String, Standing, Standing)> {
    world.cluster.forget_leases(now);
    let next = world.sights(now).map(|sights| judge(&sights, lost_after)).unwrap_or_default();
    let names: std::collections::BTreeSet<String> =
        next.keys().chain(world.cluster.standings.keys()).cloned().collect();
    let mut changes = Vec::new();
    for name in names {
        let before = world.cluster.standing(&name);
        let after = next.get(&name).copied().unwrap_or(Standing::Unsure);
        if before != after {
            world.wake_servers_on(&name);
            changes.push((name, before, after));
        }
    }
    world.cluster.standings = next;
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Wake;
    use crate::testing::{lease, lease_renewed, node};

    const LOST_AFTER: Duration = Duration::from_secs(900);

    /// A brain that leads since `start`, and one node whose lease was seen renewed then.
    fn world(start: Instant) -> World {
        let mut world = World::default();
        world.cluster.put_node("n1", node("n1"));
        world.cluster.begin_term(start);
        world.cluster.hear(start);
        world.cluster.see_lease("n1", &lease("n1"), start);
        world
    }

    fn standing(world: &mut World, at: Instant) -> Standing {
        look(world, at, LOST_AFTER);
        world.cluster.standing("n1")
    }

    #[test]
    fn time_counts_only_while_the_watch_lives() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // We hear of other leases all the time, of this one never.
        let mut heard = world(start);
        for beat in 0..=24 {
            heard.cluster.hear(at(beat * 500));
        }
        assert_eq!(standing(&mut heard, at(12_000)), Standing::Lapsed { is_over: true });
        // Nothing is heard of any lease for a while: it is our watch.
        let mut deaf = world(start);
        for beat in 0..=6 {
            deaf.cluster.hear(at(beat * 500));
        }
        assert_eq!(standing(&mut deaf, at(12_000)), Standing::Unsure);
        // It comes back: the node gets its whole time from then on.
        for beat in 24..=42 {
            deaf.cluster.hear(at(beat * 500));
        }
        assert_eq!(standing(&mut deaf, at(21_000)), Standing::Unsure);
        deaf.cluster.hear(at(22_000));
        assert_eq!(standing(&mut deaf, at(22_000)), Standing::Lapsed { is_over: false });
    }

    #[test]
    fn a_new_leader_waits_for_a_whole_duration() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut world = world(start);
        world.cluster.end_term();
        for second in 0..=30 {
            world.cluster.hear(at(second));
        }
        assert_eq!(standing(&mut world, at(30)), Standing::Unsure, "a standby judges nobody");
        world.cluster.begin_term(at(30));
        for second in 31..=40 {
            world.cluster.hear(at(second));
        }
        assert_eq!(standing(&mut world, at(39)), Standing::Unsure);
        assert_eq!(standing(&mut world, at(40)), Standing::Lapsed { is_over: false });
    }

    #[test]
    fn a_node_that_stands_otherwise_wakes_its_servers() {
        let start = Instant::now();
        let mut world = world(start);
        let server = serde_json::json!({
            "metadata": {"name": "a", "namespace": "games", "uid": "u", "resourceVersion": "1"},
            "spec": {"template": {"spec": {"containers": []}}},
            "status": {"state": "Ready", "nodeName": "n1"},
        });
        world.see_server(&serde_json::from_value(server).expect("a GameServer"));
        for second in 0..=11 {
            world.cluster.hear(start + Duration::from_secs(second));
        }
        let late = start + Duration::from_secs(11);
        let woken = Wake::Server(crate::stores::Key::new("games", "a"));
        for (renewed, expected) in [(None, Standing::Lapsed { is_over: false }), (Some(7), Standing::Live)] {
            if let Some(second) = renewed {
                world.cluster.see_lease("n1", &lease_renewed("n1", second), late);
            }
            world.take_wakes();
            assert_eq!(standing(&mut world, late), expected);
            assert!(world.take_wakes().contains(&woken), "{expected:?}");
            assert_eq!(standing(&mut world, late), expected);
            assert!(world.take_wakes().is_empty(), "nothing changed since");
        }
    }
}
