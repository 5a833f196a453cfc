//! The placeholders of servers that wait: asked for, watched, and given back.

use std::sync::Arc;
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_runtime::clock::Instant;
use berth_runtime::kube_client::Class;
use k8s_openapi::api::core::v1::Pod;
use tracing::info;

use super::placeholder::{Trap, build};
use super::reconciler::PlacementReconciler;
use super::room::{Held, Way};
use crate::effects::Effect;
use crate::stores::{Key, Placeholder, Server};
use crate::writes::WriteError;

impl PlacementReconciler {
    /// The placeholder of a server.
    pub(super) fn placeholder_of(&self, server: &Server) -> Option<Arc<Placeholder>> {
        let all = self.stores.read(|world| world.placeholders_for(&server.key));
        all.into_iter().find(|placeholder| placeholder.server_uid == server.uid)
    }

    /// The placeholder, as a decision sees it.
    pub(super) fn held<'a>(&self, server: &Server, placeholder: &'a Placeholder) -> Held<'a> {
        let Some(node) = &placeholder.node else {
            return Held { placeholder, landed_for: Duration::ZERO, is_cordoned: false };
        };
        let landed_for = self.memory().landed_for(server, &placeholder.uid, Instant::now());
        let is_cordoned =
            self.stores.read(|world| world.cluster.nodes.get(node).is_some_and(|record| record.is_cordoned));
        Held { placeholder, landed_for, is_cordoned }
    }

    /// Does what is to be done about the room of a server; gives how long to wait at most.
    pub(super) async fn see_to_room(
        &self,
        server: &Server,
        way: Way,
    ) -> Result<Option<Duration>, WriteError> {
        match way {
            Way::Wait(wait) => Ok(wait),
            // It goes there in the turn that found it.
            Way::To(_) => Ok(None),
            Way::Withdraw => {
                if let Some(node) =
                    self.placeholder_of(server).and_then(|placeholder| placeholder.node.clone())
                {
                    info!(game_server = %server.key, node, "room on a node that does not take the server");
                    self.memory().note_useless(server, &node);
                }
                self.give_room_back(&server.key, None).await?;
                Ok(None)
            }
            Way::Ask { mut apart_from } => {
                apart_from.extend(self.memory().useless(server));
                self.ask_for_room(server, apart_from).await?;
                Ok(None)
            }
        }
    }

    async fn ask_for_room(&self, server: &Server, apart_from: Vec<String>) -> Result<(), WriteError> {
        let Some(common) = &self.placeholders else { return Ok(()) };
        // The small form lacks the template.
        let read = self.writer.get::<GameServer>(&server.key).await?;
        let Some(object) = read.filter(|object| object.metadata.uid.as_deref() == Some(&server.uid)) else {
            return Ok(());
        };
        let traps = self.traps(apart_from);
        let Some(pod) = build(&object, common, &traps) else { return Ok(()) };
        let key = Key::of(&pod.metadata);
        let made = match self.writer.create(Effect::AskForRoom, &key, &pod).await {
            Ok(made) => made,
            // An earlier one of ours that the watch has not shown yet, or shows as gone in a moment.
            Err(error) if error.class() == Some(Class::AlreadyExists) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.metrics.asked.inc();
        info!(game_server = %server.key, placeholder = key.name, "asked for room");
        if let Some(placeholder) = Placeholder::read(&made) {
            self.stores.change(|world, _| {
                let change = world.placeholders.created(placeholder);
                world.note_placeholder(change);
            });
        }
        Ok(())
    }

    fn traps(&self, mut nodes: Vec<String>) -> Vec<Trap> {
        nodes.sort_unstable();
        nodes.dedup();
        let host_name = |node: &str| {
            self.stores.read(|world| {
                let record = world.cluster.nodes.get(node)?;
                record.labels.get("kubernetes.io/hostname").cloned()
            })
        };
        nodes.into_iter().map(|node| Trap { host_name: host_name(&node), node }).collect()
    }

    /// Removes the placeholders of a server, but for that of the server with this UID.
    pub(super) async fn give_room_back(&self, server: &Key, but_of: Option<&str>) -> Result<(), WriteError> {
        let all = self.stores.read(|world| world.placeholders_for(server));
        for one in all.iter().filter(|one| !one.is_ending && but_of != Some(one.server_uid.as_str())) {
            self.writer.remove::<Pod>(Effect::GiveRoomBack, &one.key, &one.uid).await?;
            self.stores.change(|world, _| {
                let change = world.placeholders.gone(&one.key, Some(&one.uid));
                world.note_placeholder(change);
            });
        }
        Ok(())
    }
}
