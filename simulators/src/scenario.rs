//! Stories that come with the program: what there is at the start, and what happens when.
//!
//! In each, a stranger claims game servers at random, since anybody who may call may claim.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::faults::Rule;
use crate::metadata::Switches;
use crate::throttle::Profile;
use crate::world::{InstanceId, Order};

/// A story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// What it is about, in a sentence.
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) throttle: Profile,
    pub(crate) orders: Vec<Order>,
    #[serde(default)]
    pub(crate) faults: BTreeMap<String, Rule>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<InstanceId, Switches>,
}

/// Why there is no such story.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    #[error("there is no scenario {name}; there are {}", names().join(", "))]
    Unknown { name: String },
    #[error("could not read the scenario {name}")]
    Read { name: String, source: serde_json::Error },
}

macro_rules! scenarios {
    ($($name:literal),+ $(,)?) => {
        const SCENARIOS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../scenarios/", $name, ".json")))),+];
    };
}

scenarios![
    "ambiguous",
    "aws-down",
    "az-rebalance",
    "demo",
    "drain-idle",
    "drain-one",
    "flap",
    "happy",
    "imds-401",
    "imds-503",
    "imds-hop1",
    "silent-redis",
    "spot",
    "spot-lost-notice",
    "spot-no-rebalance",
    "stolen-claim",
    "throttle-storm",
];

/// The names of all stories.
pub(crate) fn names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|(name, _)| *name).collect()
}

impl Scenario {
    pub(crate) fn named(name: &str) -> Result<Self, ScenarioError> {
        let unknown = || ScenarioError::Unknown { name: name.to_owned() };
        let (_, text) = SCENARIOS.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        serde_json::from_str(text).map_err(|source| ScenarioError::Read { name: name.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing;
    use crate::world::{EventKind, GroupName, Register, ServerId, Update, Utilization};

    fn run(name: &str, seconds: u64) -> crate::services::Services {
        let mut services = testing::services();
        services.reset(Some(&Scenario::named(name).unwrap())).unwrap();
        testing::advance(&mut services, Duration::from_secs(seconds));
        services
    }

    #[test]
    fn every_story_can_be_told_and_has_a_stranger() {
        for name in names() {
            let scenario = Scenario::named(name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert!(!scenario.about.is_empty(), "{name}");
            let has_stranger =
                scenario.orders.iter().any(|order| matches!(order, Order::Stranger { every_ms: Some(_) }));
            assert!(has_stranger, "{name} has no stranger");
            let services = run(name, 3600);
            assert!(!services.world.events_since(0).is_empty(), "{name}");
        }
        assert!(Scenario::named("nothing").is_err());
    }

    #[test]
    fn a_story_of_a_drain_ends_well_for_whoever_keeps_the_instance_utilized() {
        let instance = "i-0f3a9c2b7d1e45680";
        let group = GroupName::parse("pvp-eu").unwrap();
        let server = ServerId::parse(instance).unwrap();
        for (keeps, violations) in [(true, 0), (false, 1)] {
            let mut services = run("drain-one", 0);
            let register = Register {
                group: group.clone(),
                server: server.clone(),
                instance: InstanceId::parse(instance).unwrap(),
                connection: None,
                data: None,
            };
            services.world.register(register).unwrap();
            let mut sessions = Vec::new();
            for _ in 0..9 {
                if keeps {
                    let update = Update {
                        group: group.clone(),
                        server: server.clone(),
                        data: None,
                        utilization: Some(Utilization::Utilized),
                        is_healthy: true,
                    };
                    services.world.update(update).unwrap();
                }
                sessions.push(services.world.instance(instance).map_or(0, |instance| instance.sessions));
                testing::advance(&mut services, Duration::from_secs(30));
            }
            assert_eq!(services.world.audit().violations.len(), violations, "{keeps}");
            if keeps {
                assert_eq!(sessions, [2, 2, 2, 2, 2, 2, 1, 1, 0]);
            }
        }
    }

    #[test]
    fn the_stories_happen_as_they_say() {
        for (name, seconds, kind, count) in [
            ("drain-one", 60, EventKind::Status, 1),
            ("drain-idle", 60, EventKind::Status, 1),
            ("spot", 30, EventKind::Rebalance, 1),
            ("spot", 300, EventKind::SpotNotice, 1),
            ("spot-no-rebalance", 3600, EventKind::Rebalance, 0),
            ("spot-no-rebalance", 3600, EventKind::SpotNotice, 0),
            ("spot-lost-notice", 310, EventKind::SpotNotice, 1),
            ("spot-lost-notice", 310, EventKind::Status, 0),
            ("flap", 95, EventKind::Status, 3),
            ("throttle-storm", 1, EventKind::Launched, 1000),
            ("az-rebalance", 3600, EventKind::Terminated, 1),
        ] {
            let services = run(name, seconds);
            let seen = services.world.events_since(0).iter().filter(|event| event.kind == kind).count();
            assert_eq!(seen, count, "{name} at {seconds} s: {kind:?}");
        }
    }
}
