//! Settings: flags with environment twins, parsed once.

use std::net::SocketAddr;
use std::path::PathBuf;

use berth_runtime::exit::BadConfiguration;
use berth_runtime::telemetry::LogSettings;
use clap::Parser;

/// A socket's address holds a path of at most this many bytes, the terminating zero not counted.
const LONGEST_SOCKET_PATH: usize = 107;

/// Serves the SDK of all game servers of one node; told what to serve by the node's agent
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-sdk", version)]
pub struct Settings {
    /// Socket of the node's agent
    #[arg(long, env = "BERTH_LINK_SOCKET", default_value = "/run/berth/link/sdk.sock")]
    pub link_socket: PathBuf,
    /// Folder of the journal: changes that were answered and that the agent has not confirmed
    #[arg(long, env = "BERTH_SDK_STATE_DIR", default_value = "/var/lib/berth/sdk")]
    pub state_dir: PathBuf,
    /// Address for /livez, /readyz and /metrics, such as 127.0.0.1:9480; none unless given
    #[arg(long, env = "BERTH_ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// Serves one game server that stands in no cluster, on this machine: for games in development
    #[arg(long, env = "BERTH_SDK_LOCAL")]
    pub local: bool,
    /// With --local: YAML or JSON of the GameServer to serve; read again when it changes
    #[arg(long, short, env = "BERTH_SDK_FILE", requires = "local")]
    pub file: Option<PathBuf>,
    /// With --local: port for gRPC
    #[arg(long, env = "AGONES_SDK_GRPC_PORT", default_value_t = 9357)]
    pub grpc_port: u16,
    /// With --local: port for REST
    #[arg(long, env = "AGONES_SDK_HTTP_PORT", default_value_t = 9358)]
    pub http_port: u16,
    /// How to log.
    #[command(flatten)]
    pub log: LogSettings,
}

impl Settings {
    /// Checks what the parser cannot.
    ///
    /// # Errors
    /// Names the flag and its limit.
    pub fn check(&self) -> Result<(), BadConfiguration> {
        let length = self.link_socket.as_os_str().len();
        if length == 0 || length > LONGEST_SOCKET_PATH {
            return Err(BadConfiguration::new(format!(
                "--link-socket is a path of {length} bytes; it must have 1 to {LONGEST_SOCKET_PATH}"
            )));
        }
        if !self.link_socket.is_absolute() {
            return Err(BadConfiguration::new("--link-socket must be an absolute path"));
        }
        if !self.state_dir.is_absolute() {
            return Err(BadConfiguration::new("--state-dir must be an absolute path"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let with =
            |path: &str| Settings::try_parse_from(["berth-sdk", "--link-socket", path]).unwrap().check();
        assert!(with("/run/berth/link/sdk.sock").is_ok());
        assert!(with("sdk.sock").is_err());
        assert!(with(&format!("/{}", "a".repeat(200))).is_err());
        assert!(Settings::try_parse_from(["berth-sdk", "--state-dir", "sdk"]).unwrap().check().is_err());
        assert!(Settings::try_parse_from(["berth-sdk", "--admin-address", "nowhere"]).is_err());
        assert!(Settings::try_parse_from(["berth-sdk", "--file", "a.yaml"]).is_err());
        assert!(Settings::try_parse_from(["berth-sdk", "--local", "-f", "a.yaml"]).is_ok());
    }
}
