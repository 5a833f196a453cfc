//! What AWS does not say. Each is a parameter, so that a program can be shown to work for every answer.

use serde::{Deserialize, Serialize};

use super::refusal::RefusalKind;
use super::words::Milliseconds;

/// The open questions, with the answers that this world gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Parameters {
    /// Silence until a server is unhealthy.
    pub(crate) unhealthy_after_ms: Milliseconds,
    /// Being unhealthy until it is removed.
    pub(crate) removed_after_ms: Milliseconds,
    /// The page of a list that names no limit, and the longest page.
    pub(crate) page_size: usize,
    /// The longest page.
    pub(crate) largest_page: usize,
    /// Register on an instance that goes away.
    pub(crate) register_on_leaving: RefusalKind,
    /// Claim by id on a DRAINING instance that the filter leaves out.
    pub(crate) claim_filtered_out: RefusalKind,
    /// Register with an unknown group or a foreign instance.
    pub(crate) register_foreign: RefusalKind,
    /// Whether a DRAINING instance may become ACTIVE again.
    pub(crate) draining_may_return: bool,
    /// From the last reason to keep a DRAINING instance to its termination.
    pub(crate) reap_after_ms: Milliseconds,
    /// The name of a throttle.
    pub(crate) throttle_name: String,
    /// Its HTTP status.
    pub(crate) throttle_status: u16,
    /// Whether a server may become UTILIZED unclaimed.
    pub(crate) utilize_unclaimed: bool,
    /// Whether a claim already protects; UTILIZED always does.
    pub(crate) claim_protects: bool,
    /// Until protection shows at Auto Scaling.
    pub(crate) protection_lag_ms: Milliseconds,
    /// How Auto Scaling shows a DRAINING instance.
    pub(crate) draining_shown_as: DrainingShown,
    /// Whether Register on a DRAINING instance is allowed.
    pub(crate) register_on_draining: bool,
    /// Until a registered server is found.
    pub(crate) visible_after_ms: Milliseconds,
    /// Ids in a list of instances that are not in the group: refused, or left out.
    pub(crate) refuse_unknown_instances: bool,
    /// Servers that a group takes.
    pub(crate) servers_per_group: usize,
    /// From launch to InService.
    pub(crate) boot_ms: Milliseconds,
    /// A new instance's metadata has no lifecycle state for so long.
    pub(crate) lifecycle_hidden_ms: Milliseconds,
    /// Steps of a termination and of a group's status.
    pub(crate) step_ms: Milliseconds,
    /// Between two looks of a group's scaling policy.
    pub(crate) scale_every_ms: Milliseconds,
    /// Reads of what was.
    pub(crate) stale_reads: StaleReads,
}

/// How Auto Scaling shows a DRAINING instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DrainingShown {
    InService,
    Standby,
    Detached,
    Missing,
}

/// How often, and how old, Describe and List may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StaleReads {
    pub(crate) probability: f64,
    pub(crate) max_age_ms: Milliseconds,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            unhealthy_after_ms: Milliseconds::of_seconds(180),
            removed_after_ms: Milliseconds::of_seconds(60),
            page_size: 100,
            largest_page: 100,
            register_on_leaving: RefusalKind::Conflict,
            claim_filtered_out: RefusalKind::OutOfCapacity,
            register_foreign: RefusalKind::InvalidRequest,
            draining_may_return: false,
            reap_after_ms: Milliseconds::of_seconds(30),
            throttle_name: "ThrottlingException".to_owned(),
            throttle_status: 400,
            utilize_unclaimed: true,
            claim_protects: true,
            protection_lag_ms: Milliseconds(0),
            draining_shown_as: DrainingShown::InService,
            register_on_draining: true,
            visible_after_ms: Milliseconds(0),
            refuse_unknown_instances: false,
            servers_per_group: 1000,
            boot_ms: Milliseconds::of_seconds(5),
            lifecycle_hidden_ms: Milliseconds(0),
            step_ms: Milliseconds::of_seconds(5),
            scale_every_ms: Milliseconds::of_seconds(60),
            stale_reads: StaleReads::default(),
        }
    }
}
