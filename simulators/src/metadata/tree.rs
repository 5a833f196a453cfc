//! The tree of metadata, as a list of leaves; folders are what leads to them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Switches;
use crate::wire::signature::Credentials;
use crate::world::{Instance, Maintenance, Place};

/// The role that every instance has.
const ROLE: &str = "berth-node";
const IMAGE: &str = "ami-0b0a1c2d3e4f56789";

/// What the leaves are made from.
pub(super) struct View<'a> {
    pub(super) instance: &'a Instance,
    pub(super) switches: &'a Switches,
    pub(super) place: &'a Place,
    /// The time of day, which credentials expire by.
    pub(super) wall: Timestamp,
    pub(super) hides_notices: bool,
    pub(super) hides_lifecycle: bool,
}

/// What a path leads to: a leaf's content, or a folder's.
pub(super) fn look_up(view: &View<'_>, path: &str) -> Option<String> {
    let leaves = view.leaves();
    let path = path.trim_end_matches('/');
    if let Some(content) = leaves.get(path) {
        return Some(content.clone());
    }
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let names = leaves
        .keys()
        .filter_map(|leaf| leaf.strip_prefix(&prefix))
        .map(|rest| match rest.split_once('/') {
            Some((folder, _)) => format!("{folder}/"),
            None => rest.to_owned(),
        })
        .collect::<BTreeSet<_>>();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join("\n"))
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl View<'_> {
    fn shown(&self, time: Timestamp) -> Timestamp {
        time.saturating_add(SignedDuration::from_millis(self.switches.clock_offset_ms)).unwrap_or(time)
    }

    fn leaves(&self) -> BTreeMap<String, String> {
        let instance = self.instance;
        let Place { region, account } = self.place;
        let address = instance.address;
        let name = format!("ip-{}.{region}.compute.internal", address.to_string().replace('.', "-"));
        let mut leaves = BTreeMap::new();
        let mut add = |path: &str, content: String| drop(leaves.insert(path.to_owned(), content));
        let local = self.switches.local_hostname.clone().unwrap_or_else(|| name.clone());
        add("meta-data/instance-id", instance.id.to_string());
        add("meta-data/instance-type", instance.instance_type.clone());
        add("meta-data/instance-life-cycle", instance.market.as_str().to_owned());
        add("meta-data/ami-id", IMAGE.to_owned());
        add("meta-data/hostname", local.clone());
        add("meta-data/local-hostname", local);
        add("meta-data/local-ipv4", address.to_string());
        let [_, second, third, fourth] = address.octets();
        add("meta-data/mac", format!("02:00:0a:{second:02x}:{third:02x}:{fourth:02x}"));
        add("meta-data/placement/availability-zone", instance.zone.clone());
        add("meta-data/placement/region", region.clone());
        if let Some(public) = &self.switches.public_address {
            add("meta-data/public-ipv4", public.clone());
        }
        if !self.hides_lifecycle {
            add("meta-data/autoscaling/target-lifecycle-state", instance.stage.target().to_owned());
        }
        for (path, content) in self.notices() {
            add(path, content);
        }
        let events = &instance.notices.maintenance;
        let is_open = |event: &&Maintenance| event.state != "completed";
        let is_over = |event: &&Maintenance| event.state != "active";
        add("meta-data/events/maintenance/scheduled", self.events(events.iter().filter(is_open)));
        add("meta-data/events/maintenance/history", self.events(events.iter().filter(is_over)));
        for (key, value) in &self.switches.tags {
            add(&format!("meta-data/tags/instance/{key}"), value.clone());
        }
        let profile = json!({
            "Code": "Success",
            "LastUpdated": seconds(self.wall),
            "InstanceProfileArn": format!("arn:aws:iam::{account}:instance-profile/{ROLE}"),
            "InstanceProfileId": "AIPASIMULATED",
        });
        add("meta-data/iam/info", profile.to_string());
        add(&format!("meta-data/iam/security-credentials/{ROLE}"), self.role());
        let document = json!({
            "accountId": account,
            "architecture": "x86_64",
            "availabilityZone": instance.zone,
            "imageId": IMAGE,
            "instanceId": instance.id,
            "instanceType": instance.instance_type,
            "pendingTime": seconds(self.shown(instance.launched)),
            "privateIp": address.to_string(),
            "region": region,
            "version": "2017-09-30",
        });
        add("dynamic/instance-identity/document", document.to_string());
        leaves
    }

    /// What is there only once it was told.
    fn notices(&self) -> Vec<(&'static str, String)> {
        if self.hides_notices {
            return Vec::new();
        }
        let mut notices = Vec::new();
        if let Some(spot) = &self.instance.notices.spot {
            let time = seconds(self.shown(spot.time));
            if spot.action == "terminate" {
                notices.push(("meta-data/spot/termination-time", time.clone()));
            }
            let action = json!({"action": spot.action, "time": time});
            notices.push(("meta-data/spot/instance-action", action.to_string()));
        }
        if let Some(time) = self.instance.notices.rebalance {
            let notice = json!({"noticeTime": seconds(self.shown(time))});
            notices.push(("meta-data/events/recommendations/rebalance", notice.to_string()));
        }
        notices
    }

    fn events<'a>(&self, events: impl Iterator<Item = &'a Maintenance>) -> String {
        let time = |time| self.shown(time).strftime("%-d %b %Y %H:%M:%S GMT").to_string();
        let event = |event: &Maintenance| {
            let note = match event.state.as_str() {
                "canceled" => "[Canceled] ",
                "completed" => "[Completed] ",
                _ => "",
            };
            json!({
                "NotBefore": time(event.not_before),
                "NotAfter": time(event.not_after),
                "Code": event.code,
                "Description": format!("{note}scheduled {}", event.code),
                "EventId": event.id,
                "State": event.state,
            })
        };
        serde_json::Value::from(events.map(event).collect::<Vec<_>>()).to_string()
    }

    /// Credentials that the front door knows.
    fn role(&self) -> String {
        let expires = Credentials::role_expiry(self.wall);
        let role = Credentials::of_role(expires);
        json!({
            "Code": "Success",
            "LastUpdated": seconds(self.wall),
            "Type": "AWS-HMAC",
            "AccessKeyId": role.access_key,
            "SecretAccessKey": role.secret,
            "Token": role.token,
            "Expiration": seconds(expires),
        })
        .to_string()
    }
}
