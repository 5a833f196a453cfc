//! The update of `berth-sdk`: its pods hold the connections of games, so each is replaced when its node has no server.
//!
//! Its DaemonSet replaces no pod by itself. A node whose pod is of an older revision gets servers only where no other node
//! takes them, so that it empties as its servers end; once it has none its pod is deleted, one node at a time, and the
//! node is closed until the new pod is ready. A new revision that does not become ready goes no further. Nothing is ended
//! for an update.

mod decide;
mod keeper;
mod metrics;

pub(crate) use keeper::SdkUpdater;
pub(crate) use metrics::SdkUpdateMetrics;
