//! What requests may hold.

use super::*;
use crate::wire::json;

const GROUP: &str = r#""GameServerGroupName": "pvp-eu", "GameServerId": "one""#;

fn read_json(operation: &str, members: &str) -> Result<Call, Refusal> {
    read(operation, &json::read(format!("{{{members}}}").as_bytes()).unwrap())
}

#[test]
fn every_operation_is_read() {
    let create = r#""GameServerGroupName": "new", "RoleArn": "arn:aws:iam::111122223333:role/fleetiq", "MinSize": 0,
        "MaxSize": 4, "InstanceDefinitions": [{"InstanceType": "a", "WeightedCapacity": "2"}, {"InstanceType": "b"}]"#;
    for operation in OPERATIONS {
        let members = match *operation {
            "RegisterGameServer" => format!(r#"{GROUP}, "InstanceId": "i-0f3a9c2b7d1e45680""#),
            "CreateGameServerGroup" => create.to_owned(),
            "SuspendGameServerGroup" => format!(r#"{GROUP}, "SuspendActions": ["REPLACE_INSTANCE_TYPES"]"#),
            "ResumeGameServerGroup" => format!(r#"{GROUP}, "ResumeActions": ["REPLACE_INSTANCE_TYPES"]"#),
            _ => GROUP.to_owned(),
        };
        let call = read_json(operation, &members);
        assert!(call.is_ok(), "{operation}: {call:?}");
    }
    assert_eq!(read_json("MakeTea", "").unwrap_err().kind, RefusalKind::UnknownOperation);
}

#[test]
fn what_is_wrong_is_refused_by_its_name() {
    for (operation, members, field) in [
        ("DescribeGameServer", r#""GameServerGroupName": "pvp-eu""#, "GameServerId"),
        (
            "DescribeGameServer",
            r#""GameServerGroupName": null, "GameServerId": "one""#,
            "GameServerGroupName",
        ),
        ("DescribeGameServer", r#""GameServerGroupName": 7, "GameServerId": "one""#, "GameServerGroupName"),
        ("DescribeGameServer", r#""GameServerGroupName": "a", "GameServerId": "x""#, "GameServerId"),
        ("RegisterGameServer", &format!(r#"{GROUP}, "InstanceId": "i-0f3a9c2b""#), "InstanceId"),
        ("UpdateGameServer", &format!(r#"{GROUP}, "GameServerData": "  ""#), "GameServerData"),
        ("UpdateGameServer", &format!(r#"{GROUP}, "HealthCheck": "UNHEALTHY""#), "HealthCheck"),
        ("UpdateGameServer", &format!(r#"{GROUP}, "UtilizationStatus": "BUSY""#), "UtilizationStatus"),
        ("ListGameServers", &format!(r#"{GROUP}, "Limit": 0"#), "Limit"),
        ("ListGameServers", &format!(r#"{GROUP}, "Limit": 1.5"#), "Limit"),
        ("ListGameServers", &format!(r#"{GROUP}, "NextToken": """#), "NextToken"),
        ("ListGameServers", &format!(r#"{GROUP}, "SortOrder": "UP""#), "SortOrder"),
        ("DescribeGameServerInstances", &format!(r#"{GROUP}, "InstanceIds": []"#), "InstanceIds"),
        ("DescribeGameServerInstances", &format!(r#"{GROUP}, "InstanceIds": ["i-1"]"#), "InstanceId"),
        (
            "ClaimGameServer",
            &format!(r#"{GROUP}, "FilterOption": {{"InstanceStatuses": ["DRAINING"]}}"#),
            "InstanceStatuses",
        ),
        (
            "ClaimGameServer",
            &format!(r#"{GROUP}, "FilterOption": {{"InstanceStatuses": ["ACTIVE", "SPOT_TERMINATING"]}}"#),
            "InstanceStatuses",
        ),
    ] {
        let refusal = read_json(operation, members).expect_err(members);
        assert_eq!(refusal.kind, RefusalKind::InvalidRequest, "{members}");
        assert!(refusal.message.contains(field), "{members}: {refusal}");
    }
}

#[test]
fn at_most_twenty_instances_are_asked_about() {
    let ids = |count: usize| {
        let ids = vec![r#""i-0f3a9c2b7d1e45680""#; count].join(",");
        read_json("DescribeGameServerInstances", &format!(r#"{GROUP}, "InstanceIds": [{ids}]"#))
    };
    assert!(ids(20).is_ok(), "the same one twenty times is no error");
    assert!(ids(21).is_err());
}

#[test]
fn a_filter_says_whether_draining_will_do() {
    for (filter, expected) in [
        ("", None),
        (r#", "FilterOption": {}"#, None),
        (r#", "FilterOption": {"InstanceStatuses": ["ACTIVE"]}"#, Some(false)),
        (r#", "FilterOption": {"InstanceStatuses": ["DRAINING", "ACTIVE"]}"#, Some(true)),
    ] {
        let Call::Claim(claim) = read_json("ClaimGameServer", &format!("{GROUP}{filter}")).unwrap() else {
            panic!("a claim is a claim")
        };
        assert_eq!(claim.filter.map(|filter| filter.allows_draining), expected, "{filter}");
    }
}

#[test]
fn members_that_nobody_knows_are_ignored() {
    assert!(read_json("DescribeGameServer", &format!(r#"{GROUP}, "Colour": "red""#)).is_ok());
}
