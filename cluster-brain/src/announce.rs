//! Events of the brain: who speaks, and in which words.

use berth_api::events::EventReason;
use k8s_openapi::api::core::v1::ObjectReference;

/// Who speaks, in the words that tools for `agones.dev/v1` know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// About Fleets.
    Fleet,
    /// About sets.
    GameServerSet,
    /// About autoscalers.
    FleetAutoscaler,
    /// About the placing of servers.
    Placement,
}

impl Speaker {
    const fn component(self) -> &'static str {
        match self {
            Self::Fleet => "fleet-controller",
            Self::GameServerSet => "gameserverset-controller",
            Self::FleetAutoscaler => "fleetautoscaler-controller",
            Self::Placement => "berth-brain",
        }
    }
}

/// Something to tell.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    /// What it is about.
    pub(crate) about: ObjectReference,
    pub(crate) speaker: Speaker,
    pub(crate) reason: EventReason,
    pub(crate) message: String,
}

/// The end that tells.
#[derive(Clone, Debug)]
pub(crate) struct Announcer(berth_runtime::announce::Announcer);

impl Announcer {
    /// Tells through this one.
    pub(crate) fn new(announcer: berth_runtime::announce::Announcer) -> Self {
        Self(announcer)
    }

    /// Tells it, soon.
    pub(crate) fn say(&self, announcement: Announcement) {
        let Announcement { about, speaker, reason, message } = announcement;
        self.0.say(berth_runtime::announce::Announcement {
            about,
            component: speaker.component(),
            is_warning: reason.is_warning(),
            reason: reason.as_str(),
            message,
        });
    }
}
