//! Events of allocations, on the game server that was allocated.

use berth_api::events::EventReason;
use berth_api::game_server::GameServer;
use berth_runtime::announce::Announcement;
use kube::Resource as _;

/// Who speaks, in the words that tools for `agones.dev/v1` know.
const COMPONENT: &str = "GameServerAllocation-Allocator";

/// Tells of allocations.
#[derive(Clone, Debug)]
pub struct Announcer(berth_runtime::announce::Announcer);

impl Announcer {
    /// Tells them through this one.
    pub fn new(announcer: berth_runtime::announce::Announcer) -> Self {
        Self(announcer)
    }

    /// Tells something of a server, soon.
    pub fn say(&self, server: &GameServer, reason: EventReason, message: String) {
        self.0.say(Announcement {
            about: server.object_ref(&()),
            component: COMPONENT,
            is_warning: reason.is_warning(),
            reason: reason.as_str(),
            message,
        });
    }
}
