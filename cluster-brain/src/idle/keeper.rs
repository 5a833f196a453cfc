//! The task that answers nodes that ask whether they are needed, and fetches them back.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::game_node::{GameNode, GameNodeStatus, NodePhase, Protection};
use berth_api::game_server::Scheduling;
use berth_api::game_server_set::GameServerSet;
use berth_api::lifecycle::State;
use berth_api::node_lease::HandOver;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use serde_json::json;
use tracing::{info, warn};

use super::IdleMetrics;
use super::decide::{Resident, Seen, Stand, Waiting, Word, decide};
use crate::autoscaling::ceiling;
use crate::effects::Effect;
use crate::placement::{Closed, NodeView, views};
use crate::stores::{Key, Server, Stores, World};
use crate::writes::Writer;

/// How often to look: who waits for a node waits so much longer at most.
const TICK: Duration = Duration::from_secs(1);
/// How long a node that was fetched back counts as room although it takes no servers yet.
const RETURNS_WITHIN: Duration = Duration::from_secs(30);

/// Answers nodes, and fetches them back.
pub(crate) struct IdleKeeper {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) metrics: IdleMetrics,
}

/// When nodes were fetched back.
type Fetched = BTreeMap<String, Instant>;

impl IdleKeeper {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut fetched = Fetched::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => self.turn(&mut fetched).await,
            }
        }
        self.metrics.asking.set(0);
        self.metrics.spare.set(0);
        Ok(())
    }

    async fn turn(&self, fetched: &mut Fetched) {
        fetched.retain(|_, at| at.elapsed() < RETURNS_WITHIN);
        let (words, asking, spare) = self.stores.change(|world, now| {
            if !concerns_anybody(world) {
                return (BTreeMap::new(), 0, 0);
            }
            let seen = look(world, fetched, now);
            let count = |wanted: fn(&Stand) -> bool| seen.iter().filter(|node| wanted(&node.stand)).count();
            let asking = count(|stand| matches!(stand, Stand::Asks { .. }));
            let spare = count(|stand| matches!(stand, Stand::Spare));
            let words = decide(&seen, &waiting(world), &whole(world, &seen));
            // From this moment on nothing is handed to it.
            for (node, word) in &words {
                if let Word::Surplus(since) = word {
                    world.hear_word(node, Some(since.clone()));
                }
            }
            (words, asking, spare)
        });
        self.metrics.asking.set(i64::try_from(asking).unwrap_or(i64::MAX));
        self.metrics.spare.set(i64::try_from(spare).unwrap_or(i64::MAX));
        // One after another: there are few, and what was decided together may wait for one another.
        for (node, word) in words {
            self.write(&node, &word, fetched).await;
        }
    }

    async fn write(&self, node: &str, word: &Word, fetched: &mut Fetched) {
        let (effect, surplus) = match word {
            Word::Surplus(since) => (Effect::CallSurplus, Some(since)),
            Word::Needed => (Effect::FetchBack, None),
        };
        let change = json!({ "spec": { "surplus": surplus } });
        match self.writer.patch_cluster::<GameNode>(effect, node, &change).await {
            Ok(written) => {
                match word {
                    Word::Surplus(since) => {
                        self.metrics.released.inc();
                        info!(node, since, "a node is not needed");
                    }
                    Word::Needed => {
                        self.metrics.recalled.inc();
                        fetched.insert(node.to_owned(), Instant::now());
                        info!(node, "a node is needed again");
                    }
                }
                self.stores.change(|world, _| world.hear_word(node, written.spec.surplus));
            }
            Err(error) => {
                self.metrics.failed.inc();
                // If it has been told all the same, the watch shows it.
                if surplus.is_some() {
                    self.stores.change(|world, _| world.hear_word(node, None));
                }
                warn!(node, error = %chain(&error), "a node was not told whether it is needed");
            }
        }
    }
}

/// Most clusters have no such node.
fn concerns_anybody(world: &World) -> bool {
    let cluster = &world.cluster;
    !cluster.surplus.is_empty() || cluster.game_nodes.values().any(|said| said.idle_since.is_some())
}

fn look(world: &World, fetched: &Fetched, now: Instant) -> Vec<Seen> {
    let seen = |mut view: NodeView| {
        let said = world.cluster.game_nodes.get(&view.name)?;
        let word = world.cluster.surplus.get(&view.name);
        let stand = match (word, &view.offer) {
            (Some(word), _) if is_stale(word, said) => Stand::Stale,
            (Some(_), Err(Closed::Surplus)) => Stand::Spare,
            (None, Ok(_)) => match &said.idle_since {
                Some(since) if said.protection == Protection::Protected => {
                    Stand::Asks { since: since.clone(), residents: residents(world, &view.name) }
                }
                Some(_) | None => Stand::Open,
            },
            (None, Err(Closed::Phase(_))) if fetched.contains_key(&view.name) => Stand::Returns,
            // Nobody acts for it, or something else is done about it.
            (Some(_), Ok(_) | Err(_)) | (None, Err(_)) => return None,
        };
        // As if it took servers: nothing is handed to it by this.
        view.offer = Ok(HandOver::new(&view.name, &said.node_uid, &said.boot_id));
        Some(Seen { view, stand })
    };
    views(world, now).into_iter().filter_map(seen).collect()
}

/// Whether the node has been used, or closed, since the word was said. An agent that starts has not said yet.
fn is_stale(word: &str, said: &GameNodeStatus) -> bool {
    match said.phase {
        NodePhase::Starting | NodePhase::Idle => false,
        NodePhase::Active => said.idle_since.as_deref() != Some(word),
        NodePhase::Cordoned | NodePhase::Draining | NodePhase::Drained | NodePhase::Gone => true,
    }
}

/// What would have to go elsewhere; nothing where it must not.
fn residents(world: &World, node: &str) -> Option<Vec<Resident>> {
    let keys = world.keys_on(node);
    let servers: Vec<Arc<Server>> =
        keys.iter().filter_map(|key| world.servers.get(key)).filter(|one| !one.is_ending).cloned().collect();
    // One that is on its way there would be sent back.
    if servers.iter().any(|server| server.is_protected()) || world.is_awaited_on(node) {
        return None;
    }
    let resident = |server: Arc<Server>| Resident {
        set: server.set.clone().filter(|_| server.scheduling == Scheduling::Packed),
        needs: Arc::clone(&server.needs),
    };
    Some(servers.into_iter().map(resident).collect())
}

fn waiting(world: &World) -> Vec<Waiting> {
    let waits = |key: Key| {
        let server = world.servers.get(&key)?;
        let placeholders = world.placeholders_for(&key);
        let placeholder_on = placeholders.into_iter().find_map(|one| one.node.clone());
        Some(Waiting { needs: Arc::clone(&server.needs), scheduling: server.scheduling, placeholder_on })
    };
    world.waiting().into_iter().filter_map(waits).collect()
}

/// The sets that have as many servers in use or Ready as they want, beside those on nodes that are not needed.
fn whole(world: &World, seen: &[Seen]) -> BTreeSet<String> {
    let spare: BTreeSet<&str> = seen
        .iter()
        .filter(|node| matches!(node.stand, Stand::Spare))
        .map(|node| node.view.name.as_str())
        .collect();
    let is_up = |server: &&Arc<Server>| {
        let is_there = server.node.as_deref().is_some_and(|node| !spare.contains(node));
        let counts = matches!(server.state, Some(State::Ready | State::Allocated | State::Reserved));
        is_there && counts && !server.is_ending && !server.is_lost()
    };
    let is_whole = |set: &&Arc<GameServerSet>| {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let wanted = usize::try_from(set.spec.replicas).unwrap_or(0);
        let wanted = ceiling(world, set).map_or(wanted, |ceiling| ceiling.min(wanted));
        world.servers_of(uid).iter().filter(is_up).count() >= wanted
    };
    world.sets.iter().filter(is_whole).filter_map(|set| set.metadata.uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, agent, lease, node, server};

    fn world(now: Instant, servers: Vec<Build>) -> World {
        let mut world = World::default();
        for name in ["n1", "n2"] {
            world.cluster.put_node(name, node(name));
            let said = GameNodeStatus {
                protection: Protection::Protected,
                idle_since: Some("t".to_owned()),
                ..agent(name)
            };
            world.cluster.put_game_node(name, said);
            world.cluster.see_lease(name, &lease(name), now);
        }
        for server in servers {
            let change = world.servers.created(server.build());
            world.note_server(change);
        }
        world
    }

    fn stands(world: &World, fetched: &Fetched, now: Instant) -> Vec<String> {
        let word = |node: &Seen| match &node.stand {
            Stand::Open => "open".to_owned(),
            Stand::Asks { residents, .. } => {
                let sets =
                    residents.as_ref().map(|all| all.iter().map(|one| one.set.clone()).collect::<Vec<_>>());
                format!("asks {sets:?}")
            }
            Stand::Returns => "returns".to_owned(),
            Stand::Spare => "spare".to_owned(),
            Stand::Stale => "stale".to_owned(),
        };
        look(world, fetched, now).iter().map(|node| format!("{} {}", node.view.name, word(node))).collect()
    }

    #[test]
    fn servers_of_no_set_and_of_sets_that_spread_have_nowhere_else_to_go() {
        let now = Instant::now();
        let mut spread = server("c").on("n1").ready().of("wide");
        spread = spread.scheduling(Scheduling::Distributed);
        let servers = vec![server("a").on("n1").ready().of("lobby"), server("b").on("n1").ready(), spread];
        let seen = stands(&world(now, servers), &Fetched::default(), now);
        assert_eq!(seen, ["n1 asks Some([Some(\"uid-lobby\"), None, None])", "n2 asks Some([])"]);
        let session = vec![server("a").on("n1").state(State::Allocated).of("lobby")];
        assert_eq!(stands(&world(now, session), &Fetched::default(), now)[0], "n1 asks None");
    }

    #[test]
    fn how_a_node_stands_follows_our_word_and_its_agent() {
        let now = Instant::now();
        let table: [(&str, Option<&str>, NodePhase, Option<&str>, bool, Option<&str>); 11] = [
            ("nothing is asked", None, NodePhase::Active, None, false, Some("open")),
            ("just told", Some("t"), NodePhase::Active, Some("t"), false, Some("spare")),
            ("another question", Some("s"), NodePhase::Active, Some("t"), false, Some("stale")),
            ("in use again", Some("t"), NodePhase::Active, None, false, Some("stale")),
            ("at rest", Some("t"), NodePhase::Idle, None, false, Some("spare")),
            ("its agent starts", Some("t"), NodePhase::Starting, None, false, Some("spare")),
            ("closed", Some("t"), NodePhase::Cordoned, None, false, Some("stale")),
            ("being emptied", Some("t"), NodePhase::Draining, None, false, Some("stale")),
            ("fetched", None, NodePhase::Idle, None, true, Some("returns")),
            ("claimed", None, NodePhase::Starting, None, true, Some("returns")),
            ("too slow", None, NodePhase::Idle, None, false, None),
        ];
        for (name, word, phase, idle_since, is_fetched, expected) in table {
            let mut world = world(now, Vec::new());
            world.cluster.lose_game_node("n2");
            let said = GameNodeStatus { phase, idle_since: idle_since.map(str::to_owned), ..agent("n1") };
            let said = GameNodeStatus { protection: Protection::Protected, ..said };
            world.cluster.put_game_node("n1", said);
            world.hear_word("n1", word.map(str::to_owned));
            let fetched = is_fetched.then(|| ("n1".to_owned(), now)).into_iter().collect();
            let expected: Vec<_> = expected.map(|stand| format!("n1 {stand}")).into_iter().collect();
            assert_eq!(stands(&world, &fetched, now), expected, "{name}");
        }
        let mut silent = world(now, Vec::new());
        silent.hear_word("n1", Some("t".to_owned()));
        let later = now + Duration::from_secs(3600);
        assert!(stands(&silent, &Fetched::default(), later).is_empty(), "nobody would hear it");
    }
}
