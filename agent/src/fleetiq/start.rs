//! Puts the parts that speak with FleetIQ and with the instance's metadata together, and starts their tasks.
//!
//! Which instance this is may be unclear for a while. The metadata are read meanwhile, and nothing is called. Where nothing
//! says that there could be an instance of a group, none of it runs.

use std::convert::Infallible;
use std::time::Duration;

use aws_sdk_autoscaling::config::Builder as ScalingBuilder;
use aws_sdk_gamelift::config::Builder;
use berth_api::events::EventReason;
use berth_api::game_node::Protection;
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use berth_runtime::kube_client::within;
use berth_runtime::metrics::Metrics;
use berth_runtime::tasks::{Spawner, TaskGroup};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::asker::Asker;
use super::client::{self, FleetClient};
use super::identity::{FleetIdentity, Sightings, see};
use super::listener::Listener;
use super::machine::{Mark, Unprotected};
use super::registrar::{Inlets, Order, Outlets, Registrar};
use super::retry::after_refusal;
use super::settings::{FleetSettings, Wanted};
use super::watcher::{self, Watcher};
use super::{FleetMetrics, Offers, Standing};
use crate::drain::Course;
use crate::drain::backup::Backup;
use crate::drain::marks::Marks;
use crate::drain::notice::Signal;
use crate::events::NodeRecorder;
use crate::hook::{self, Holding, HookMetrics};
use crate::metadata::client::{Base, MetadataClient};
use crate::metadata::poller::{self, Poller};
use crate::metadata::settings::MetadataSettings;
use crate::metadata::{Lifecycle, MetadataMetrics};

/// Observations that may wait.
const WAITING: usize = 64;
/// Orders that may wait.
const ORDERS: usize = 4;
/// How long one question to the API server may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What a predecessor left behind.
#[derive(Clone, Debug)]
pub struct Left {
    /// The marks of this node: their copy, where there is one of this boot, else those of the Node.
    pub marks: Marks,
    /// They are of this boot, and so of this instance: a Node's name may be used again by another.
    pub are_of_this_boot: bool,
    /// Where the copy is: it may be of another Node object, and about this instance all the same.
    pub backup: Backup,
}

impl Left {
    /// Reads what is left on a node.
    #[must_use]
    pub fn read(backup: Backup, of_node: &Marks) -> Self {
        let copied = backup.read(None);
        let are_of_this_boot = copied.is_some();
        Self { marks: copied.unwrap_or_else(|| of_node.clone()), are_of_this_boot, backup }
    }

    /// The marks that are about this instance.
    fn about(&self, instance: &str) -> Marks {
        // The copy is written before the Node is, and so is never behind.
        let marks = self.backup.read(Some(instance)).unwrap_or_else(|| self.marks.clone());
        if marks.is_about(Some(instance)) { marks } else { Marks::default() }
    }
}

/// How the instance stands as far as its marks tell, for whoever acts by it before it is even clear which one it is: what
/// a predecessor has done stays, and nothing is offered that it did not offer.
#[must_use]
pub fn first_standing(
    settings: &FleetSettings,
    metadata: &MetadataSettings,
    node: &Node,
    left: &Left,
) -> Standing {
    if !may_be_in_use(settings, metadata, node) {
        return Standing::default();
    }
    let mark = Mark::of(&left.marks);
    let is_kept = mark == Mark::Active && left.are_of_this_boot;
    Standing {
        protection: match mark {
            Mark::None => Protection::Unregistered,
            Mark::Registered => Protection::Registered,
            Mark::Active => Protection::Protected,
            Mark::Deregistered => Protection::Released,
        },
        offers: if is_kept {
            Offers::Allowed
        } else {
            Offers::Withheld { why: "it is not clear yet which instance this is".to_owned() }
        },
        ..Standing::default()
    }
}

/// What the parts are made from.
pub struct Parts {
    /// Flags of FleetIQ.
    pub settings: FleetSettings,
    /// Flags of the metadata.
    pub metadata: MetadataSettings,
    /// How AWS is reached, where that is not the ordinary way.
    pub aws: Option<Builder>,
    /// The same of Auto Scaling.
    pub scaling: Option<ScalingBuilder>,
    /// The API server, for the Node.
    pub kube: Client,
    /// The Node as it was last seen.
    pub node: Node,
    /// Where a predecessor left off.
    pub left: Left,
    /// The node's course.
    pub course: watch::Receiver<Course>,
    /// Where notices go.
    pub signals: mpsc::Sender<Signal>,
    /// How the instance stands.
    pub standing: watch::Sender<Standing>,
    /// How a lifecycle hook stands.
    pub holding: watch::Sender<Holding>,
    /// Where people read.
    pub tell: NodeRecorder,
    /// Whether the instance is kept, or need not be.
    pub ready: Condition,
}

/// Starts everything that there is a use for. What is returned takes orders to give the instance back, where FleetIQ may
/// be in use.
pub fn start(mut parts: Parts, metrics: &mut Metrics, group: &TaskGroup) -> Option<mpsc::Sender<Order>> {
    let (orders, given) = mpsc::channel(ORDERS);
    let (lifecycle, lifecycle_seen) = watch::channel(Lifecycle::Unasked);
    let stop = group.token();
    let has_hook = parts.metadata.hook.is_some();
    let base = parts.metadata.base(is_on_ec2(&parts.node, &parts.settings) || has_hook);
    let metadata_metrics = MetadataMetrics::register(&mut metrics.subsystem("metadata"));
    let fleet_metrics = FleetMetrics::register(&mut metrics.subsystem("fleetiq"));
    let hook_metrics = HookMetrics::register(&mut metrics.subsystem("lifecycle_hook"));
    if let Some(hook) = hook_parts(&mut parts, base.as_ref(), &lifecycle_seen, hook_metrics) {
        group.spawn("lifecycle-hook", hook::start::run(hook, stop.clone()));
    }
    match &base {
        Some(base) => {
            info!(%base, "reading the instance's metadata");
            let outlets =
                poller::Outlets { signals: parts.signals.clone(), lifecycle, tell: parts.tell.clone() };
            let client = MetadataClient::new(base.clone());
            let poller = Poller::new(client, parts.metadata.rules, outlets, metadata_metrics);
            group.spawn("metadata", poller.run(stop.clone()));
        }
        None => {
            lifecycle.send_replace(Lifecycle::Unknown);
        }
    }
    parts.settings.warn_of_ignored();
    if !may_be_in_use(&parts.settings, &parts.metadata, &parts.node) {
        parts.ready.set(true);
        return None;
    }
    let fleet = Fleet {
        parts,
        base,
        metrics: fleet_metrics,
        lifecycle: lifecycle_seen,
        orders: given,
        spawner: group.spawner(),
    };
    group.spawn("fleetiq", fleet.run(stop));
    Some(orders)
}

/// What answers the lifecycle hook, where one is named.
fn hook_parts(
    parts: &mut Parts,
    base: Option<&Base>,
    lifecycle: &watch::Receiver<Lifecycle>,
    metrics: HookMetrics,
) -> Option<hook::start::Parts> {
    let (hook, base) = (parts.metadata.hook.clone()?, base?.clone());
    let now = berth_runtime::clock::now();
    Some(hook::start::Parts {
        hook,
        aws: parts.scaling.take(),
        region: parts.settings.region.clone(),
        kube: parts.kube.clone(),
        node: parts.node.clone(),
        base,
        resumed: hook::start::resumed(&parts.course.borrow(), &parts.left.marks, now),
        inlets: hook::keeper::Inlets { course: parts.course.clone(), lifecycle: lifecycle.clone() },
        outlets: hook::keeper::Outlets {
            signals: parts.signals.clone(),
            holding: parts.holding.clone(),
            tell: parts.tell.clone(),
            metrics,
        },
    })
}

/// Whether there may be an instance of a group here. Without a group's name only the metadata can say.
fn may_be_in_use(settings: &FleetSettings, metadata: &MetadataSettings, node: &Node) -> bool {
    match settings.wanted {
        Wanted::Off => false,
        Wanted::On => true,
        Wanted::Auto => {
            settings.group.is_some() || has_label(node) || metadata.base(is_on_ec2(node, settings)).is_some()
        }
    }
}

/// Whether anything says that this is an instance of EC2.
fn is_on_ec2(node: &Node, settings: &FleetSettings) -> bool {
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    provider_id.is_some_and(|id| id.starts_with("aws://")) || settings.group.is_some() || has_label(node)
}

fn has_label(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(names::NODE_GROUP_LABEL))
}

/// Everything that waits for the instance to be known.
struct Fleet {
    parts: Parts,
    base: Option<Base>,
    metrics: FleetMetrics,
    lifecycle: watch::Receiver<Lifecycle>,
    orders: mpsc::Receiver<Order>,
    spawner: Spawner,
}

impl Fleet {
    async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let identity = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            identity = find(&mut self.parts, self.base.as_ref()) => identity,
            never = refuse(&mut self.orders, "it is not clear yet which instance of which group this is") => {
                match never {}
            }
        };
        let Some(identity) = identity else {
            info!("FleetIQ is not in use here");
            self.parts.standing.send_replace(Standing::default());
            self.parts.ready.set(true);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                never = refuse(&mut self.orders, "FleetIQ is not in use on this node") => match never {},
            }
        };
        info!(instance = %identity.instance, group = %identity.group, region = ?identity.region, "FleetIQ");
        let aws = match self.parts.aws.take() {
            Some(aws) => aws,
            None => {
                let told = self.parts.settings.region.clone();
                Builder::from(&client::configuration(told.or_else(|| identity.region.clone())).await)
            }
        };
        self.registrar(identity, aws, &stop).run(stop).await
    }

    /// Starts who listens, and makes who speaks.
    fn registrar(self, identity: FleetIdentity, aws: Builder, stop: &CancellationToken) -> Registrar {
        let Self { parts, metrics, lifecycle, orders, spawner, .. } = self;
        let client = FleetClient::new(aws, &identity.group, &identity.instance);
        let (observations, observed) = mpsc::channel(WAITING);
        let (heard, heard_seen) = watch::channel(Instant::now());
        let (protection, protection_seen) = watch::channel(None);
        let outlets = watcher::Outlets { signals: parts.signals, heard, protection };
        let standing = parts.standing.subscribe();
        let status = Watcher::new(&identity.instance, observed, standing, outlets, metrics.clone());
        spawner.spawn("fleetiq-status", status.run(stop.clone()));
        let has_publisher = parts.settings.redis.is_some();
        if let Some(redis) = parts.settings.redis {
            let listener = Listener::new(
                redis,
                &identity.instance,
                observations.clone(),
                parts.tell.clone(),
                metrics.clone(),
            );
            spawner.spawn("fleetiq-redis", listener.run(stop.clone()));
        }
        let asker = Asker {
            client: client.clone(),
            heard: heard_seen,
            has_publisher,
            observations: observations.clone(),
            tell: parts.tell.clone(),
            metrics: metrics.clone(),
        };
        spawner.spawn("fleetiq-asker", asker.run(stop.clone()));
        let inlets = Inlets { course: parts.course, lifecycle, protection: protection_seen, orders };
        let outlets =
            Outlets { standing: parts.standing, observations, tell: parts.tell, ready: parts.ready, metrics };
        let mark = Mark::of(&parts.left.about(&identity.instance));
        Registrar::new(client, identity, (mark, parts.settings.unprotected), inlets, outlets)
    }
}

/// Answers every order with why it is not carried out.
async fn refuse(orders: &mut mpsc::Receiver<Order>, why: &str) -> Infallible {
    while let Some(order) = orders.recv().await {
        // Whoever asked may have gone.
        drop(order.send(Err(why.to_owned())));
    }
    std::future::pending().await
}

/// Who this is; none where FleetIQ is not in use. Asks again until that is clear.
async fn find(parts: &mut Parts, base: Option<&Base>) -> Option<FleetIdentity> {
    let settings = parts.settings.clone();
    let began = Instant::now();
    let mut told = None;
    loop {
        let mut seen = see(&parts.node, settings.group.as_deref(), base).await;
        if let Ok(instance) = seen.instance() {
            seen.marked_group = parts.left.about(&instance).group.filter(|_| seen.metadata.is_none());
        }
        let is_wanted = settings.wanted == Wanted::On || seen.has_group();
        // Without an answer nobody knows whether the instance is of a group.
        let may_be_wanted = base.is_some() && seen.metadata.is_none();
        if !is_wanted && !may_be_wanted {
            return None;
        }
        match seen.identity() {
            Ok(identity) => {
                tell_of_other_group(parts, &seen);
                return Some(identity);
            }
            Err(unclear) if is_wanted => {
                let is_open =
                    matches!(settings.unprotected, Unprotected::AllowAfter(wait) if wait <= began.elapsed());
                parts.standing.send_replace(Standing {
                    protection: Protection::Unregistered,
                    group: seen.group().ok(),
                    instance: seen.instance().ok(),
                    last_beat: None,
                    offers: if is_open {
                        Offers::Allowed
                    } else {
                        Offers::Withheld { why: "it is not clear which instance this is".to_owned() }
                    },
                    problem: Some(unclear.to_string()),
                });
                if told.as_ref() != Some(&unclear) {
                    warn!(error = %unclear, "nothing is asked of FleetIQ");
                    parts.tell.record(EventReason::IdentityUnclear, &unclear.to_string());
                    told = Some(unclear);
                }
            }
            // Until somebody says that it is in a group, it is as good as in none.
            Err(_) => {
                parts.standing.send_replace(Standing::default());
                parts.ready.set(true);
            }
        }
        sleep(after_refusal(rand::random())).await;
        read_node(&parts.kube, &mut parts.node).await;
    }
}

fn tell_of_other_group(parts: &Parts, seen: &Sightings) {
    if let Some(words) = seen.other_group() {
        warn!("{words}");
        parts.tell.record(EventReason::IdentityUnclear, &words);
    }
}

/// The Node may have been made anew, or got a label.
pub(crate) async fn read_node(kube: &Client, node: &mut Node) {
    let name = node.metadata.name.clone().unwrap_or_default();
    let nodes: Api<Node> = Api::all(kube.clone());
    match within(LIMIT, nodes.get_opt(&name)).await {
        Ok(Some(found)) => *node = found,
        Ok(None) => {}
        Err(error) => warn!(node = %name, error = %chain(&error), "could not read the node"),
    }
}
