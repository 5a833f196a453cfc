//! Tokens, the tree, and what may be wrong.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use super::*;
use crate::services::Services;
use crate::testing;
use crate::wire::{Conduct, Incoming, Reply};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Island {
    services: Services,
    instance: InstanceId,
}

impl Island {
    fn new() -> Self {
        let mut services = testing::services();
        testing::order(&mut services, json!({"order": "group", "group": "pvp-eu"}));
        let launched = testing::order(&mut services, json!({"order": "launch", "group": "pvp-eu"}));
        let instance = serde_json::from_value(launched["instances"][0].clone()).unwrap();
        Self { services, instance }
    }

    fn send_from(&mut self, peer: IpAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Conduct {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let request = Incoming {
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: map,
            body: Bytes::new(),
        };
        answer(&mut self.services, &request, peer, testing::start()).conduct
    }

    fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let path = format!("/{}/latest/{path}", self.instance);
        match self.send_from(STRANGER, method, &path, headers) {
            Conduct::Reply(reply) => reply,
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    fn token(&mut self) -> String {
        let reply = self.send("PUT", "api/token", &[("x-aws-ec2-metadata-token-ttl-seconds", "60")]);
        String::from_utf8(reply.body).unwrap()
    }

    fn get(&mut self, path: &str) -> (u16, String) {
        let token = self.token();
        let reply = self.send("GET", path, &[("x-aws-ec2-metadata-token", &token)]);
        (reply.status, String::from_utf8(reply.body).unwrap())
    }

    fn switch(&mut self, switches: Value) {
        let now = self.services.bring_up();
        self.services.metadata.switch(&self.instance, serde_json::from_value(switches).unwrap(), now);
    }

    fn order(&mut self, order: Value) {
        testing::order(&mut self.services, order);
    }
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
}

#[test]
fn tokens_are_given_for_a_time_that_makes_sense() {
    let mut island = Island::new();
    for (ttl, status) in [("1", 200), ("21600", 200), ("0", 400), ("21601", 400), ("x", 400), ("", 400)] {
        let reply = island.send("PUT", "api/token", &[("x-aws-ec2-metadata-token-ttl-seconds", ttl)]);
        assert_eq!(reply.status, status, "{ttl:?}");
        if status == 200 {
            assert_eq!(reply.body.len(), 56);
            assert_eq!(header(&reply, "x-aws-ec2-metadata-token-ttl-seconds"), Some(ttl));
        }
    }
    assert_eq!(island.send("PUT", "api/token", &[]).status, 400);
    let forwarded = [("x-aws-ec2-metadata-token-ttl-seconds", "60"), ("x-forwarded-for", "10.0.0.1")];
    assert_eq!(island.send("PUT", "api/token", &forwarded).status, 403);
    assert_eq!(island.send("POST", "meta-data/instance-id", &[]).status, 405);
}

#[test]
fn nothing_is_read_without_a_token_that_lives() {
    let mut island = Island::new();
    assert_eq!(island.send("GET", "meta-data/instance-id", &[]).status, 401);
    let foreign = [("x-aws-ec2-metadata-token", "foreign")];
    assert_eq!(island.send("GET", "meta-data/instance-id", &foreign).status, 401);
    let token = island.token();
    let own = [("x-aws-ec2-metadata-token", token.as_str())];
    testing::advance(&mut island.services, Duration::from_secs(59));
    let reply = island.send("GET", "meta-data/instance-id", &own);
    assert_eq!((reply.status, header(&reply, "x-aws-ec2-metadata-token-ttl-seconds")), (200, Some("1")));
    testing::advance(&mut island.services, Duration::from_secs(1));
    assert_eq!(island.send("GET", "meta-data/instance-id", &own).status, 401);
}

#[test]
fn version_one_is_served_where_it_is_allowed_and_counted() {
    let mut island = Island::new();
    island.switch(json!({"is_optional": true}));
    assert_eq!(island.send("GET", "meta-data/instance-id", &[]).status, 200);
    let instance = island.instance.clone();
    assert_eq!(island.services.metadata.reads_without_token()[&instance], 1);
}

#[test]
fn the_tree_has_leaves_and_folders() {
    let mut island = Island::new();
    let id = island.instance.to_string();
    assert_eq!(island.get("meta-data/instance-id"), (200, id));
    assert_eq!(island.get("meta-data/placement/region"), (200, "eu-central-1".to_owned()));
    let target = "meta-data/autoscaling/target-lifecycle-state";
    assert_eq!(island.get(target), (200, "InService".to_owned()));
    assert_eq!(island.get("meta-data/placement/"), (200, "availability-zone\nregion".to_owned()));
    assert_eq!(island.get("meta-data/events"), (200, "maintenance/".to_owned()));
    assert_eq!(island.get(""), (200, "dynamic/\nmeta-data/".to_owned()));
    assert_eq!(island.get("meta-data/events/maintenance/scheduled"), (200, "[]".to_owned()));
    assert_eq!(island.get("meta-data/iam/security-credentials/"), (200, "berth-node".to_owned()));
    for missing in ["meta-data/spot/", "meta-data/spot/instance-action", "meta-data/nothing", "user-data"] {
        let (status, page) = island.get(missing);
        assert_eq!(status, 404, "{missing}");
        assert!(page.starts_with("<?xml"), "{missing}");
    }
}

#[test]
fn a_notice_appears_when_it_is_given() {
    let mut island = Island::new();
    let instance = island.instance.to_string();
    let interruption = json!({"rebalance_before_ms": null});
    island.order(json!({"order": "spot", "instance": instance, "interruption": interruption}));
    let (status, action) = island.get("meta-data/spot/instance-action");
    assert_eq!((status, action.as_str()), (200, r#"{"action":"terminate","time":"2026-09-21T12:02:00Z"}"#));
    assert_eq!(island.get("meta-data/spot/termination-time"), (200, "2026-09-21T12:02:00Z".to_owned()));
    island.order(json!({"order": "rebalance", "instance": instance}));
    let rebalance = island.get("meta-data/events/recommendations/rebalance");
    assert_eq!(rebalance, (200, r#"{"noticeTime":"2026-09-21T12:00:00Z"}"#.to_owned()));
    island.order(json!({"order": "lifecycle", "instance": instance}));
    let target = island.get("meta-data/autoscaling/target-lifecycle-state");
    assert_eq!(target, (200, "Terminated".to_owned()));
}

#[test]
fn scheduled_events_are_told_and_withdrawn() {
    let mut island = Island::new();
    let instance = island.instance.to_string();
    let mut event = json!({
        "id": "instance-event-1",
        "code": "instance-stop",
        "not_before": "2026-09-21T09:00:43Z",
        "not_after": "2026-09-21T11:00:43Z",
    });
    island.order(json!({"order": "maintenance", "instance": instance, "event": event}));
    let scheduled = |island: &mut Island| {
        let (_, text) = island.get("meta-data/events/maintenance/scheduled");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let seen = scheduled(&mut island);
    assert_eq!(seen[0]["NotBefore"], "21 Sep 2026 09:00:43 GMT");
    assert_eq!(
        (seen[0]["State"].as_str(), seen[0]["Code"].as_str()),
        (Some("active"), Some("instance-stop"))
    );
    event["state"] = "canceled".into();
    island.order(json!({"order": "maintenance", "instance": instance, "event": event}));
    let seen = scheduled(&mut island);
    assert_eq!((seen.as_array().map(Vec::len), seen[0]["State"].as_str()), (Some(1), Some("canceled")));
}

#[test]
fn all_tokens_may_die_at_once_and_new_ones_live() {
    let mut island = Island::new();
    let token = island.token();
    island.switch(json!({"invalidate_tokens": true}));
    let own = [("x-aws-ec2-metadata-token", token.as_str())];
    assert_eq!(island.send("GET", "meta-data/instance-id", &own).status, 401);
    assert_eq!(island.get("meta-data/instance-id").0, 200);
}

#[test]
fn tokens_may_live_shorter_than_they_say() {
    let mut island = Island::new();
    island.switch(json!({"token_ttl_seconds": 5}));
    let token = island.token();
    testing::advance(&mut island.services, Duration::from_secs(5));
    let own = [("x-aws-ec2-metadata-token", token.as_str())];
    assert_eq!(island.send("GET", "meta-data/instance-id", &own).status, 401);
}

#[test]
fn what_is_wrong_shows() {
    let mut island = Island::new();
    let put = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
    let path = format!("/{}/latest/api/token", island.instance);
    island.switch(json!({"hop_limit_one": true}));
    assert_eq!(island.send_from(STRANGER, "PUT", &path, &put), Conduct::Hang);
    island.switch(json!({"refuses": true}));
    assert!(matches!(island.send_from(STRANGER, "PUT", &path, &put), Conduct::Reset(_)));
    island.switch(json!({"is_disabled": true}));
    assert_eq!(island.send("PUT", "api/token", &put).status, 403);
    island.switch(json!({"busy_probability": 1.0}));
    assert_eq!(island.send("PUT", "api/token", &put).status, 503);
    island.switch(json!({"most_in_a_second": 0}));
    assert_eq!(island.send("PUT", "api/token", &put).status, 503);
    island.switch(json!({"is_empty": true}));
    assert_eq!(island.get("meta-data/instance-id"), (200, String::new()));
    island.switch(json!({"is_malformed": true}));
    let (_, text) = island.get("dynamic/instance-identity/document");
    assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
    island.switch(json!({"local_hostname": "one.example two.example"}));
    assert_eq!(island.get("meta-data/local-hostname"), (200, "one.example two.example".to_owned()));
}

#[test]
fn a_notice_may_come_and_go() {
    let mut island = Island::new();
    let instance = island.instance.to_string();
    island.order(json!({"order": "rebalance", "instance": instance}));
    island.switch(json!({"flapping_ms": 5000}));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(island.get("meta-data/events/recommendations/rebalance").0);
        testing::advance(&mut island.services, Duration::from_secs(5));
    }
    assert_eq!(seen, [200, 404, 200, 404]);
}

#[test]
fn an_instance_is_known_by_its_address() {
    let mut island = Island::new();
    let address = island.services.world.instance(island.instance.as_str()).unwrap().address;
    let put = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
    let own = island.send_from(IpAddr::V4(address), "PUT", "/latest/api/token", &put);
    assert!(matches!(own, Conduct::Reply(reply) if reply.status == 200));
    let foreign = island.send_from(STRANGER, "PUT", "/latest/api/token", &put);
    assert!(matches!(foreign, Conduct::Reply(reply) if reply.status == 404));
}

#[test]
fn a_new_instance_has_no_lifecycle_state_yet() {
    let mut island = Island::new();
    let wanted = json!({"booted": false});
    let launched =
        testing::order(&mut island.services, json!({"order": "launch", "group": "pvp-eu", "wanted": wanted}));
    island.instance = serde_json::from_value(launched["instances"][0].clone()).unwrap();
    assert_eq!(island.get("meta-data/autoscaling/target-lifecycle-state").0, 404);
    testing::advance(&mut island.services, Duration::from_secs(5));
    assert_eq!(island.get("meta-data/autoscaling/target-lifecycle-state").0, 200);
}
