//! FleetAutoscaler (`autoscaling.agones.dev/v1`): how many servers a Fleet shall have, decided every so often.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::fleet::FleetStatus;

/// Seconds between two looks, where nothing is said.
const INTERVAL: i32 = 30;

/// What the author of an autoscaler wants.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "autoscaling.agones.dev",
    version = "v1",
    kind = "FleetAutoscaler",
    plural = "fleetautoscalers",
    shortname = "fas",
    namespaced,
    schema = "disabled",
    status = "FleetAutoscalerStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct FleetAutoscalerSpec {
    /// The Fleet, in the same namespace.
    pub fleet_name: String,
    /// How its size is decided.
    pub policy: Policy,
    /// How often; absent means every 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
}

impl FleetAutoscalerSpec {
    /// Seconds between two looks.
    pub fn interval_seconds(&self) -> i32 {
        let fixed = self.sync.as_ref().and_then(|sync| sync.fixed_interval.as_ref());
        fixed.map_or(INTERVAL, |fixed| fixed.seconds.max(1))
    }
}

/// How often the size is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sync {
    /// There is one kind.
    #[serde(rename = "type", default)]
    pub kind: SyncKind,
    /// The interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_interval: Option<FixedInterval>,
}

/// Kinds of [`Sync`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncKind {
    /// Every so many seconds.
    #[default]
    FixedInterval,
}

/// Every so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedInterval {
    /// From 1.
    pub seconds: i32,
}

/// How a Fleet's size is decided: a kind, and the object of that kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Which of the objects counts.
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// So many servers beside the allocated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferPolicy>,
    /// As a service of the author's says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookPolicy>,
    /// So much room left in a counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<AmountPolicy>,
    /// So much room left in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<AmountPolicy>,
    /// Another policy, at certain times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Box<SchedulePolicy>>,
    /// The first of several policies that has an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Vec<ChainEntry>>,
    /// As a module of the author's says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wasm: Option<WasmPolicy>,
}

/// Kinds of [`Policy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PolicyKind {
    /// [`Policy::buffer`].
    #[default]
    Buffer,
    /// [`Policy::webhook`].
    Webhook,
    /// [`Policy::counter`].
    Counter,
    /// [`Policy::list`].
    List,
    /// [`Policy::schedule`].
    Schedule,
    /// [`Policy::chain`].
    Chain,
    /// [`Policy::wasm`].
    Wasm,
}

impl PolicyKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Buffer, Self::Webhook, Self::Counter, Self::List, Self::Schedule, Self::Chain, Self::Wasm];

    /// The word in `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buffer => "Buffer",
            Self::Webhook => "Webhook",
            Self::Counter => "Counter",
            Self::List => "List",
            Self::Schedule => "Schedule",
            Self::Chain => "Chain",
            Self::Wasm => "Wasm",
        }
    }

    /// The field that holds the object of this kind.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::Webhook => "webhook",
            Self::Counter => "counter",
            Self::List => "list",
            Self::Schedule => "schedule",
            Self::Chain => "chain",
            Self::Wasm => "wasm",
        }
    }
}

/// So many servers beside the allocated ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BufferPolicy {
    /// Never more than these.
    pub max_replicas: i32,
    /// Never fewer than these.
    #[serde(default)]
    pub min_replicas: i32,
    /// A number, or a share of all servers such as `20%`.
    pub buffer_size: IntOrString,
}

/// So much room left in a counter or list, over all servers of the Fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmountPolicy {
    /// Name of the counter or list.
    pub key: String,
    /// A number, or a share of the capacity such as `20%`.
    pub buffer_size: IntOrString,
    /// Capacity never goes below this.
    #[serde(default)]
    pub min_capacity: i64,
    /// Capacity never goes above this.
    pub max_capacity: i64,
}

/// Where a service or a module is: a URL, or a Service of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookPolicy {
    /// The whole address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A Service of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// Certificates that sign the service's own: PEM, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<ByteString>,
}

/// A Service of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Port; absent means 8000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Another policy, at certain times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePolicy {
    /// Not before, and not after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Between>,
    /// Windows that come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_period: Option<ActivePeriod>,
    /// What counts meanwhile.
    pub policy: Policy,
}

/// From when to when a schedule counts at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// Not after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

/// Windows that come again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivePeriod {
    /// Name of a time zone; absent means UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// When a window opens, in five fields; absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_cron: Option<String>,
    /// How long it stays open, such as `1h30m`; absent means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// One policy of a chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainEntry {
    /// Its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The policy.
    #[serde(flatten)]
    pub policy: Policy,
}

/// As a module of the author's says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasmPolicy {
    /// The function to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// What the module is told at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, String>>,
    /// Where the module is.
    pub from: WasmSource,
    /// SHA-256 of the module, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// Where a module is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasmSource {
    /// Fetched from there.
    pub url: WebhookPolicy,
}

/// What is known of an autoscaler's last look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetAutoscalerStatus {
    /// Servers that the Fleet had.
    #[serde(default)]
    pub current_replicas: i32,
    /// Servers that it shall have.
    #[serde(default)]
    pub desired_replicas: i32,
    /// When it was last given another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Timestamp>,
    /// A number could be decided.
    #[serde(default)]
    pub able_to_scale: bool,
    /// A limit of the policy made it another number.
    #[serde(default)]
    pub scaling_limited: bool,
    /// The policy that decided.
    #[serde(default)]
    pub last_applied_policy: String,
    /// What is not as it should be, see [`crate::conditions`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// What is sent to the author's service, and what it answers: one envelope for both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The question.
    #[serde(default)]
    pub request: Option<ReviewRequest>,
    /// The answer.
    #[serde(default)]
    pub response: Option<ReviewResponse>,
}

/// The question: how many servers shall this Fleet have?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReviewRequest {
    /// Of this question alone.
    #[serde(default)]
    pub uid: String,
    /// Name of the Fleet.
    #[serde(default)]
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its status.
    #[serde(default)]
    pub status: FleetStatus,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewResponse {
    /// Of the question; nobody compares it.
    #[serde(default)]
    pub uid: String,
    /// Whether the Fleet shall have another number.
    #[serde(default)]
    pub scale: bool,
    /// The number.
    #[serde(default)]
    pub replicas: i32,
}
