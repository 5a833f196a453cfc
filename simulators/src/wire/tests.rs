//! Whole requests in, whole answers out.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value as Json, json};

use super::value::{Members, Value};
use super::{Conduct, Incoming, Outgoing, Reply, WireStyle, answer, cbor};
use crate::faults::ResetAt;
use crate::services::Services;
use crate::testing;

struct Front {
    services: Services,
    instance: String,
}

impl Front {
    fn new() -> Self {
        let mut services = testing::services();
        testing::order(&mut services, json!({"order": "group", "group": "pvp-eu"}));
        let launched = testing::order(&mut services, json!({"order": "launch", "group": "pvp-eu"}));
        let instance = launched["instances"][0].as_str().unwrap().to_owned();
        Self { services, instance }
    }

    fn send(&mut self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Outgoing {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let request = Incoming {
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: map,
            body: body.into(),
        };
        answer(&mut self.services, &request, testing::start())
    }

    fn json_conduct(&mut self, operation: &str, body: &Json) -> Conduct {
        let target = format!("GameLift.{operation}");
        self.send("/", &[("x-amz-target", &target)], body.to_string()).conduct
    }

    fn json(&mut self, operation: &str, body: &Json) -> (u16, Json) {
        let reply = reply(self.json_conduct(operation, body));
        let body =
            if reply.body.is_empty() { Json::Null } else { serde_json::from_slice(&reply.body).unwrap() };
        (reply.status, body)
    }

    fn cbor(&mut self, operation: &str, members: Members) -> Reply {
        let path = format!("/service/GameLift/operation/{operation}");
        let body = cbor::write(&members.into(), cbor::Style::default());
        reply(self.send(&path, &[("smithy-protocol", "rpc-v2-cbor")], body).conduct)
    }

    fn form(&mut self, body: &str) -> (u16, String) {
        let kind = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
        let reply = reply(self.send("/", &kind, body.to_owned()).conduct);
        (reply.status, String::from_utf8(reply.body).unwrap())
    }

    fn register(&mut self, server: &str) {
        let body =
            json!({"GameServerGroupName": "pvp-eu", "GameServerId": server, "InstanceId": self.instance});
        let (status, answer) = self.json("RegisterGameServer", &body);
        assert_eq!(status, 200, "{answer}");
    }

    fn fault(&mut self, rule: Json) {
        let now = self.services.bring_up();
        self.services.faults.put("fault".to_owned(), serde_json::from_value(rule).unwrap(), now);
    }
}

fn reply(conduct: Conduct) -> Reply {
    match conduct {
        Conduct::Reply(reply) => reply,
        other => panic!("no reply but {other:?}"),
    }
}

fn one() -> Json {
    json!({"GameServerGroupName": "pvp-eu", "GameServerId": "one"})
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_server_is_described_in_json() {
    let mut front = Front::new();
    front.register("one");
    let (status, answer) = front.json("DescribeGameServer", &one());
    let expected = json!({
        "GameServerGroupName": "pvp-eu",
        "GameServerGroupArn": "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu",
        "GameServerId": "one",
        "InstanceId": front.instance,
        "UtilizationStatus": "AVAILABLE",
        "RegistrationTime": 1_789_992_000.0,
        "LastHealthCheckTime": 1_789_992_000.0,
    });
    assert_eq!((status, &answer["GameServer"]), (200, &expected));
    front.json("ClaimGameServer", &one());
    let (_, answer) = front.json("DescribeGameServer", &one());
    assert_eq!(answer["GameServer"]["ClaimStatus"], "CLAIMED");
    assert_eq!(answer["GameServer"]["LastClaimTime"], 1_789_992_000.0);
}

#[test]
fn the_same_server_is_described_in_cbor() {
    let mut front = Front::new();
    front.register("one");
    let members = Members::new().with("GameServerGroupName", "pvp-eu").with("GameServerId", "one");
    let reply = front.cbor("DescribeGameServer", members);
    assert_eq!(reply.status, 200);
    assert_eq!(header(&reply, "content-type"), Some("application/cbor"));
    assert_eq!(header(&reply, "smithy-protocol"), Some("rpc-v2-cbor"));
    assert_eq!(header(&reply, "x-amzn-requestid").map(str::len), Some(36));
    let answer = cbor::read(&reply.body).unwrap();
    let server = answer.get("GameServer").unwrap();
    assert_eq!(server.get("UtilizationStatus"), Some(&Value::from("AVAILABLE")));
    assert_eq!(server.get("RegistrationTime"), Some(&Value::Time(testing::start())));
    assert_eq!(server.get("ClaimStatus"), None);
}

#[test]
fn an_arn_is_as_good_as_a_name_in_each_operation() {
    let mut front = Front::new();
    let group = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";
    let instance = front.instance.clone();
    let server = json!({"GameServerGroupName": group, "GameServerId": "one", "InstanceId": instance});
    let alone = json!({"GameServerGroupName": group});
    for (operation, body) in [
        ("RegisterGameServer", &server),
        ("ClaimGameServer", &one_of(group)),
        ("UpdateGameServer", &one_of(group)),
        ("DescribeGameServer", &one_of(group)),
        ("ListGameServers", &alone),
        ("DescribeGameServerInstances", &alone),
        ("DescribeGameServerGroup", &alone),
        ("DeregisterGameServer", &one_of(group)),
    ] {
        assert_eq!(front.json(operation, body).0, 200, "{operation}");
    }
}

fn one_of(group: &str) -> Json {
    json!({"GameServerGroupName": group, "GameServerId": "one"})
}

#[test]
fn refusals_are_named_as_each_protocol_names_them() {
    let mut front = Front::new();
    let members = || Members::new().with("GameServerGroupName", "pvp-eu").with("GameServerId", "one");
    for (names, in_json, in_cbor) in [
        ("by-protocol", "NotFoundException", "com.amazonaws.gamelift#NotFoundException"),
        ("bare", "NotFoundException", "NotFoundException"),
        (
            "namespaced",
            "com.amazonaws.gamelift#NotFoundException",
            "com.amazonaws.gamelift#NotFoundException",
        ),
    ] {
        front.services.style = serde_json::from_value(json!({"error_names": names})).unwrap();
        let (status, answer) = front.json("DescribeGameServer", &one());
        assert_eq!((status, answer["__type"].as_str()), (400, Some(in_json)), "{names}");
        assert!(answer["Message"].as_str().is_some_and(|message| message.contains("one")), "{names}");
        let reply = front.cbor("DescribeGameServer", members());
        let answer = cbor::read(&reply.body).unwrap();
        assert_eq!(answer.get("__type"), Some(&Value::from(in_cbor)), "{names}");
    }
    front.services.style = WireStyle { error_header: true, ..WireStyle::default() };
    let named = reply(front.json_conduct("DescribeGameServer", &one()));
    assert_eq!(header(&named, "x-amzn-errortype"), Some("NotFoundException"));
}

#[test]
fn a_deregistration_answers_nothing_or_an_empty_map() {
    for (writes_map, expected) in [(false, &b""[..]), (true, &b"\xa0"[..])] {
        let mut front = Front::new();
        front.services.style.empty_map_for_nothing = writes_map;
        front.register("one");
        let members = Members::new().with("GameServerGroupName", "pvp-eu").with("GameServerId", "one");
        let reply = front.cbor("DeregisterGameServer", members);
        assert_eq!((reply.status, reply.body.as_slice()), (200, expected));
        assert_eq!(header(&reply, "content-type").is_some(), writes_map);
        front.register("one");
        let reply = front.json_conduct("DeregisterGameServer", &one());
        assert!(matches!(reply, Conduct::Reply(reply) if reply.status == 200 && reply.body.is_empty()));
    }
}

#[test]
fn a_request_that_speaks_no_protocol_is_told_what_was_missing() {
    let mut front = Front::new();
    for (path, headers, hint) in [
        ("/", &[][..], "x-amz-target"),
        ("/", &[("x-amz-target", "DynamoDB_20120810.GetItem")][..], "GameLift.<Operation>"),
        ("/service/Other/operation/Do", &[("smithy-protocol", "rpc-v2-cbor")][..], "/service/GameLift"),
    ] {
        let reply = reply(front.send(path, headers, "").conduct);
        let body = String::from_utf8(reply.body).unwrap();
        assert_eq!(reply.status, 404, "{path}");
        assert!(body.contains(hint), "{path}: {body}");
    }
    let prefixed = "/some/where/service/GameLift/operation/ListGameServerGroups";
    let reply = reply(front.send(prefixed, &[("smithy-protocol", "rpc-v2-cbor")], "").conduct);
    assert_eq!(reply.status, 200, "an endpoint may have a path, and an empty body is an empty map");
}

#[test]
fn a_body_that_cannot_be_read_is_refused() {
    let mut front = Front::new();
    let target = [("x-amz-target", "GameLift.DescribeGameServer")];
    let answer = reply(front.send("/", &target, "{").conduct);
    let body = serde_json::from_slice::<Json>(&answer.body).unwrap();
    assert_eq!((answer.status, body["__type"].as_str()), (400, Some("SerializationException")));
}

#[test]
fn a_throttled_call_changes_nothing_and_is_not_modelled() {
    let mut front = Front::new();
    front.services.throttle.change(serde_json::from_value(json!({"profile": "tight"})).unwrap());
    for number in 0..4 {
        front.register(&format!("server-{number}"));
    }
    let body = json!({"GameServerGroupName": "pvp-eu", "GameServerId": "one", "InstanceId": front.instance});
    let (status, answer) = front.json("RegisterGameServer", &body);
    assert_eq!((status, answer), (400, json!({"__type": "ThrottlingException", "message": "Rate exceeded"})));
    assert_eq!(front.services.world.servers().count(), 4);
    testing::advance(&mut front.services, Duration::from_secs(1));
    front.register("one");
}

#[test]
fn a8_a_throttle_looks_as_the_parameters_have_it() {
    for (name, status) in [("ThrottlingException", 400), ("TooManyRequestsException", 429)] {
        let mut front = Front::new();
        let parameters = json!({"throttle_name": name, "throttle_status": status});
        testing::order(&mut front.services, json!({"order": "parameters", "parameters": parameters}));
        let nothing = json!({"limits": {"DescribeGameServer": {"burst": 0, "per_second": 0}}});
        front.services.throttle.change(serde_json::from_value(nothing).unwrap());
        let (answered, body) = front.json("DescribeGameServer", &one());
        assert_eq!((answered, body["__type"].as_str()), (status, Some(name)));
    }
}

#[test]
fn faults_come_before_the_call_or_after_it() {
    let mut front = Front::new();
    let instance = front.instance.clone();
    let register = json!({"GameServerGroupName": "pvp-eu", "GameServerId": "one", "InstanceId": instance});
    let registered = |front: &Front| front.services.world.servers().count();

    front.fault(json!({"effects": [{"effect": "error", "name": "InternalServiceException", "status": 500}]}));
    let (status, answer) = front.json("RegisterGameServer", &register);
    assert_eq!(
        (status, answer["__type"].as_str(), registered(&front)),
        (500, Some("InternalServiceException"), 0)
    );

    front.fault(json!({"effects": [{"effect": "unauthorized"}]}));
    let (_, answer) = front.json("RegisterGameServer", &register);
    assert_eq!((answer["__type"].as_str(), registered(&front)), (Some("AccessDeniedException"), 0));

    front.fault(json!({"effects": [{"effect": "hang"}]}));
    assert_eq!((front.json_conduct("RegisterGameServer", &register), registered(&front)), (Conduct::Hang, 0));

    front.fault(json!({"effects": [{"effect": "apply_then_fail"}]}));
    let conduct = front.json_conduct("RegisterGameServer", &register);
    assert_eq!((conduct, registered(&front)), (Conduct::Reset(ResetAt::Before), 1));

    front.fault(json!({"effects": [{"effect": "truncate", "after": 3}]}));
    let conduct = front.json_conduct("DescribeGameServer", &one());
    assert!(matches!(conduct, Conduct::Cut(reply, 3) if reply.status == 200));

    front.fault(
        json!({"effects": [{"effect": "raw", "status": 503, "content_type": "text/plain", "body": "busy"}]}),
    );
    let raw = reply(front.json_conduct("DescribeGameServer", &one()));
    assert_eq!((raw.status, raw.body.as_slice()), (503, &b"busy"[..]));

    front.fault(json!({"effects": [{"effect": "wrong_protocol"}]}));
    let wrong = reply(front.json_conduct("DescribeGameServer", &one()));
    assert_eq!(header(&wrong, "content-type"), Some("application/cbor"));
    assert!(cbor::read(&wrong.body).unwrap().get("GameServer").is_some());

    front.fault(json!({"effects": [{"effect": "duplicate"}]}));
    let (status, _) = front.json("ClaimGameServer", &one());
    assert_eq!(status, 400, "the second claim meets the first");

    front.fault(json!({"effects": [{"effect": "delay", "delay": {"fixed_ms": 250}}]}));
    let target = [("x-amz-target", "GameLift.DescribeGameServer")];
    assert_eq!(front.send("/", &target, one().to_string()).wait, Duration::from_millis(250));
}

#[test]
fn a_lost_status_is_not_shown() {
    let mut front = Front::new();
    let instance = front.instance.clone();
    let status = json!({"order": "status", "instance": instance, "status": "DRAINING"});
    testing::order(&mut front.services, status);
    let group = json!({"GameServerGroupName": "pvp-eu"});
    let shown = |front: &mut Front| {
        let (_, answer) = front.json("DescribeGameServerInstances", &group);
        let instances = answer["GameServerInstances"].as_array().unwrap().clone();
        let own = instances.into_iter().find(|one| one["InstanceId"] == front.instance.as_str()).unwrap();
        own["InstanceStatus"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown(&mut front), "DRAINING");
    front.fault(json!({"effects": [{"effect": "lose", "side": "describe"}]}));
    assert_eq!(shown(&mut front), "ACTIVE");
}

#[test]
fn auto_scaling_answers_in_xml() {
    let mut front = Front::new();
    let instance = front.instance.clone();
    let action = "Action=DescribeAutoScalingInstances&Version=2011-01-01";
    let (status, xml) =
        front.form(&format!("{action}&InstanceIds.member.1={instance}&InstanceIds.member.2=i-0"));
    assert_eq!(status, 200, "{xml}");
    for part in [
        "<DescribeAutoScalingInstancesResult><AutoScalingInstances><member>",
        &format!("<InstanceId>{instance}</InstanceId>"),
        "<AutoScalingGroupName>gamelift-gameservergroup-pvp-eu</AutoScalingGroupName>",
        "<HealthStatus>HEALTHY</HealthStatus>",
        "<LifecycleState>InService</LifecycleState>",
        "<ProtectedFromScaleIn>false</ProtectedFromScaleIn>",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    assert_eq!(xml.matches("<member>").count(), 1, "an id that nobody knows is left out");
    let (_, xml) = front.form("Action=DescribeAutoScalingGroups");
    assert!(xml.contains("<HealthStatus>Healthy</HealthStatus>"), "{xml}");
    let (status, xml) = front.form("Action=MakeTea");
    assert_eq!((status, xml.contains("<Code>InvalidAction</Code>")), (400, true), "{xml}");
    let terminate = format!(
        "Action=TerminateInstanceInAutoScalingGroup&InstanceId={instance}&ShouldDecrementDesiredCapacity=true"
    );
    assert_eq!(front.form(&terminate).0, 200);
    assert_eq!(front.form("Action=DescribeLifecycleHooks&AutoScalingGroupName=none").0, 400);
}

#[test]
fn requests_are_remembered_with_their_attempts() {
    let mut front = Front::new();
    let headers = [
        ("x-amz-target", "GameLift.DescribeGameServer"),
        ("amz-sdk-invocation-id", "call-1"),
        ("amz-sdk-request", "attempt=2; max=3"),
    ];
    front.send("/", &headers, one().to_string());
    let entry = front.services.journal.about(Some("DescribeGameServer"), Some("one")).next().unwrap();
    assert_eq!(entry.invocation.as_deref(), Some("call-1"));
    assert_eq!(entry.attempt.as_deref(), Some("attempt=2; max=3"));
    assert_eq!(entry.decision, "NotFoundException");
}

#[test]
fn no_date_is_sent_unless_it_shall_be_wrong() {
    let mut front = Front::new();
    let described = reply(front.json_conduct("ListGameServerGroups", &json!({})));
    assert_eq!(header(&described, "date"), None);
    front.services.style.date_offset_ms = Some(3_600_000);
    let described = reply(front.json_conduct("ListGameServerGroups", &json!({})));
    assert_eq!(header(&described, "date"), Some("Mon, 21 Sep 2026 13:00:00 GMT"));
}
