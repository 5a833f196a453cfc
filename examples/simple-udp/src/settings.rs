//! What the game is told by flags, each with an environment twin, checked before anything starts.

use std::net::IpAddr;
use std::time::Duration;

use clap::{ArgAction, Parser};

/// An example game server: UDP and TCP echo with the usual commands, on the SDK protocol.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "simple-udp", version)]
pub(crate) struct Settings {
    /// Port for UDP and TCP; 0 takes free ones, which are printed
    #[arg(long, env = "PORT", default_value_t = 7654)]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, env = "BIND", default_value = "0.0.0.0")]
    pub(crate) bind: IpAddr,
    /// Listen on UDP
    #[arg(long, env = "UDP", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) udp: bool,
    /// Listen on TCP
    #[arg(long, env = "TCP", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) tcp: bool,
    /// Listen on the game server's first host port instead of --port, as one with the policy Passthrough must
    #[arg(long, env = "PASSTHROUGH", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) passthrough: bool,
    /// Call Ready at the start; otherwise the command READY does
    #[arg(long, env = "READY", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) ready: bool,
    /// Time between the start and calling Ready, such as 5s
    #[arg(long, env = "READY_DELAY", default_value = "0s", value_parser = duration)]
    pub(crate) ready_delay: Duration,
    /// End this long after Ready
    #[arg(long, env = "AUTOMATIC_SHUTDOWN_DELAY", value_parser = duration)]
    pub(crate) automatic_shutdown_delay: Option<Duration>,
    /// End this long after being Allocated; without a value at once
    #[arg(long, env = "AUTOMATIC_SHUTDOWN_AFTER_ALLOCATED", value_parser = duration, num_args = 0..=1, default_missing_value = "0s")]
    pub(crate) automatic_shutdown_after_allocated: Option<Duration>,
    /// Time between two Health pings
    #[arg(long, env = "HEALTH_PERIOD", default_value = "2s", value_parser = duration)]
    pub(crate) health_period: Duration,
    /// Host of the SDK server
    #[arg(long, env = "AGONES_SDK_GRPC_HOST", default_value = "localhost")]
    pub(crate) sdk_host: String,
    /// gRPC port of the SDK server
    #[arg(long, env = "AGONES_SDK_GRPC_PORT", default_value_t = 9357)]
    pub(crate) sdk_port: u16,
    /// How long to try to reach the SDK server; 0s tries once
    #[arg(long, env = "CONNECT_LIMIT", default_value = "30s", value_parser = duration)]
    pub(crate) connect_limit: Duration,
    /// Send one Health ping before anything else, wait for the answer and end: an init container
    #[arg(long, env = "INIT_HEALTH")]
    pub(crate) init_health: bool,
}

impl Settings {
    /// What no single flag can check.
    ///
    /// # Errors
    /// A sentence that names the flag and its limit.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.udp && !self.tcp && !self.init_health {
            return Err("--udp and --tcp are both false: one of them must be true".to_owned());
        }
        if self.health_period < Duration::from_millis(1) {
            return Err("--health-period must be 1ms or more".to_owned());
        }
        if self.sdk_port == 0 {
            return Err("--sdk-port (AGONES_SDK_GRPC_PORT) must be 1 to 65535".to_owned());
        }
        Ok(())
    }

    /// Where the SDK server answers. An IPv6 address gets its brackets.
    pub(crate) fn sdk_endpoint(&self) -> String {
        match self.sdk_host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("http://[{address}]:{}", self.sdk_port),
            _ => format!("http://{}:{}", self.sdk_host, self.sdk_port),
        }
    }
}

/// A duration with units (`1m30s`, `500ms`), or a bare number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is no duration; write 10s, 500ms, 1m30s, or a number of seconds");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let span: jiff::SignedDuration = text.parse().map_err(|_| refused())?;
    Duration::try_from(span).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, String> {
        let arguments = std::iter::once("simple-udp").chain(arguments.iter().copied());
        let settings = Settings::try_parse_from(arguments).map_err(|error| error.to_string())?;
        settings.check()?;
        Ok(settings)
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, milliseconds) in [
            ("10s", Some(10_000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("7", Some(7_000)),
            ("0", Some(0)),
        ] {
            assert_eq!(duration(text).ok().map(|given| given.as_millis()), milliseconds, "{text}");
        }
        for text in ["", "soon", "-5s", "-5", "5 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_may_be_bare_or_have_a_value() {
        let settings = parse(&["--tcp", "false", "--udp", "--automatic-shutdown-after-allocated"]).unwrap();
        assert!(settings.udp && !settings.tcp);
        assert_eq!(settings.automatic_shutdown_after_allocated, Some(Duration::ZERO));
        let settings = parse(&["--ready=false", "--automatic-shutdown-after-allocated=3s"]).unwrap();
        assert!(!settings.ready);
        assert_eq!(settings.automatic_shutdown_after_allocated, Some(Duration::from_secs(3)));
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let cases: [(&[&str], &str); 5] = [
            (&["--udp=false", "--tcp=false"], "--udp and --tcp"),
            (&["--health-period", "0s"], "--health-period"),
            (&["--sdk-port", "0"], "--sdk-port"),
            (&["--port", "70000"], "--port"),
            (&["--ready-delay", "soon"], "--ready-delay"),
        ];
        for (arguments, named) in cases {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(named), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn an_ipv6_host_gets_brackets() {
        assert_eq!(parse(&["--sdk-host", "::1"]).unwrap().sdk_endpoint(), "http://[::1]:9357");
        assert_eq!(parse(&[]).unwrap().sdk_endpoint(), "http://localhost:9357");
    }
}
