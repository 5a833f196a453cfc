//! A real Redis server of an instance: Debian's `redis-server`, on loopback, keeping nothing on disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::eventually::{Overdue, eventually};
use crate::instance::{Daemon, DaemonError, Instance, InstanceError, Launch};
use crate::packages::{self, PackagesError};
use crate::places;

/// Its program.
const PROGRAM: &str = "redis-server";
/// Milliseconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A Redis server that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// Its package.
    #[error("there is no redis-server")]
    Package(#[from] PackagesError),
    /// Its port or folder.
    #[error("could not make a place for Redis")]
    Instance(#[from] InstanceError),
    /// The program.
    #[error("Redis failed")]
    Daemon(#[from] DaemonError),
    /// It does not answer.
    #[error("Redis does not listen; the end of its log:\n{last_words}")]
    NotUp {
        /// What it wrote.
        last_words: String,
        /// What we saw.
        source: Overdue,
    },
}

/// What a Redis server is to have.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// Certificate, key and authority, as PEM files: it speaks TLS then, and nothing else.
    pub tls: Option<RedisTls>,
    /// Further settings, as on its command line: `--requirepass`, `secret`.
    pub arguments: Vec<String>,
}

/// The files of a server that speaks TLS.
#[derive(Debug, Clone)]
pub struct RedisTls {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of it.
    pub key: PathBuf,
    /// The authority.
    pub authority: PathBuf,
}

/// A running Redis server. Its [`Daemon`] can be stopped, killed, paused and started again on the same port.
#[derive(Debug)]
pub struct Redis {
    daemon: Daemon,
    port: u16,
}

impl Redis {
    /// Starts one under this name, which no other daemon of the instance may have, and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be installed or started.
    pub async fn start(
        instance: &Arc<Instance>,
        name: &str,
        options: RedisOptions,
    ) -> Result<Self, RedisError> {
        if places::find_program(PROGRAM).is_none() {
            packages::ensure(&mut |_| {})?;
        }
        // A daemon's program is a path; a name that is nowhere is told by the start.
        let program = places::find_program(PROGRAM).unwrap_or_else(|| PathBuf::from(PROGRAM));
        let port = instance.port(name)?;
        let folder = instance.subfolder(name)?;
        let mut launch = Launch::new(name, program)
            .arguments(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arguments(["--dir".to_owned(), folder.to_string_lossy().into_owned()]);
        launch = match options.tls {
            None => launch.arguments(["--port".to_owned(), port.to_string()]),
            Some(RedisTls { certificate, key, authority }) => launch
                .arguments(["--port", "0", "--tls-auth-clients", "no"])
                .arguments(["--tls-port".to_owned(), port.to_string()])
                .arguments(["--tls-cert-file".to_owned(), certificate.to_string_lossy().into_owned()])
                .arguments(["--tls-key-file".to_owned(), key.to_string_lossy().into_owned()])
                .arguments(["--tls-ca-cert-file".to_owned(), authority.to_string_lossy().into_owned()]),
        };
        let daemon = Daemon::start(instance, launch.arguments(options.arguments))?;
        let redis = Self { daemon, port };
        redis.wait_until_listening().await?;
        Ok(redis)
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Waits until it listens, as after it was started again.
    ///
    /// # Errors
    /// When it does not.
    pub async fn wait_until_listening(&self) -> Result<(), RedisError> {
        let address = ("127.0.0.1", self.port);
        eventually(START_LIMIT, "Redis to listen", async || {
            TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string())
        })
        .await
        .map_err(|source| RedisError::NotUp { last_words: self.daemon.last_words(), source })
    }
}
