//! Two clusters on real nodes, shared by all stories of a test binary, which take turns on each: two nodes with Berth as
//! plain processes, which a story can kill at will, and one node with Berth installed from its manifests, as it ships.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use berth_dev::install::{Berth, BerthOptions, PodsOptions, enable_namespace, game_image, install_pods};
use berth_dev::{Cluster, ClusterOptions, Image, program_folder};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use rand::distr::{Alphanumeric, SampleString};
use tokio::runtime::Runtime;

use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;

/// Limit for one step of a story. Far above what a step takes: the machine may be busy with other things.
pub const STEP: Duration = Duration::from_secs(180);
/// Image of the example game.
pub const GAME: &str = "localhost/simple-udp:dev";
/// Image of a static busybox, for looking around in a pod.
pub const BUSYBOX: &str = "localhost/busybox:dev";
/// Image that does nothing for ever.
pub const IDLE: &str = "localhost/busybox:dev";

/// Host ports of every node in the range `voice`; the range `default` is as it ships.
pub const VOICE_PORTS: RangeInclusive<u16> = 9000..=9009;

/// Everything a story needs.
pub struct World {
    /// The cluster.
    pub cluster: Cluster,
    /// Berth in it.
    pub berth: Berth,
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads for the stories"));
static WORLD: LazyLock<World> =
    LazyLock::new(|| RUNTIME.block_on(World::make()).expect("a cluster with Berth"));
static SHIPPED: LazyLock<Cluster> =
    LazyLock::new(|| RUNTIME.block_on(ship()).expect("a cluster with Berth as it ships"));
/// Guard whose turn it is on each of the two.
static TURN: Mutex<()> = Mutex::new(());
static SHIPPED_TURN: Mutex<()> = Mutex::new(());

/// Tells one story. Stories take turns: each may break what it likes, if it mends it.
///
/// # Panics
/// The cluster does not start, or the story says so.
pub fn story<Told: Future<Output = anyhow::Result<()>>>(tell: impl FnOnce(&'static World) -> Told) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = &*WORLD;
    run(&world.cluster, tell(world));
}

/// Tells one story of Berth as it ships, on one node.
///
/// # Panics
/// As [`story`].
pub fn shipped_story<Told: Future<Output = anyhow::Result<()>>>(tell: impl FnOnce(&'static Cluster) -> Told) {
    let _turn = SHIPPED_TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cluster = &*SHIPPED;
    run(cluster, tell(cluster));
}

fn run(cluster: &Cluster, told: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = RUNTIME.block_on(told) {
        panic!("{error:?}\nlogs: {}", cluster.instance().folder().display());
    }
}

async fn ship() -> anyhow::Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::default() }).await?;
    import_images(&cluster).await?;
    install_pods(&cluster, &PodsOptions::default()).await?;
    Ok(cluster)
}

async fn import_images(cluster: &Cluster) -> anyhow::Result<()> {
    let images = tokio::task::spawn_blocking(|| {
        let busybox = Image::of_program(&PathBuf::from("/bin/busybox"), BUSYBOX)?;
        Ok::<_, berth_dev::ImageError>([game_image(&program_folder())?, busybox])
    })
    .await??;
    for image in &images {
        cluster.import(image).await?;
    }
    Ok(())
}

impl World {
    async fn make() -> anyhow::Result<Self> {
        let cluster = Cluster::start(ClusterOptions::default()).await?;
        import_images(&cluster).await?;
        let voice = format!("voice={}-{}", VOICE_PORTS.start(), VOICE_PORTS.end());
        let ranges = ["--port-range=default=7000-8000".to_owned(), format!("--port-range={voice}")];
        let options = BerthOptions { agent_flags: ranges.to_vec(), ..BerthOptions::default() };
        let berth = Berth::install(&cluster, &options).await?;
        Ok(Self { cluster, berth })
    }

    /// The API as an administrator.
    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// A namespace of this story's own.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn stage(&'static self, story: &str) -> anyhow::Result<Stage> {
        Stage::build(&self.cluster, story).await
    }
}

/// A namespace in which one story happens.
pub struct Stage {
    /// Where.
    pub cluster: &'static Cluster,
    /// Its name.
    pub namespace: String,
}

impl Stage {
    /// A namespace of this story's own.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn build(cluster: &'static Cluster, story: &str) -> anyhow::Result<Self> {
        let suffix = Alphanumeric.sample_string(&mut rand::rng(), 5).to_lowercase();
        let name = format!("{story}-{suffix}");
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(cluster.client()).create(&PostParams::default(), &namespace).await?;
        enable_namespace(&cluster.client(), &name).await?;
        Ok(Self { cluster, namespace: name })
    }

    /// The API as an administrator.
    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// Runs kubectl and gives back what it printed.
    ///
    /// # Errors
    /// It ends with another code than 0: what it said.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig_path()).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        anyhow::ensure!(
            output.status.success(),
            "kubectl: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    /// GameServers of the story.
    pub fn game_servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Fleets of the story.
    pub fn fleets(&self) -> Api<Fleet> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Pods of the story.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Every GameServer of the story.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn all_servers(&self) -> Result<Vec<GameServer>, String> {
        let listed = self.game_servers().list(&ListParams::default()).await;
        Ok(listed.map_err(|error| error.to_string())?.items)
    }

    /// Deletes every GameServer and Fleet of the story and waits until nothing of them is left.
    ///
    /// # Errors
    /// Something stays.
    pub async fn strike(&self) -> anyhow::Result<()> {
        delete_all(&self.fleets(), &DeleteParams::default()).await?;
        delete_all(&self.game_servers(), &DeleteParams::default()).await?;
        berth_dev::eventually(STEP, "an empty stage", async || {
            let servers = self.all_servers().await?.len();
            let pods = self
                .pods()
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?
                .items
                .len();
            if servers + pods == 0 { Ok(()) } else { Err(format!("{servers} game servers, {pods} pods")) }
        })
        .await?;
        Ok(())
    }
}

/// Deletes every object that an API reaches. It is asked again where it gives no answer: an API server cuts a request off
/// that takes it too long, and on a busy machine one that deletes many may.
///
/// # Errors
/// It refuses, time and again.
pub async fn delete_all<K>(api: &Api<K>, how: &DeleteParams) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let deleted = berth_dev::eventually(STEP, "everything to be deleted", async || {
        api.delete_collection(how, &ListParams::default()).await
    });
    deleted.await?;
    Ok(())
}
