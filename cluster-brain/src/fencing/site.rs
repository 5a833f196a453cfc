//! Where a server is, as far as it matters to what becomes of it. Pure.

use berth_api::names;
use berth_api::node_lease::HandOver;

use super::Standing;
use crate::stores::{NodeRecord, Server, World};

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// On no node.
    Nowhere,
    /// On a node whose agent acts for it.
    Live,
    /// On a node of which nothing certain is known.
    Unsure,
    /// On a node for which nobody acts.
    Lapsed {
        /// Nor can a call of its agent still be on its way.
        is_over: bool,
    },
    /// What ran on the node does not run any more, or is given up.
    Dead(Death),
}

/// Why what ran on a node is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The Node is gone.
    Gone,
    /// The node has booted again, or is another of the same name.
    Rebooted,
    /// It was silent for too long.
    Silent,
}

impl Death {
    /// A word for programs, and a sentence for people.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Gone => ("NodeGone", "its node is gone"),
            Self::Rebooted => ("NodeRebooted", "its node has booted again, or is another of the same name"),
            Self::Silent => ("NodeSilent", "agent and kubelet of its node have been silent for too long"),
        }
    }
}

impl Site {
    /// Where a server is.
    pub(crate) fn of(server: &Server, world: &World) -> Self {
        let Some(node) = server.node.as_deref() else { return Self::Nowhere };
        let is_other = || {
            let record = world.cluster.nodes.get(node);
            record.is_some_and(|record| is_other_boot(server, record))
        };
        match world.cluster.standing(node) {
            Standing::Live => Self::Live,
            Standing::Gone => Self::Dead(Death::Gone),
            Standing::Expired => Self::Dead(Death::Silent),
            Standing::Held | Standing::Lapsed { .. } if is_other() => Self::Dead(Death::Rebooted),
            Standing::Lapsed { is_over } => Self::Lapsed { is_over },
            Standing::Unsure | Standing::Held => Self::Unsure,
        }
    }
}

fn is_other_boot(server: &Server, record: &NodeRecord) -> bool {
    let annotation = server.annotations.get(names::LEASE_ANNOTATION);
    let Some(Ok(given)) = annotation.map(|text| HandOver::from_annotation(text)) else { return false };
    let differs = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
    differs(&given.node_uid, &record.uid) || differs(&given.boot_id, &record.boot_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, server};

    #[test]
    fn a_node_that_booted_again_has_no_sessions_of_its_last_boot() {
        let given = HandOver::new("n1", "uid-n1", "boot-1").to_annotation();
        let placed = server("a").ready().on("n1").annotation(names::LEASE_ANNOTATION, &given).build();
        let lapsed = Standing::Lapsed { is_over: false };
        let rows = [
            ("the same boot", Standing::Held, "uid-n1", "boot-1", Site::Unsure),
            ("the same boot, lapsed", lapsed, "uid-n1", "boot-1", Site::Lapsed { is_over: false }),
            ("another boot", lapsed, "uid-n1", "boot-2", Site::Dead(Death::Rebooted)),
            ("another node", Standing::Held, "uid-n2", "boot-1", Site::Dead(Death::Rebooted)),
            ("a boot that nobody tells", lapsed, "uid-n1", "", Site::Lapsed { is_over: false }),
            ("its agent sees to it", Standing::Live, "uid-n1", "boot-2", Site::Live),
            ("given up", Standing::Expired, "uid-n1", "boot-1", Site::Dead(Death::Silent)),
            ("not judged", Standing::Unsure, "uid-n1", "boot-2", Site::Unsure),
        ];
        for (name, standing, uid, boot_id, expected) in rows {
            let mut world = World::default();
            let record = NodeRecord { uid: uid.to_owned(), boot_id: boot_id.to_owned(), ..node("n1") };
            world.cluster.put_node("n1", record);
            world.cluster.standings.insert("n1".to_owned(), standing);
            assert_eq!(Site::of(&placed, &world), expected, "{name}");
        }
        assert_eq!(Site::of(&placed, &World::default()), Site::Unsure, "nothing was judged yet");
        assert_eq!(Site::of(&server("a").build(), &World::default()), Site::Nowhere);
    }
}
