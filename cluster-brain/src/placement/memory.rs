//! What is remembered of servers on their way: what was said of them, and what nodes said that handed them back. Pure.
//!
//! Only a courtesy rests on it: a fresh process says a little less.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use berth_api::node_lease::Returned;
use berth_runtime::clock::Instant;

use super::place::list;
use crate::stores::{Key, Server};

/// How often the reason why a server waits may be written anew: with each node that changes there is another.
const AGAIN: Duration = Duration::from_secs(10);

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    servers: HashMap<Key, Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    uid: String,
    said: Option<Instant>,
    is_forbidden_told: bool,
    returned: Vec<(String, String)>,
    /// The placeholder that was seen on a node, by UID, and since when.
    landed: Option<(String, Instant)>,
    /// Nodes on which a placeholder was of no use.
    useless: BTreeSet<String>,
}

impl Memory {
    fn of(&mut self, server: &Server) -> &mut Remembered {
        let remembered = self.servers.entry(server.key.clone()).or_default();
        if remembered.uid != server.uid {
            *remembered = Remembered { uid: server.uid.clone(), ..Remembered::default() };
        }
        remembered
    }

    /// The server is gone, or on its way no more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.servers.remove(key);
    }

    /// How long to wait before its reason may be written anew; nothing when it may be, and then it counts as written.
    pub(super) fn wait(&mut self, server: &Server, now: Instant) -> Option<Duration> {
        let remembered = self.of(server);
        let left = remembered.said.and_then(|said| AGAIN.checked_sub(now.saturating_duration_since(said)));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Some(left);
        }
        remembered.said = Some(now);
        None
    }

    /// Whether to tell that its namespace is not enabled: once.
    pub(super) fn tells_forbidden(&mut self, server: &Server) -> bool {
        !std::mem::replace(&mut self.of(server).is_forbidden_told, true)
    }

    /// How long its placeholder has been seen on a node.
    pub(super) fn landed_for(&mut self, server: &Server, placeholder: &str, now: Instant) -> Duration {
        let landed = &mut self.of(server).landed;
        if landed.as_ref().is_none_or(|(uid, _)| uid != placeholder) {
            *landed = Some((placeholder.to_owned(), now));
        }
        landed.as_ref().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
    }

    /// A placeholder was of no use on this node.
    pub(super) fn note_useless(&mut self, server: &Server, node: &str) {
        self.of(server).useless.insert(node.to_owned());
    }

    /// Nodes on which placeholders were of no use.
    pub(super) fn useless(&mut self, server: &Server) -> Vec<String> {
        self.of(server).useless.iter().cloned().collect()
    }

    /// A node has handed it back.
    pub(super) fn note_returned(&mut self, server: &Server, returned: &Returned) {
        let said = (returned.node.clone(), returned.reason.clone());
        let remembered = self.of(server);
        if !remembered.returned.contains(&said) {
            remembered.returned.push(said);
        }
    }

    /// What nodes said that handed it back, those with one reason together.
    pub(super) fn told_by_nodes(&mut self, server: &Server) -> String {
        let returned = &self.of(server).returned;
        let mut reasons: Vec<&str> = Vec::new();
        for (_, reason) in returned {
            if !reasons.contains(&reason.as_str()) {
                reasons.push(reason);
            }
        }
        let of_reason = |reason: &str| -> Vec<&str> {
            let same = returned.iter().filter(|(_, other)| other == reason);
            let mut nodes: Vec<&str> = same.map(|(node, _)| node.as_str()).collect();
            nodes.sort_unstable();
            nodes
        };
        let sentences = reasons.iter().map(|reason| format!("{} said: {reason}", list(&of_reason(reason))));
        sentences.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;

    fn returned(node: &str, reason: &str) -> Returned {
        Returned { version: 1, node: node.to_owned(), reason: reason.to_owned(), times: 1 }
    }

    #[test]
    fn nodes_with_one_reason_are_named_together() {
        let server = server("a").build();
        let mut memory = Memory::default();
        for _ in 0..2 {
            memory.note_returned(&server, &returned("n1", "port 7777/UDP is taken"));
        }
        memory.note_returned(&server, &returned("n2", "port 7777/UDP is taken"));
        assert_eq!(memory.told_by_nodes(&server), "n1 and n2 said: port 7777/UDP is taken");
        memory.note_returned(&server, &returned("n0", "port 7777/UDP is taken"));
        assert_eq!(memory.told_by_nodes(&server), "n0, n1 and n2 said: port 7777/UDP is taken", "by name");
        memory.note_returned(&server, &returned("n3", "no room"));
        assert_eq!(
            memory.told_by_nodes(&server),
            "n0, n1 and n2 said: port 7777/UDP is taken; n3 said: no room"
        );
        memory.forget(&server.key);
        assert_eq!(memory.told_by_nodes(&server), "");
    }

    #[test]
    fn a_reason_is_written_anew_after_a_while_and_for_another_server_at_once() {
        let one = server("a").build();
        let now = Instant::now();
        let mut memory = Memory::default();
        assert_eq!(memory.wait(&one, now), None);
        assert_eq!(memory.wait(&one, now + Duration::from_secs(4)), Some(Duration::from_secs(6)));
        assert_eq!(memory.wait(&one, now + AGAIN), None);
        let other = Server { uid: "another".to_owned(), ..one.clone() };
        assert_eq!(memory.wait(&other, now + AGAIN), None);
        assert!(memory.tells_forbidden(&other) && !memory.tells_forbidden(&other));
    }

    #[test]
    fn each_placeholder_lands_once() {
        let one = server("a").build();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut memory = Memory::default();
        assert_eq!(memory.landed_for(&one, "p", now), Duration::ZERO);
        assert_eq!(memory.landed_for(&one, "p", now + second), second);
        assert_eq!(memory.landed_for(&one, "q", now + second), Duration::ZERO);
        memory.note_useless(&one, "n1");
        memory.note_useless(&one, "n1");
        assert_eq!(memory.useless(&one), ["n1"]);
    }
}
