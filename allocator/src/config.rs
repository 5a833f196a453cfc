//! Settings: flags with environment twins, parsed once. Names that other allocators' deployments set are taken too.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use berth_runtime::kube_client::KubeSettings;
use berth_runtime::telemetry::LogSettings;
use clap::Parser;

use crate::certs::CertsFlags;

/// The allocator of Berth: one game server for one session, at once
#[derive(Debug, Parser)]
#[command(name = "berth-allocator", version)]
pub struct CommandLine {
    /// What to do; without a word, `run`
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`
    #[command(flatten)]
    pub run: Settings,
}

/// What the program is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve allocations (the default)
    Run(Box<Settings>),
    /// Make certificates to begin with, as files or as Secrets
    Certs(CertsFlags),
}

/// Settings of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Where the API server is
    #[command(flatten)]
    pub kube: KubeSettings,
    /// How to log
    #[command(flatten)]
    pub log: LogSettings,
    /// Address for /livez, /readyz and /metrics; without it there is no such endpoint
    #[arg(long, env = "BERTH_ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// Address that all ports below are of
    #[arg(long, env = "BERTH_ALLOCATOR_ADDRESS", default_value = "::")]
    pub address: IpAddr,
    /// Port of the allocator service over gRPC; -1 turns it off, 0 takes a free one
    #[arg(long, env = "GRPC_PORT", default_value = "8443", value_parser = port, allow_hyphen_values = true)]
    pub grpc_port: Port,
    /// Port of the allocator service over REST; may be the same as for gRPC; -1 turns it off, 0 takes a free one
    #[arg(long, env = "HTTP_PORT", default_value = "8443", value_parser = port, allow_hyphen_values = true)]
    pub http_port: Port,
    /// Port of the aggregated API allocation.agones.dev/v1; -1 turns it off, 0 takes a free one
    #[arg(long, env = "BERTH_ALLOCATION_API_PORT", default_value = "8444", value_parser = port, allow_hyphen_values = true)]
    pub api_port: Port,
    /// Folder with tls.crt and tls.key of the allocator service; read again when they change
    #[arg(long, env = "BERTH_ALLOCATOR_TLS", default_value = "/home/allocator/tls")]
    pub tls: PathBuf,
    /// Folder with the CAs of clients, *.crt and *.pem; read again when they change
    #[arg(long, env = "BERTH_ALLOCATOR_CLIENT_CA", default_value = "/home/allocator/client-ca")]
    pub client_ca: PathBuf,
    /// Folder with tls.crt and tls.key of the aggregated API; read again when they change
    #[arg(long, env = "BERTH_ALLOCATION_API_TLS", default_value = "/home/allocator/api-tls")]
    pub api_tls: PathBuf,
    /// Serve the allocator service to clients without a certificate
    #[arg(long, env = "DISABLE_MTLS", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = truth)]
    pub disable_mtls: bool,
    /// Serve the allocator service without TLS
    #[arg(long, env = "DISABLE_TLS", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = truth)]
    pub disable_tls: bool,
    /// Let in ServiceAccounts too, by tokens of this audience in place of a client certificate; what an account may do
    /// is what the cluster's rules say of creating gameserverallocations
    #[arg(long, env = "BERTH_TOKEN_AUDIENCE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub token_audience: Option<String>,
    /// HTTP status that tells that there is no game server; over gRPC the code that stands for it
    #[arg(long, env = "HTTP_UNALLOCATED_STATUS_CODE", default_value_t = 429, value_parser = clap::value_parser!(u16).range(100..=599))]
    pub unallocated_status: u16,
    /// How long one allocation may take in all
    #[arg(long, env = "BERTH_ALLOCATION_LIMIT", default_value = "10s", value_parser = duration)]
    pub allocation_limit: Duration,
    /// How long a connection is kept at most, so that replicas share the load; clients are told to make a new one
    #[arg(long, env = "BERTH_MAX_CONNECTION_AGE", default_value = "10m", value_parser = duration)]
    pub max_connection_age: Duration,
    /// How long one call to another cluster's allocator service may take
    #[arg(long, env = "REMOTE_ALLOCATION_TIMEOUT", default_value = "10s", value_parser = duration)]
    pub remote_allocation_timeout: Duration,
    /// How long a request that may be served by several clusters may take in all
    #[arg(long, env = "TOTAL_REMOTE_ALLOCATION_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub total_remote_allocation_timeout: Duration,
    /// How long to go on serving after being asked to stop, so that load balancers can look elsewhere
    #[arg(long, env = "READINESS_SHUTDOWN_DURATION", default_value = "0s", value_parser = any_duration)]
    pub readiness_shutdown_duration: Duration,
}

/// A port that may be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Not served.
    Off,
    /// This one, or a free one where it is 0.
    On(u16),
}

fn port(text: &str) -> Result<Port, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(Port::Off),
        Ok(number) => u16::try_from(number)
            .map(Port::On)
            .map_err(|_| "must lie between 0 and 65535, or be -1 to turn it off".to_owned()),
        Err(_) => Err("must be a number between 0 and 65535, or -1 to turn it off".to_owned()),
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let limits = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
    any_duration(text)
        .ok()
        .filter(|duration| limits.contains(duration))
        .ok_or_else(|| "must lie between 100ms and 24h, such as 10s".to_owned())
}

fn any_duration(text: &str) -> Result<Duration, String> {
    let signed: jiff::SignedDuration = text.parse().map_err(|error| format!("{error}; try 10s"))?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let settings = CommandLine::try_parse_from(["berth-allocator"]).unwrap().run;
        assert_eq!((settings.grpc_port, settings.http_port), (Port::On(8443), Port::On(8443)));
        assert_eq!(settings.unallocated_status, 429);
        assert_eq!(settings.allocation_limit, Duration::from_secs(10));
        assert!(!settings.disable_mtls && !settings.disable_tls);
    }

    #[test]
    fn a_port_may_be_turned_off() {
        let line = CommandLine::try_parse_from(["berth-allocator", "--grpc-port", "-1"]).unwrap();
        assert_eq!(line.run.grpc_port, Port::Off);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--grpc-port", "65536"],
            ["--http-port", "-2"],
            ["--api-port", "https"],
            ["--unallocated-status", "42"],
            ["--allocation-limit", "0s"],
            ["--remote-allocation-timeout", "soon"],
            ["--max-connection-age", "never"],
            ["--disable-mtls", "maybe"],
            ["--token-audience", ""],
        ] {
            let all = ["berth-allocator"].into_iter().chain(arguments);
            assert!(CommandLine::try_parse_from(all).is_err(), "{arguments:?}");
        }
    }
}
