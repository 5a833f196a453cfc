//! The loop of a simulated kubelet: one watch, and a life for each pod that it shows.
//!
//! All of it is on one thread. What the watch says of a pod goes to its life as the newest value; a life that lags sees
//! the last word only, as a kubelet does.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tracing::warn;

use super::admission::{Amounts, NodeFacts};
use super::book::Book;
use super::life::{Shared, live};
use super::quantity::milli;
use super::sandbox::{Groups, SandboxError};
use super::{Settings, SimulatedError, node};

type Lives = FuturesUnordered<LocalBoxFuture<'static, String>>;

pub(super) async fn run(settings: Settings) -> Result<Infallible, SimulatedError> {
    let client = connect(&settings).await?;
    let shared = Rc::new(share(&settings, client.clone()).await?);
    let pods = Api::<Pod>::all(client.clone());
    let selected = watcher::Config::default().fields(&format!("spec.nodeName={}", settings.node_name));
    let mut events = std::pin::pin!(watcher::watcher(pods, selected).default_backoff());
    let mut heart = std::pin::pin!(node::keep(client, &settings));
    let mut kubelet = Kubelet { shared, news: HashMap::new(), listed: HashSet::new(), lives: Lives::new() };
    loop {
        tokio::select! {
            biased;
            // First, so that a pod's newest state is known before anything more is done for it.
            event = events.next() => match event.ok_or(SimulatedError::WatchEnded)? {
                Ok(event) => kubelet.note(event),
                Err(error) => warn!(%error, "the watch of pods broke"),
            },
            Some(uid) = kubelet.lives.next() => {
                kubelet.news.remove(&uid);
            }
            never = &mut heart => match never {},
        }
    }
}

async fn connect(settings: &Settings) -> Result<Client, SimulatedError> {
    let unreadable = |source| SimulatedError::Kubeconfig { path: settings.kubeconfig.clone(), source };
    let kubeconfig = Kubeconfig::read_from(&settings.kubeconfig).map_err(unreadable)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(unreadable)?;
    // A watch is silent for as long as nothing happens.
    config.read_timeout = Some(Duration::from_secs(295));
    Client::try_from(config).map_err(SimulatedError::Client)
}

async fn share(settings: &Settings, client: Client) -> Result<Shared, SimulatedError> {
    let mut capacity = Amounts::new();
    for (name, value) in settings.capacity() {
        match milli(&value) {
            Some(amount) => _ = capacity.insert(name, amount),
            None => return Err(SimulatedError::Capacity { name, value }),
        }
    }
    let mut labels: std::collections::BTreeMap<_, _> = settings.labels.iter().cloned().collect();
    labels.insert("kubernetes.io/hostname".to_owned(), settings.node_name.clone());
    let facts = NodeFacts { name: settings.node_name.clone(), labels, capacity };
    let groups = Groups::below(&settings.cgroup_root);
    groups.clear().await.map_err(SimulatedError::Leftovers)?;
    let diary = OpenOptions::new().create(true).append(true).open(&settings.diary);
    let diary =
        diary.map_err(|source| SimulatedError::Leftovers(SandboxError::of_file(&settings.diary, source)))?;
    Ok(Shared {
        client,
        node: settings.node_address,
        groups,
        container_delay: Duration::from_millis(settings.container_delay),
        book: RefCell::new(Book::new(facts, settings.pod_network)),
        refusals: settings.refusals.clone(),
        diary: Rc::new(diary),
    })
}

struct Kubelet {
    shared: Rc<Shared>,
    /// What each living pod is told by.
    news: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    listed: HashSet<String>,
    lives: Lives,
}

impl Kubelet {
    fn note(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(pod.uid());
                self.see(pod);
            }
            Event::Apply(pod) => self.see(pod),
            Event::Delete(pod) => self.lose(&pod.uid().unwrap_or_default()),
            Event::InitDone => {
                let gone: Vec<String> =
                    self.news.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| self.lose(uid));
            }
        }
    }

    fn see(&mut self, pod: Pod) {
        let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
        if let Some(news) = self.news.get(&uid) {
            news.send_replace(Some(pod));
            return;
        }
        let (tell, news) = watch::channel(Some(Arc::clone(&pod)));
        self.news.insert(uid.clone(), tell);
        let life = live(Rc::clone(&self.shared), pod, news);
        self.lives.push(async move { life.map(|()| uid).await }.boxed_local());
    }

    fn lose(&self, uid: &str) {
        if let Some(news) = self.news.get(uid) {
            news.send_replace(None);
        }
    }
}
