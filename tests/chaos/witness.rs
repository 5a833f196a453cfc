//! The witness: follows every version of every server and pod, and says at once what may never be.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::PLACEHOLDER_LABEL;
use berth_stories::harbour::Harbour;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};

use super::truth::ORDERED;

/// The annotation that a game sets to one number after the other.
pub(crate) const CHATTER: &str = "agones.dev/sdk-chatter";

/// What was seen.
pub(crate) struct Witness {
    servers: Api<GameServer>,
    pods: Api<Pod>,
    /// UIDs of the pods that each server, by UID, ever had, but for those that kubelet was ordered to refuse.
    pods_of: BTreeMap<String, BTreeSet<String>>,
    /// UIDs of pods that kubelet was ordered to refuse.
    refused: BTreeSet<String>,
    /// What the game of each server said last, as the server shows it.
    pub(crate) heard: BTreeMap<String, u64>,
    /// Names of servers that were Allocated.
    allocated: BTreeSet<String>,
}

impl Witness {
    pub(crate) fn new(harbour: &Harbour) -> Self {
        Self {
            servers: harbour.servers(),
            pods: harbour.pods(),
            pods_of: BTreeMap::new(),
            refused: BTreeSet::new(),
            heard: BTreeMap::new(),
            allocated: BTreeSet::new(),
        }
    }

    /// Looks on until something is wrong.
    pub(crate) async fn look_on(&mut self) -> anyhow::Error {
        let everything = watcher::Config::default;
        let mut servers = watcher::watcher(self.servers.clone(), everything()).boxed();
        let mut pods = watcher::watcher(self.pods.clone(), everything()).boxed();
        loop {
            let looked = tokio::select! {
                Some(event) = servers.next() => match event {
                    Ok(Event::Apply(server) | Event::InitApply(server)) => self.see_server(&server),
                    Ok(Event::Init | Event::InitDone | Event::Delete(_)) | Err(_) => Ok(()),
                },
                Some(event) = pods.next() => match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => self.see_pod(&pod),
                    Ok(Event::Init | Event::InitDone | Event::Delete(_)) | Err(_) => Ok(()),
                },
            };
            if let Err(error) = looked {
                return error;
            }
        }
    }

    fn see_pod(&mut self, pod: &Pod) -> anyhow::Result<()> {
        // A placeholder holds room for a server and is no pod of it.
        let is_game = !pod.labels().contains_key(PLACEHOLDER_LABEL);
        let owner = pod.owner_references().iter().find(|owner| owner.kind == "GameServer" && is_game);
        let Some(owner) = owner else { return Ok(()) };
        let known = self.pods_of.entry(owner.uid.clone()).or_default();
        let uid = pod.uid().unwrap_or_default();
        if pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some(ORDERED) {
            known.remove(&uid);
            self.refused.insert(uid);
        } else if !self.refused.contains(&uid) {
            known.insert(uid);
        }
        anyhow::ensure!(known.len() <= 1, "{} has had more than one pod: {known:?}", pod.name_any());
        Ok(())
    }

    fn see_server(&mut self, server: &GameServer) -> anyhow::Result<()> {
        let (name, uid) = (server.name_any(), server.uid().unwrap_or_default());
        if let Some(said) = server.annotation(CHATTER).and_then(|text| text.parse().ok()) {
            let before = self.heard.insert(uid.clone(), said);
            anyhow::ensure!(
                before.is_none_or(|before| before <= said),
                "{name}: the game's change {before:?} was undone by an older one, {said}"
            );
        }
        // A session ends by its game, and then for good: nobody makes such a server Ready again.
        if server.state() == Some(State::Allocated) {
            self.allocated.insert(uid);
        } else if self.allocated.contains(&uid) {
            anyhow::ensure!(
                server.state() != Some(State::Ready) && server.state() != Some(State::Scheduled),
                "{name} was Allocated and is {:?} again",
                server.state()
            );
        }
        Ok(())
    }
}
