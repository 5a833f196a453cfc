//! Everybody but the agent: games and their players, an allocator that knows nothing of drains, the sidecars of another
//! system; and who counts what became of the sessions.

use std::sync::Arc;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::{Change, Sequence};
use berth_api::names;
use jiff::Timestamp;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use super::{Agent, Event, Make, ORDERED_AT, World, asked, objects};
use crate::drain::plan::OurTaint;
use crate::node::NodeFacts;

impl World {
    /// What a round begins with, and what will come whatever happens.
    pub(super) fn people(&mut self) {
        for number in 0..self.rng.random_range(3..=5) {
            let name = format!("s{number}");
            let (state, until) = match self.rng.random_range(0..20) {
                0..10 => (State::Ready, None),
                10..16 => (State::Scheduled, None),
                16..18 => (State::Allocated, None),
                _ => (State::Reserved, Some(self.rng.random_range(ORDERED_AT - 100..=ORDERED_AT + 3_000))),
            };
            let until = until.and_then(|until| Timestamp::from_millisecond(i64::try_from(until).ok()?).ok());
            self.api.add(&name, objects::server(&name, state, until), objects::pod(&name, self.make));
            self.allocator.insert(name.clone(), Arc::clone(&self.api.servers[&name]));
            self.evictor.see_pod(&name, self.api.pods.get(&name).cloned());
            if state == State::Scheduled {
                let time = self.rng.random_range(ORDERED_AT - 60..=ORDERED_AT + 200);
                self.push(time, Event::GameIsReady { name: name.clone() });
            }
            if state == State::Allocated {
                self.may_end(&name);
            }
            if self.rng.random_ratio(1, 3) {
                let time = self.rng.random_range(ORDERED_AT..=ORDERED_AT + 700);
                self.push(time, Event::PodIsTouched { name });
            }
        }
        self.rise_at_first();
        self.push(ORDERED_AT, Event::Order);
        for number in 0..9 {
            let latest = if number < 6 { 300 } else { 3_000 };
            let time = self.rng.random_range(ORDERED_AT - 100..=ORDERED_AT + latest);
            self.push(time, Event::Allocate);
        }
        for _ in 0..2 {
            let time = self.rng.random_range(ORDERED_AT - 100..=ORDERED_AT + 5_000);
            self.push(time, Event::NodeIsTouched);
        }
        if self.rng.random_ratio(1, 3) {
            let dies = self.rng.random_range(ORDERED_AT - 900..=ORDERED_AT + 4_000);
            let away = self.rng.random_range(100..=2_500);
            self.push(dies, Event::Die);
            self.push(dies + away, Event::Rise);
            self.tally.deaths += 1;
        }
    }

    /// The agent that has been there for long.
    fn rise_at_first(&mut self) {
        let agent = Agent::new(self.order, objects::identity(), &self.api.node, None, self.time());
        self.agent = Some(agent);
        self.adopt(self.life);
    }

    pub(super) fn inform_allocator(&mut self, name: String, server: Option<Arc<GameServer>>) {
        match server {
            Some(server) => drop(self.allocator.insert(name, server)),
            None => drop(self.allocator.remove(&name)),
        }
    }

    pub(super) fn allocate(&mut self) {
        let ready: Vec<_> = self.allocator.iter().filter(|(_, server)| is_ready(server)).collect();
        let Some((name, server)) = ready.choose(&mut self.rng) else { return };
        let (name, version) = ((*name).clone(), server.metadata.resource_version.clone());
        self.send(Event::Allocates { name, version });
    }

    /// A write under the version that the allocator knew.
    pub(super) fn write_allocation(&mut self, name: &str, version: Option<&str>) {
        let body = json!({
            "metadata": {
                "resourceVersion": version,
                "annotations": { names::LAST_ALLOCATED_ANNOTATION: self.time().to_string() },
            },
            "status": { "state": State::Allocated },
        });
        if self.api.patch_server(name, &body).is_ok() {
            self.over.remove(name);
            self.publish_server(name);
            let is_alive =
                self.api.pods.get(name).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
            if !is_alive {
                self.lose(name, "began on a pod that ends");
            }
            self.may_end(name);
            return;
        }
        let server = self.api.servers.get(name);
        let is_deleted = server.is_none_or(|server| server.metadata.deletion_timestamp.is_some());
        if is_deleted && !self.over.contains(name) {
            self.tally.delete_first += 1;
        }
    }

    fn may_end(&mut self, name: &str) {
        if self.rng.random_ratio(3, 10) {
            let time = self.now.max(ORDERED_AT - 100) + self.rng.random_range(100..=6_000);
            self.push(time, Event::SessionEnds { name: name.to_owned() });
        }
    }

    pub(super) fn game_is_ready(&mut self, name: &str) {
        if self.make == Make::Agones {
            // Some versions of the other system ask for it, with some it is done.
            let state = if self.rng.random() { State::Ready } else { State::RequestReady };
            self.write_state(name, State::Scheduled, state);
        } else {
            self.ask(name, Change::Ready);
        }
    }

    /// The game has had enough, or takes another session.
    pub(super) fn end_session(&mut self, name: &str) {
        if !self.has_session(name) {
            return;
        }
        let takes_another = self.rng.random_ratio(2, 5);
        self.over.insert(name.to_owned());
        self.tally.sessions += 1;
        match (self.make, takes_another) {
            (Make::Agones, true) => self.write_state(name, State::Allocated, State::Ready),
            (Make::Agones, false) => self.write_state(name, State::Allocated, State::Shutdown),
            (Make::Berth | Make::Bare, true) => self.ask(name, Change::Ready),
            (Make::Berth | Make::Bare, false) => self.ask(name, Change::Shutdown),
        }
    }

    /// A sidecar that reads, and writes what it has read.
    fn write_state(&mut self, name: &str, from: State, to: State) {
        let Some(server) = self.api.servers.get(name) else { return };
        if server.state() != Some(from) || server.metadata.deletion_timestamp.is_some() {
            return;
        }
        if self.api.patch_server(name, &json!({ "status": { "state": to } })).is_ok() {
            self.publish_server(name);
        }
    }

    fn ask(&mut self, name: &str, change: Change) {
        let Some(server) = self.api.servers.get(name) else { return };
        let asked = asked(change, server);
        let all = self.asked.entry(name.to_owned()).or_default();
        let sequence = Sequence(u64::try_from(all.len()).expect("few") + 1);
        all.push((sequence, asked.clone()));
        let life = self.life;
        if let Some(worker) = self.living(life).and_then(|agent| agent.workers.get_mut(name)) {
            worker.note_asked(sequence, asked);
            self.turn_worker(life, name);
        }
    }

    /// Whether players are on it who have not had enough.
    pub(super) fn has_session(&self, name: &str) -> bool {
        let state = self.api.servers.get(name).and_then(|server| server.state());
        state.is_some_and(State::is_protected) && !self.over.contains(name)
    }

    pub(super) fn lose(&mut self, name: &str, how: &str) {
        let told = format!("{name} {how} after {} ms", self.now);
        self.losses.entry(name.to_owned()).or_insert(told);
    }

    /// What is left in the end.
    pub(super) fn judge(&mut self, seed: u64) {
        let node = NodeFacts::read(&self.api.node);
        let mut unfinished = Vec::new();
        if !node.has_taint(OurTaint::Draining.key()) {
            unfinished.push("the Node has no taint".to_owned());
        }
        for (name, server) in &self.api.servers {
            if self.has_session(name) {
                self.tally.sessions += 1;
                let pod = self.api.pods.get(name);
                let endures = pod.map(|pod| crate::pods::endures(pod, OurTaint::Draining.key()));
                if endures != Some(crate::pods::Endures::Forever) {
                    unfinished.push(format!("the session on {name} does not tolerate the taint"));
                }
            } else {
                unfinished.push(format!("{name} is still there, {:?}", server.state()));
            }
        }
        self.tally.unfinished = unfinished.into_iter().map(|what| format!("seed {seed}: {what}")).collect();
        self.tally.lost = self.losses.values().map(|loss| format!("seed {seed}: {loss}")).collect();
    }
}

/// Whether an allocator may take it.
pub(super) fn is_ready(server: &GameServer) -> bool {
    server.state() == Some(State::Ready) && server.metadata.deletion_timestamp.is_none()
}
