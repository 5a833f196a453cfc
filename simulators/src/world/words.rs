//! The words of the imitated account: identifiers that have been checked, and the states that things are in.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// A length of time, as people write it in orders and scenarios: a whole number of milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Milliseconds(pub(crate) u64);

impl Milliseconds {
    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    pub(crate) const fn of_seconds(seconds: u64) -> Self {
        Self(seconds * 1000)
    }
}

/// Text of `least` to `most` characters of which each is `allowed`.
fn check(
    field: &'static str,
    text: &str,
    (least, most): (usize, usize),
    allowed: impl Fn(char) -> bool,
) -> Result<(), Refusal> {
    let length = text.chars().count();
    if !(least..=most).contains(&length) {
        return Err(Refusal::invalid(format!(
            "{field} must have {least} to {most} characters, not {length}"
        )));
    }
    match text.chars().find(|letter| !allowed(*letter)) {
        Some(letter) => Err(Refusal::invalid(format!("{field} must not contain {letter:?}"))),
        None => Ok(()),
    }
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.')
}

/// Text that has something to read: `GameServerData` and `ConnectionInfo`.
pub(crate) fn readable(field: &'static str, text: &str, most: usize) -> Result<String, Refusal> {
    check(field, text, (1, most), |_| true)?;
    if text.trim().is_empty() {
        return Err(Refusal::invalid(format!("{field} must contain something other than spaces")));
    }
    Ok(text.to_owned())
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

identifier! {
    /// The name of a game server group; requests may give its ARN instead.
    GroupName
}
identifier! {
    /// What a game server is registered as; unique in the account.
    ServerId
}
identifier! {
    /// An EC2 instance, in the long form.
    InstanceId
}

impl GroupName {
    /// The name in a name or an ARN.
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        const FIELD: &str = "GameServerGroupName";
        check(FIELD, text, (1, 256), |_| true)?;
        let name = match text.split_once(":gameservergroup/") {
            Some((head, name)) if head.starts_with("arn:") => name,
            Some(_) => return Err(Refusal::invalid(format!("{FIELD} is neither a name nor an ARN"))),
            None => text,
        };
        check(FIELD, name, (1, 128), is_name_letter)?;
        Ok(Self(name.to_owned()))
    }

    /// The Auto Scaling group that FleetIQ makes for the group.
    pub(crate) fn scaling_group(&self) -> String {
        format!("{SCALING_GROUP_PREFIX}{}", self.0)
    }

    /// The group that an Auto Scaling group belongs to.
    pub(crate) fn of_scaling_group(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix(SCALING_GROUP_PREFIX)?).ok()
    }
}

const SCALING_GROUP_PREFIX: &str = "gamelift-gameservergroup-";

impl ServerId {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        check("GameServerId", text, (3, 128), is_name_letter)?;
        Ok(Self(text.to_owned()))
    }
}

impl InstanceId {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let tail = text.strip_prefix("i-").unwrap_or_default();
        if tail.len() == 17 && tail.chars().all(|letter| letter.is_ascii_alphanumeric()) {
            return Ok(Self(text.to_owned()));
        }
        Err(Refusal::invalid("InstanceId must be i- and 17 letters and digits"))
    }

    /// The id with this number in it.
    pub(crate) fn of(number: u64) -> Self {
        Self(format!("i-0{number:016x}"))
    }
}

/// A word that must be one of those that a field knows.
pub(crate) fn known<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Refusal> {
    T::deserialize(StrDeserializer::<value::Error>::new(text))
        .map_err(|_| Refusal::invalid(format!("{field} knows no value {text:?}")))
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }
    };
}

kinds! {
    /// Whether FleetIQ thinks that an instance will stay.
    InstanceStatus { Active = "ACTIVE", Draining = "DRAINING", SpotTerminating = "SPOT_TERMINATING" }
}
kinds! {
    /// Whether players are on a server; it never goes back.
    Utilization { Available = "AVAILABLE", Utilized = "UTILIZED" }
}
kinds! {
    /// What kinds of instances a group takes.
    Balancing { SpotOnly = "SPOT_ONLY", SpotPreferred = "SPOT_PREFERRED", OnDemandOnly = "ON_DEMAND_ONLY" }
}
kinds! {
    /// Whether utilized servers keep their instance.
    Protection { Off = "NO_PROTECTION", Full = "FULL_PROTECTION" }
}
kinds! {
    /// The life of a group.
    GroupStatus {
        New = "NEW",
        Activating = "ACTIVATING",
        Active = "ACTIVE",
        DeleteScheduled = "DELETE_SCHEDULED",
        Deleting = "DELETING",
        Deleted = "DELETED",
        Error = "ERROR",
    }
}
/// How a group is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum DeleteOption {
    #[serde(rename = "SAFE_DELETE")]
    Safe,
    #[serde(rename = "FORCE_DELETE")]
    Force,
    #[serde(rename = "RETAIN")]
    Retain,
}

kinds! {
    /// How an instance is paid for.
    Market { Spot = "spot", OnDemand = "on-demand" }
}
kinds! {
    /// The order of a list.
    SortOrder { Ascending = "ASCENDING", Descending = "DESCENDING" }
}
kinds! {
    /// What a hook wants done with the instance that waits for it.
    HookResult { Continue = "CONTINUE", Abandon = "ABANDON" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_checked_as_the_service_does() {
        let long = "x".repeat(129);
        for (text, accepted) in [
            ("pvp-eu", true),
            ("a", true),
            ("a.b-C9", true),
            ("", false),
            ("a_b", false),
            ("a b", false),
            (long.as_str(), false),
            ("arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu", true),
            ("arn:aws:gamelift:eu-central-1:111122223333:fleet/pvp-eu", false),
            ("x:gameservergroup/pvp-eu", false),
        ] {
            assert_eq!(GroupName::parse(text).is_ok(), accepted, "group {text:?}");
        }
        for (text, accepted) in
            [("ab", false), ("abc", true), (&long[1..], true), (long.as_str(), false), ("a/c", false)]
        {
            assert_eq!(ServerId::parse(text).is_ok(), accepted, "server {text:?}");
        }
        for (text, accepted) in [
            ("i-0f3a9c2b7d1e45680", true),
            ("i-0f3a9c2b", false),
            ("i-0f3a9c2b7d1e4568", false),
            ("i-0f3a9c2b7d1e456800", false),
            ("0f3a9c2b7d1e4568000", false),
            ("i-0f3a9c2b7d1e4568-", false),
        ] {
            assert_eq!(InstanceId::parse(text).is_ok(), accepted, "instance {text:?}");
        }
    }

    #[test]
    fn an_arn_names_the_same_group() {
        let arn = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";
        assert_eq!(GroupName::parse(arn).unwrap(), GroupName::parse("pvp-eu").unwrap());
    }

    #[test]
    fn a_scaling_group_leads_back_to_its_group() {
        let group = GroupName::parse("pvp-eu").unwrap();
        assert_eq!(group.scaling_group(), "gamelift-gameservergroup-pvp-eu");
        assert_eq!(GroupName::of_scaling_group(&group.scaling_group()), Some(group));
        assert_eq!(GroupName::of_scaling_group("workers"), None);
    }

    #[test]
    fn data_must_be_readable() {
        for (text, accepted) in [("map=harbour", true), ("", false), ("   ", false), (" x ", true)] {
            assert_eq!(readable("GameServerData", text, 1024).is_ok(), accepted, "{text:?}");
        }
        assert!(readable("GameServerData", &"x".repeat(1024), 1024).is_ok());
        assert!(readable("GameServerData", &"x".repeat(1025), 1024).is_err());
    }
}
