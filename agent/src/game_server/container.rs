//! The game's container as this kernel sees it: that it is here, and that it has ended.

use std::sync::Arc;
use std::time::Duration;

use berth_runtime::clock::Instant;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::host::{Exit, FoundContainer, Host, HostError};

/// Time between two looks for a container that kubelet says runs and that is not here.
const PAUSE: Duration = Duration::from_secs(2);
/// Looks in vain after which it is believed: kubelet may be late to say that a container has ended.
const LOOKS: u32 = 4;

/// Runtimes whose containers are known by the cgroups of their processes: only of these does it mean something that a
/// container has none.
const RUNTIMES: [&str; 3] = ["containerd", "cri-o", "docker"];

/// The container that is watched.
pub(super) struct Container {
    /// Its id, as kubelet writes it; empty before there was one.
    id: String,
    stage: Stage,
}

enum Stage {
    /// Nothing is known, or all there is to know.
    Idle,
    Looking {
        looks: u32,
        looking: BoxFuture<'static, Result<Option<FoundContainer>, HostError>>,
    },
    Resting {
        looks: u32,
        until: Instant,
    },
    Watching {
        exit: BoxFuture<'static, Exit>,
    },
}

/// What is new of a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is here.
    IsHere,
    /// It runs, as kubelet says, and no process on this kernel is its.
    IsNowhere,
    /// It is looked for again.
    NotYet,
    /// Its first process has ended.
    Ended {
        /// Its id, as kubelet writes it.
        id: String,
        /// How.
        exit: Exit,
    },
}

impl Container {
    pub(super) fn new() -> Self {
        Self { id: String::new(), stage: Stage::Idle }
    }

    /// Watches a container that kubelet says runs. One that is watched, or has ended, is not looked for again.
    pub(super) fn watch<H: Host>(&mut self, host: &Arc<H>, pod_uid: &str, id: &str, now: Instant) {
        let Some((runtime, bare)) = id.split_once("://") else { return };
        if !RUNTIMES.contains(&runtime) {
            return;
        }
        let looks = match &self.stage {
            _ if self.id != id => 0,
            Stage::Resting { looks, until } if now >= *until => *looks,
            Stage::Idle | Stage::Looking { .. } | Stage::Resting { .. } | Stage::Watching { .. } => return,
        };
        id.clone_into(&mut self.id);
        let looking = host.find_container(pod_uid, bare).boxed();
        self.stage = Stage::Looking { looks, looking };
    }

    /// Nothing runs that could be watched. The end of what is watched is still news.
    pub(super) fn stop_looking(&mut self) {
        if matches!(self.stage, Stage::Looking { .. } | Stage::Resting { .. }) {
            *self = Self::new();
        }
    }

    /// When to look again, where that is ahead.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Resting { until, .. } => Some(*until),
            Stage::Idle | Stage::Looking { .. } | Stage::Watching { .. } => None,
        }
    }

    /// Waits for news; never ends where there can be none. Safe to drop and call again.
    pub(super) async fn news(&mut self, now: impl Fn() -> Instant) -> News {
        match &mut self.stage {
            Stage::Idle | Stage::Resting { .. } => std::future::pending().await,
            Stage::Looking { looks, looking } => {
                let found = looking.await;
                let looks = *looks;
                match found {
                    Ok(Some(found)) => {
                        self.stage = Stage::Watching { exit: found.exit };
                        News::IsHere
                    }
                    Ok(None) if looks + 1 >= LOOKS => {
                        self.stage = Stage::Idle;
                        News::IsNowhere
                    }
                    Ok(None) => {
                        self.stage = Stage::Resting { looks: looks + 1, until: now() + PAUSE };
                        News::NotYet
                    }
                    Err(error) => {
                        tracing::debug!(error = %berth_runtime::error::chain(&error), "could not look for a container");
                        self.stage = Stage::Resting { looks, until: now() + PAUSE };
                        News::NotYet
                    }
                }
            }
            Stage::Watching { exit } => {
                let exit = exit.await;
                self.stage = Stage::Idle;
                News::Ended { id: self.id.clone(), exit }
            }
        }
    }
}
