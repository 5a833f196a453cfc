//! Flags and their environment twins. The doc comment of a field is its help.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use berth_runtime::telemetry::LogSettings;
use clap::{Parser, ValueEnum};
use jiff::Timestamp;

use crate::clock::Pace;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Imitates GameLift FleetIQ, the Auto Scaling calls beside it, and EC2 instance metadata, for tests and for trying Berth
/// without an AWS account. On start it prints one line of JSON with its addresses.
///
/// Clients need an endpoint (AWS_ENDPOINT_URL), the region, credentials (simulator / simulator unless told otherwise),
/// and trust in the authority that --authority-file names (AWS_CA_BUNDLE, SSL_CERT_FILE). Instance metadata of an
/// instance are at IMDS-ADDRESS/INSTANCE-ID (AWS_EC2_METADATA_SERVICE_ENDPOINT).
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-simulator", version)]
pub struct Settings {
    /// Where the AWS services listen: GameLift and Auto Scaling, over TLS.
    #[arg(long, env = "BERTH_SIMULATOR_AWS_ADDRESS", default_value_t = SocketAddr::new(LOOPBACK, 9443))]
    pub aws_address: SocketAddr,
    /// Where the metadata of all instances are served.
    #[arg(long, env = "BERTH_SIMULATOR_IMDS_ADDRESS", default_value_t = SocketAddr::new(LOOPBACK, 9169))]
    pub imds_address: SocketAddr,
    /// Where orders are taken. Whoever reaches it may do anything.
    #[arg(long, env = "BERTH_SIMULATOR_ADMIN_ADDRESS", default_value_t = SocketAddr::new(LOOPBACK, 9440))]
    pub admin_address: SocketAddr,
    /// Where to write the certificate of the authority that clients have to trust.
    #[arg(long, env = "BERTH_SIMULATOR_AUTHORITY_FILE")]
    pub authority_file: Option<PathBuf>,
    /// Further names and addresses that clients use for the AWS services, separated by commas.
    #[arg(long, env = "BERTH_SIMULATOR_NAMES", value_delimiter = ',')]
    pub names: Vec<String>,
    /// The region.
    #[arg(long, env = "BERTH_SIMULATOR_REGION", default_value = "eu-central-1")]
    pub region: String,
    /// The number of the account.
    #[arg(long, env = "BERTH_SIMULATOR_ACCOUNT", default_value = "111122223333")]
    pub account: String,
    /// The access key that is known.
    #[arg(long, env = "BERTH_SIMULATOR_ACCESS_KEY", default_value = "simulator")]
    pub access_key: String,
    /// Its secret.
    #[arg(long, env = "BERTH_SIMULATOR_SECRET_KEY", default_value = "simulator")]
    pub secret_key: String,
    /// Whether signatures are verified, or only read for their key, region and service.
    #[arg(long, env = "BERTH_SIMULATOR_SIGNATURES", value_enum, default_value_t = Signatures::Verify)]
    pub signatures: Signatures,
    /// How time passes: real, scaled:FACTOR, or manual (moved by POST /clock/advance).
    #[arg(long, env = "BERTH_SIMULATOR_CLOCK", default_value = "real")]
    pub clock: Pace,
    /// The time that the clock shows first; the time of day unless told otherwise.
    #[arg(long, env = "BERTH_SIMULATOR_START")]
    pub start: Option<Timestamp>,
    /// What all chance comes from; a random number unless told otherwise.
    #[arg(long, env = "BERTH_SIMULATOR_SEED")]
    pub seed: Option<u64>,
    /// The story to begin with; an empty account unless told otherwise. An unknown name prints all of them.
    #[arg(long, env = "BERTH_SIMULATOR_SCENARIO")]
    pub scenario: Option<String>,
    /// What is logged.
    #[command(flatten)]
    pub log: LogSettings,
}

/// What is done with signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Signatures {
    /// They must be right.
    Verify,
    /// They may be missing.
    Read,
}

impl Settings {
    /// The defaults, on ports of the system's choice: what tests start from.
    #[must_use]
    pub fn for_tests() -> Self {
        Self {
            aws_address: SocketAddr::new(LOOPBACK, 0),
            imds_address: SocketAddr::new(LOOPBACK, 0),
            admin_address: SocketAddr::new(LOOPBACK, 0),
            authority_file: None,
            names: Vec::new(),
            region: "eu-central-1".to_owned(),
            account: "111122223333".to_owned(),
            access_key: "simulator".to_owned(),
            secret_key: "simulator".to_owned(),
            signatures: Signatures::Verify,
            clock: Pace::Manual,
            start: None,
            seed: Some(7),
            scenario: None,
            log: LogSettings::default(),
        }
    }
}
