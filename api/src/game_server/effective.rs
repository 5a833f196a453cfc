//! What a field of a spec means when its author left it out. Pure; the values are those of `agones.dev/v1`.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;

use super::{Counter, EvictionSafe, GameServerSpec, List, PortSpec, Scheduling};

/// When silence means failure, with every default filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HealthRule {
    /// No pings are expected.
    pub disabled: bool,
    /// Within which a ping is due.
    pub period: Duration,
    /// Missed pings in a row that mean failure.
    pub failure_threshold: u32,
    /// After the start of the game, in which nothing is expected.
    pub initial_delay: Duration,
}

const HEALTH_PERIOD_SECONDS: i64 = 5;
const HEALTH_FAILURE_THRESHOLD: i64 = 3;
const HEALTH_INITIAL_DELAY_SECONDS: i64 = 5;
const SDK_GRPC_PORT: u16 = 9357;
const SDK_HTTP_PORT: u16 = 9358;

impl GameServerSpec {
    /// The rule for pings. Zero and negative numbers mean the default, an explicit `initialDelaySeconds: 0` too.
    pub fn health_rule(&self) -> HealthRule {
        let health = self.health.clone().unwrap_or_default();
        let or = |given: Option<i64>, default: i64| given.filter(|given| *given > 0).unwrap_or(default);
        let seconds = |given, default| Duration::from_secs(or(given, default).unsigned_abs());
        HealthRule {
            disabled: health.disabled.unwrap_or(false),
            period: seconds(health.period_seconds, HEALTH_PERIOD_SECONDS),
            failure_threshold: u32::try_from(or(health.failure_threshold, HEALTH_FAILURE_THRESHOLD))
                .unwrap_or(u32::MAX),
            initial_delay: seconds(health.initial_delay_seconds, HEALTH_INITIAL_DELAY_SECONDS),
        }
    }

    /// How the server spreads over nodes.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.unwrap_or_default()
    }

    /// Ports of the SDK in the pod: gRPC, then REST.
    pub fn sdk_ports(&self) -> (u16, u16) {
        let given = self.sdk_server.clone().unwrap_or_default();
        (given.grpc_port.unwrap_or(SDK_GRPC_PORT), given.http_port.unwrap_or(SDK_HTTP_PORT))
    }

    /// The ports, where there are any.
    pub fn ports(&self) -> &[PortSpec] {
        self.ports.as_deref().unwrap_or_default()
    }

    /// The rule for evictions that the spec asks for.
    pub fn eviction_safe(&self) -> EvictionSafe {
        self.eviction.as_ref().and_then(|eviction| eviction.safe).unwrap_or_default()
    }

    /// Name of the container that is the game: the only one of the pod, whatever the spec says, else the named one.
    pub fn game_container<'a>(&'a self, pod: &'a PodSpec) -> Option<&'a str> {
        match pod.containers.as_slice() {
            [only] => Some(only.name.as_str()),
            _ => self.container.as_deref().filter(|name| pod.containers.iter().any(|one| one.name == *name)),
        }
    }
}

impl Counter {
    /// What the schema fills in: 0 of 1,000.
    pub fn filled(&self) -> Self {
        Self { count: self.count.or(Some(0)), capacity: self.capacity.or(Some(1000)) }
    }
}

impl List {
    /// What the schema fills in: nothing, of 1,000.
    pub fn filled(&self) -> Self {
        Self { capacity: self.capacity.or(Some(1000)), values: Some(self.values.clone().unwrap_or_default()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{Container, PodSpec};

    use super::HealthRule;
    use crate::game_server::{GameServerSpec, HealthSpec};

    #[test]
    fn an_absent_or_zero_health_field_means_its_default() {
        let zeros = HealthSpec {
            period_seconds: Some(0),
            failure_threshold: Some(0),
            initial_delay_seconds: Some(0),
            ..HealthSpec::default()
        };
        let default = HealthRule {
            disabled: false,
            period: Duration::from_secs(5),
            failure_threshold: 3,
            initial_delay: Duration::from_secs(5),
        };
        for health in [None, Some(HealthSpec::default()), Some(zeros)] {
            assert_eq!(GameServerSpec { health, ..GameServerSpec::default() }.health_rule(), default);
        }
    }

    #[test]
    fn the_only_container_is_the_game_whatever_the_spec_says() {
        let named = |name: &str| Container { name: name.to_owned(), ..Container::default() };
        let one = PodSpec { containers: vec![named("main")], ..PodSpec::default() };
        let two = PodSpec { containers: vec![named("main"), named("log")], ..PodSpec::default() };
        let spec = |name: Option<&str>| GameServerSpec {
            container: name.map(str::to_owned),
            ..GameServerSpec::default()
        };
        assert_eq!(spec(Some("other")).game_container(&one), Some("main"));
        assert_eq!(spec(None).game_container(&one), Some("main"));
        assert_eq!(spec(Some("log")).game_container(&two), Some("log"));
        assert_eq!(spec(Some("other")).game_container(&two), None);
        assert_eq!(spec(None).game_container(&two), None);
    }
}
