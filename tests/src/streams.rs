//! A server whose game is a client in another language, beside a pod that does nothing: whether its two streams, opened
//! once, are still of use.

use anyhow::Context as _;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{Node, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::game::{game_server, pod};
use crate::resources::{apply_strictly, resource};
use crate::sdk_client::{Language, SdkClient};
use crate::world::{IDLE, STEP, Stage};

/// A server that is Ready, its pod, and the client with the open streams.
pub struct Open {
    /// The client.
    pub client: SdkClient,
    name: String,
    server: GameServer,
    pod: Pod,
}

impl Open {
    /// Makes one on this node.
    ///
    /// # Errors
    /// It does not become Ready.
    pub async fn on(stage: &Stage, node: &Node, name: &str, language: Language) -> anyhow::Result<Self> {
        SdkClient::prepare(stage.cluster, language).await?;
        let api =
            Api::namespaced_with(stage.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let idle = json!([{
            "name": "game",
            "image": IDLE,
            "imagePullPolicy": "Never",
            "args": ["sleep", "86400"],
        }]);
        let mut template = pod(&idle, &json!([]));
        template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node.name() });
        // Late enough for the client to be started; then three missed pings of a second each are fatal.
        let spec = json!({
            "health": { "initialDelaySeconds": 60, "periodSeconds": 1, "failureThreshold": 3 },
            "template": template,
        });
        apply_strictly(&api, &game_server(name, &spec)).await?;
        stage.until_state(name, State::Scheduled).await?;
        let pod = stage.until_running(name).await?;
        let client = SdkClient::start(stage, &pod, language).await?;
        client.command("ready").await?;
        let server = stage.until_state(name, State::Ready).await?;
        Ok(Self { client, name: name.to_owned(), server, pod })
    }

    /// Waits until a label that is set now arrives on the open Watch, and an annotation of this value that the game had
    /// asked for is on the object.
    ///
    /// # Errors
    /// One of them does not in time.
    pub async fn is_useful(&self, stage: &Stage, value: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "story": value } } }));
        stage.game_servers().patch(&self.name, &PatchParams::default(), &patch).await?;
        self.client.until("the label on the open Watch", |seen| seen.label == value).await?;
        eventually(STEP, format!("the annotation of {} that was asked for", self.name), async || {
            let server = stage.game_servers().get(&self.name).await.map_err(|error| error.to_string())?;
            if server.annotation("agones.dev/sdk-story") == Some(value) {
                Ok(())
            } else {
                Err(format!("{:?}", server.metadata.annotations))
            }
        })
        .await?;
        Ok(())
    }

    /// Checks that the streams never broke, and that server and pod are the ones it began with.
    ///
    /// # Errors
    /// Something is otherwise.
    pub async fn is_as_it_began(&self, stage: &Stage) -> anyhow::Result<()> {
        self.client.goes_on().await?;
        self.client.was_never_cut_off().await?;
        let server = stage.until_state(&self.name, State::Ready).await?;
        anyhow::ensure!(server.metadata.uid == self.server.metadata.uid, "{} is another server", self.name);
        let pod = stage.pods().get_opt(&self.name).await?.context("its pod")?;
        anyhow::ensure!(pod.metadata.uid == self.pod.metadata.uid, "{} has had two pods", self.name);
        Ok(())
    }
}
