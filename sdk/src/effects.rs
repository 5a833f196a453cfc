//! What `berth-sdk` does to the world outside of it: a name for each, so that its death at any of them can be tested.

use berth_api::link::ToAgent;

berth_runtime::effects! {
    /// Something that `berth-sdk` does.
    pub enum Effect of "sdk" {
        /// Open the journal.
        OpenJournal = "open_journal",
        /// Write to it.
        Commit = "commit",
        /// Answer a game whose change is on disk.
        Answer = "answer",
        /// Serve a listener.
        Serve = "serve",
        /// Say Hello to the agent.
        Hello = "hello",
        /// Hand listeners back to it.
        HandBack = "hand_back",
        /// Tell it that those were all.
        HandBackEnds = "hand_back_ends",
        /// Tell it a change.
        Change = "change",
        /// Tell it that a game has fallen silent, or pings again.
        Pings = "pings",
    }
}

impl From<&ToAgent> for Effect {
    fn from(frame: &ToAgent) -> Self {
        match frame {
            ToAgent::Hello { .. } => Self::Hello,
            ToAgent::HandBack { .. } => Self::HandBack,
            ToAgent::HandBackEnds => Self::HandBackEnds,
            ToAgent::Change { .. } => Self::Change,
            ToAgent::Pings { .. } => Self::Pings,
        }
    }
}
