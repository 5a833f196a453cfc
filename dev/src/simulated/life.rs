//! One pod's life on the node, from its admission to its last word.
//!
//! ```text
//!  refused ─────────────────────────────────┐
//!  admitted → ContainerCreating → Running → ended → deleted
//!                     (asked to end, evicted, exited)
//! ```
//!
//! Every write is repeated until the API server has taken it or knows no such pod.

use std::cell::RefCell;
use std::fs::File;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::admission::{Refusal, ordered};
use super::book::Book;
use super::diary::Diary;
use super::game::{Stage, play};
use super::sandbox::{Container, Groups, Place, Sandbox};
use super::script::{BAD_ARGUMENTS, ORDER, Order, Script};
use super::status::{Ending, Running, Writer};

/// The REST port of an SDK that nobody has moved, and the variable that says where it was moved to.
const SDK_PORT: (&str, u16) = ("AGONES_SDK_HTTP_PORT", 9358);
const AGAIN: Duration = Duration::from_millis(250);
const CALL_LIMIT: Duration = Duration::from_secs(10);
const DEFAULT_GRACE: i64 = 30;

/// What all pods of a node have in common.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) node: Ipv4Addr,
    pub(super) groups: Groups,
    pub(super) container_delay: Duration,
    pub(super) book: RefCell<Book>,
    pub(super) refusals: std::path::PathBuf,
    pub(super) diary: Rc<File>,
}

impl Shared {
    /// A refusal that somebody has ordered for the next pod, whichever it is.
    fn ordered_refusal(&self) -> Option<Refusal> {
        let text = std::fs::read_to_string(&self.refusals).ok()?;
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        // Moved into place, so that nobody reads half of it.
        let partial = self.refusals.with_extension("part");
        let kept = std::fs::write(&partial, rest).and_then(|()| std::fs::rename(&partial, &self.refusals));
        kept.ok()?;
        Some(first.trim()).filter(|reason| !reason.is_empty()).map(ordered)
    }
}

/// Newest version of a pod; none once it is gone.
pub(super) type News = watch::Receiver<Option<Arc<Pod>>>;

/// Lives one pod's life.
pub(super) async fn live(shared: Rc<Shared>, pod: Arc<Pod>, news: News) {
    let uid = pod.uid().unwrap_or_default();
    let namespace = pod.namespace().unwrap_or_default();
    let life = Life {
        api: Api::namespaced(shared.client.clone(), &namespace),
        name: pod.name_any(),
        diary: Diary::new(Rc::clone(&shared.diary), pod.name_any(), uid.clone()),
        writer: Writer::new(&pod, shared.node, Timestamp::now()),
        uid,
        seen: Instant::now(),
        shared,
        news,
    };
    life.run(&pod).await;
}

struct Life {
    shared: Rc<Shared>,
    api: Api<Pod>,
    name: String,
    uid: String,
    writer: Writer,
    diary: Diary,
    news: News,
    seen: Instant,
}

impl Life {
    async fn run(mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let is_new = phase.is_empty() || phase == "Pending";
        if phase == "Running" {
            // Its games ended with the process that played them.
            let nothing = Running { ids: Vec::new(), since: Timestamp::now(), restarts: 0 };
            self.write(self.writer.ended(&nothing, &Ending::Lost, Timestamp::now())).await;
        } else if is_new && pod.metadata.deletion_timestamp.is_none() {
            let admitted = match self.shared.ordered_refusal() {
                Some(refusal) => Err(refusal),
                None => self.shared.book.borrow_mut().admit(&self.uid, pod),
            };
            match admitted {
                Err(refusal) => {
                    info!(pod = self.name, reason = refusal.reason, "refused");
                    self.diary.note(&json!({ "act": "admission", "reason": refusal.reason }));
                    self.write(self.writer.refused(&refusal)).await;
                }
                Ok(()) => self.stay(pod).await,
            }
        }
        self.wait_for_deletion().await;
        self.delete().await;
    }

    /// Runs it, and frees what it held.
    async fn stay(&mut self, pod: &Pod) {
        let address = self.shared.book.borrow_mut().address();
        if let Some(address) = address {
            let sandbox = self.make_sandbox(address).await;
            self.run_in(pod, &sandbox).await;
            if let Err(error) = sandbox.end().await {
                warn!(pod = self.name, %error, "a sandbox stays");
            }
            self.shared.book.borrow_mut().give_back(address);
        }
        self.shared.book.borrow_mut().release(&self.uid);
    }

    /// Says that it is being made, and makes it.
    async fn make_sandbox(&self, address: Ipv4Addr) -> Sandbox {
        let told = self.write(self.writer.creating());
        let groups = self.shared.groups.clone();
        let place = || Place { groups: &groups, class: self.writer.class(), uid: &self.uid, address };
        let made = async {
            loop {
                match Sandbox::make(place()).await {
                    Ok(sandbox) => return sandbox,
                    Err(error) => warn!(pod = self.name, %error, "no sandbox"),
                }
                sleep(AGAIN).await;
            }
        };
        let ((), sandbox) = futures::join!(told, made);
        self.diary.note(&json!({ "act": "sandbox", "ms": millis(self.seen) }));
        sandbox
    }

    /// From the first container to the last.
    async fn run_in(&mut self, pod: &Pod, sandbox: &Sandbox) {
        let spec = pod.spec.clone().unwrap_or_default();
        let first = spec.containers.first();
        let arguments = first.and_then(|one| one.args.clone()).unwrap_or_default();
        let variables = first.and_then(|one| one.env.clone()).unwrap_or_default();
        let port = variables.iter().find(|one| one.name == SDK_PORT.0).and_then(|one| one.value.clone());
        let port = port.and_then(|port| port.parse().ok()).unwrap_or(SDK_PORT.1);
        let containers = spec.containers.len();
        let policy = spec.restart_policy.unwrap_or_else(|| "Always".to_owned());

        sleep(self.shared.container_delay).await;
        let mut restarts = 0;
        loop {
            let started = self.start(sandbox, containers).await;
            let ids = started.iter().map(|one| one.id.clone()).collect();
            let running = Running { ids, since: Timestamp::now(), restarts };
            let (give_order, order) = watch::channel(order_of(pod));
            let (ask, end) = watch::channel(false);
            let stage = Stage { door: sandbox.door(), port, diary: self.diary.clone(), order, end };
            let game = async {
                match Script::read(&arguments) {
                    Ok(script) => play(script, stage).await,
                    Err(argument) => {
                        warn!(pod = self.name, argument, "a game does not know an argument");
                        Ending::Exited(BAD_ARGUMENTS)
                    }
                }
            };
            let mut news = self.news.clone();
            let asked = self.pass_on(&mut news, &give_order, &ask);
            let told = async {
                self.write(self.writer.running(sandbox.address, &running)).await;
                self.diary.note(&json!({ "act": "running", "ms": millis(self.seen) }));
                std::future::pending::<()>().await;
            };
            let ending = tokio::select! {
                biased;
                ending = game => ending,
                () = asked => Ending::Lost,
                () = told => Ending::Lost,
            };
            self.diary.note(&json!({ "act": "ended", "code": ending.code() }));
            let code = match ending {
                Ending::Exited(code) => Some(code),
                Ending::Lost | Ending::Evicted => None,
            };
            for container in started {
                if let Err(error) = container.end(code).await {
                    warn!(pod = self.name, %error, "a container stays");
                }
            }
            let again = match policy.as_str() {
                "Always" => matches!(ending, Ending::Exited(_)),
                "OnFailure" => matches!(ending, Ending::Exited(code) if code != 0),
                _ => false,
            };
            if again && !is_leaving(&self.news) {
                restarts += 1;
                continue;
            }
            if self.news.borrow().is_some() {
                self.write(self.writer.ended(&running, &ending, Timestamp::now())).await;
            }
            return;
        }
    }

    /// Starts all containers of the pod.
    async fn start(&self, sandbox: &Sandbox, count: usize) -> Vec<Container> {
        let mut started = Vec::new();
        while started.len() < count {
            match sandbox.start_container().await {
                Ok(container) => started.push(container),
                Err(error) => {
                    warn!(pod = self.name, %error, "no container");
                    sleep(AGAIN).await;
                }
            }
        }
        started
    }

    /// Passes orders on to the game, and its end. Returns when the game has had all its time, or its pod is gone.
    async fn pass_on(
        &self,
        news: &mut News,
        order: &watch::Sender<Option<Order>>,
        end: &watch::Sender<bool>,
    ) {
        loop {
            let newest = news.borrow_and_update().clone();
            let Some(pod) = newest else { return };
            let wanted = order_of(&pod);
            order.send_if_modified(|known| {
                let differs = *known != wanted;
                known.clone_from(&wanted);
                differs
            });
            if pod.metadata.deletion_timestamp.is_some() {
                // There may be nobody to tell any more.
                let _ = end.send(true);
                let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
                let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
                if timeout(grace, gone(news)).await.is_err() {
                    info!(pod = self.name, "killed at the end of its grace");
                }
                return;
            }
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    async fn wait_for_deletion(&mut self) {
        // An error means that the watch has let go of the pod.
        let _ = self.news.wait_for(|news| is_leaving_now(news.as_deref())).await;
    }

    /// The last word: the object may go.
    async fn delete(&self) {
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        while self.news.borrow().is_some() {
            let deleted = timeout(CALL_LIMIT, self.api.delete(&self.name, &parameters)).await;
            if is_settled(&self.name, deleted.map(|answer| answer.map(drop))) {
                return;
            }
            sleep(AGAIN).await;
        }
    }

    async fn write(&self, status: Value) {
        // A pod of the same name that came later has another UID, and is left alone.
        let patch = Patch::Merge(json!({ "metadata": { "uid": self.uid }, "status": status }));
        let parameters = PatchParams::default();
        while self.news.borrow().is_some() {
            let written = timeout(CALL_LIMIT, self.api.patch_status(&self.name, &parameters, &patch)).await;
            if is_settled(&self.name, written.map(|answer| answer.map(drop))) {
                return;
            }
            sleep(AGAIN).await;
        }
    }
}

/// Whether there is nothing to be tried again.
fn is_settled<E>(pod: &str, answer: Result<kube::Result<()>, E>) -> bool {
    match answer {
        Ok(Ok(())) => true,
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => true,
        Ok(Err(error)) => {
            warn!(pod, %error, "a write failed");
            false
        }
        Err(_) => {
            warn!(pod, "a write took too long");
            false
        }
    }
}

fn order_of(pod: &Pod) -> Option<Order> {
    pod.annotations().get(ORDER).and_then(|text| Order::read(text))
}

fn is_leaving(news: &News) -> bool {
    is_leaving_now(news.borrow().as_deref())
}

fn is_leaving_now(pod: Option<&Pod>) -> bool {
    pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
}

/// Waits until the pod is gone, or its grace was shortened to nothing.
async fn gone(news: &mut News) {
    let is_over = |pod: &Option<Arc<Pod>>| {
        pod.as_ref().is_none_or(|pod| pod.metadata.deletion_grace_period_seconds == Some(0))
    };
    // An error means that the watch has let go of the pod.
    let _ = news.wait_for(is_over).await;
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
