//! What the publisher of FleetIQ's instance statuses says on Redis: a message on a channel, and a retained state beside
//! it for those who come late.
//!
//! The channel is that of the GameLift FleetIQ adapter: the bare instance id, and a JSON object of four strings. The
//! keys are ours.

use serde::{Deserialize, Serialize};

/// FleetIQ's judgement of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstanceStatus {
    /// Viable.
    Active,
    /// Not viable: it ends when nobody plays on it any more.
    Draining,
    /// EC2 is interrupting it.
    SpotTerminating,
}

impl InstanceStatus {
    /// As it stands on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Draining => "DRAINING",
            Self::SpotTerminating => "SPOT_TERMINATING",
        }
    }
}

/// One message on an instance's channel. A reader takes any order of members, any blanks, and members it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceMessage {
    /// Name of the game server group.
    #[serde(default)]
    pub game_server_group_name: String,
    /// Its ARN.
    #[serde(default)]
    pub game_server_group_arn: String,
    /// The instance, such as `i-0f3a9c2b7d1e45680`.
    pub instance_id: String,
    /// The judgement.
    pub instance_status: InstanceStatus,
}

impl InstanceMessage {
    /// The bytes that go out: the members in this order, with a blank after each comma and colon, which is what readers
    /// of the channel have seen so far.
    #[must_use]
    pub fn to_wire(&self) -> String {
        let Self { game_server_group_name, game_server_group_arn, instance_id, instance_status } = self;
        let members = [
            ("GameServerGroupName", game_server_group_name.as_str()),
            ("GameServerGroupArn", game_server_group_arn.as_str()),
            ("InstanceId", instance_id.as_str()),
            ("InstanceStatus", instance_status.as_str()),
        ]
        .map(|(name, value)| format!("\"{name}\": {}", serde_json::Value::from(value)));
        format!("{{{}}}", members.join(", "))
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is not JSON, has no instance or status, or a status that nobody knows.
    pub fn from_wire(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// What is kept of an instance for those who subscribe late, under [`instance_key`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RetainedInstance {
    /// The message that was, or would be, published.
    #[serde(flatten)]
    pub message: InstanceMessage,
    /// RFC 3339 time, in milliseconds, at which FleetIQ said so.
    pub observed_at: String,
    /// RFC 3339 time at which it said so for the first time.
    pub changed_at: String,
    /// Who observed it.
    pub publisher: String,
    /// Whether Auto Scaling keeps the instance from being scaled in; absent where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_from_scale_in: Option<bool>,
}

/// What is kept of a group, under [`group_key`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RetainedGroup {
    /// Instances in the group.
    pub instance_count: u64,
    /// Of these, viable.
    pub active: u64,
    /// Of these, not viable.
    pub draining: u64,
    /// Of these, being interrupted.
    pub spot_terminating: u64,
    /// RFC 3339 time of the poll.
    pub polled_at: String,
    /// `NO_PROTECTION` or `FULL_PROTECTION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection_policy: Option<String>,
    /// `SPOT_ONLY`, `SPOT_PREFERRED` or `ON_DEMAND_ONLY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balancing_strategy: Option<String>,
    /// Status of the group, such as `ACTIVE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_status: Option<String>,
}

/// How the publisher of a group is, under [`publisher_key`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PublisherState {
    /// RFC 3339 time of the last poll that came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<String>,
    /// What was wrong with the last one that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How many in a row did not.
    pub consecutive_errors: u64,
}

/// Key of a [`RetainedInstance`]. The braces keep related keys on one node of a cluster.
#[must_use]
pub fn instance_key(instance: &str) -> String {
    format!("fleetiq:instance:{{{instance}}}")
}

/// Key of a [`RetainedGroup`].
#[must_use]
pub fn group_key(group: &str) -> String {
    format!("fleetiq:group:{{{group}}}")
}

/// Key of a [`PublisherState`].
#[must_use]
pub fn publisher_key(group: &str) -> String {
    format!("fleetiq:publisher:{{{group}}}")
}

#[cfg(test)]
mod tests {
    use super::{InstanceMessage, InstanceStatus, RetainedInstance, instance_key};

    const WIRE: &str = r#"{"GameServerGroupName": "pvp-eu", "GameServerGroupArn": "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu", "InstanceId": "i-0f3a9c2b7d1e45680", "InstanceStatus": "DRAINING"}"#;

    fn message() -> InstanceMessage {
        InstanceMessage {
            game_server_group_name: "pvp-eu".into(),
            game_server_group_arn: "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu".into(),
            instance_id: "i-0f3a9c2b7d1e45680".into(),
            instance_status: InstanceStatus::Draining,
        }
    }

    #[test]
    fn the_bytes_are_those_that_readers_know() {
        assert_eq!(message().to_wire(), WIRE);
    }

    #[test]
    fn any_order_blanks_and_unknown_members_are_read() {
        let other = r#"{"InstanceStatus":"DRAINING","New":1,"InstanceId":"i-0f3a9c2b7d1e45680",
            "GameServerGroupArn":"arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu","GameServerGroupName":"pvp-eu"}"#;
        for wire in [WIRE, other] {
            assert_eq!(InstanceMessage::from_wire(wire.as_bytes()).unwrap(), message());
        }
        for wrong in [
            "",
            "[]",
            r#"{"InstanceId":"i-1"}"#,
            r#"{"InstanceId":"i-1","InstanceStatus":"RESTING"}"#,
            "\u{0}",
        ] {
            assert!(InstanceMessage::from_wire(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_holds_the_four_members_beside_its_own() {
        let kept = RetainedInstance {
            message: message(),
            observed_at: "2026-09-21T14:05:00.250Z".into(),
            changed_at: "2026-09-21T14:04:00.000Z".into(),
            publisher: "pubsub-1".into(),
            protected_from_scale_in: None,
        };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(InstanceMessage::from_wire(text.as_bytes()).unwrap(), message());
        assert_eq!(serde_json::from_str::<RetainedInstance>(&text).unwrap(), kept);
        assert_eq!(instance_key("i-1"), "fleetiq:instance:{i-1}");
    }
}
