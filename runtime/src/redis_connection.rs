//! One connection to Redis: made, logged in, and used for commands and their replies. It does not come back by itself.
//!
//! The host's name is resolved at each attempt and the secret read anew, since both may have changed with a failover. What
//! is silent does not stay unnoticed: the kernel's own timers are short, and every wait here has a limit of the caller's.

mod reply;
mod stream;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

pub use reply::{Command, Malformed, Refusal, Reply};
use stream::Stream;

use crate::redis_url::RedisServer;

/// How long a connection may take to be made, TLS included.
const CONNECT: Duration = Duration::from_secs(3);
/// A reply that is larger is none of ours.
const LARGEST_REPLY: usize = 1 << 20;

/// Why a connection could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The secret's file.
    #[error("could not read the password of Redis")]
    Password(#[source] io::Error),
    /// The authorities.
    #[error("could not use the authorities in {path}")]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The name to be certified.
    #[error("{name:?} is no name that a certificate can be made for")]
    ServerName {
        /// The name.
        name: String,
    },
    /// The connection.
    #[error("could not connect to {server}")]
    Connect {
        /// The server.
        server: String,
        /// Why.
        source: io::Error,
    },
    /// The connection, in time.
    #[error("no connection to {server} within {CONNECT:?}")]
    ConnectTooSlow {
        /// The server.
        server: String,
    },
    /// Name and secret, or the database.
    #[error("{server} refuses {what}: {words}")]
    Login {
        /// The server.
        server: String,
        /// What it refuses.
        what: &'static str,
        /// Its words.
        words: String,
    },
    /// The connection broke.
    #[error("the connection to Redis broke")]
    Broken(#[source] io::Error),
    /// No reply.
    #[error("no reply from Redis within {limit:?}")]
    Silent {
        /// How long it had.
        limit: Duration,
    },
    /// No Redis.
    #[error("what Redis replies cannot be read")]
    Malformed(#[from] Malformed),
}

impl RedisError {
    /// Whether name or secret were refused: no better when tried again at once.
    #[must_use]
    pub fn is_login(&self) -> bool {
        matches!(self, Self::Login { .. } | Self::Password(_))
    }
}

/// A connection that is logged in.
#[derive(Debug)]
pub struct RedisConnection {
    stream: Stream,
    /// What came and was not taken yet.
    received: Vec<u8>,
}

impl RedisConnection {
    /// Connects, logs in and chooses the database.
    ///
    /// # Errors
    /// When any of it is not done within three seconds each, or refused.
    pub async fn open(server: &RedisServer) -> Result<Self, RedisError> {
        let password = server.password.read().map_err(RedisError::Password)?;
        let opened = timeout(CONNECT, stream::open(server)).await;
        let stream = opened.map_err(|_| RedisError::ConnectTooSlow { server: server.to_string() })??;
        let mut connection = Self { stream, received: Vec::new() };
        if let Some(password) = password {
            let mut login = Command::new("AUTH");
            if let Some(username) = &server.username {
                login = login.with(username);
            }
            connection.introduce(server, "the login", login.with(password.reveal())).await?;
        }
        if server.database != 0 {
            let select = Command::new("SELECT").with(server.database.to_string());
            connection.introduce(server, "the database", select).await?;
        }
        // A server that wants a login says so at the first command only.
        connection.introduce(server, "a client without a login", Command::new("PING")).await?;
        Ok(connection)
    }

    async fn introduce(
        &mut self,
        server: &RedisServer,
        what: &'static str,
        command: Command,
    ) -> Result<(), RedisError> {
        let replies = self.call(&[command], CONNECT).await?;
        match replies.into_iter().next() {
            // Who may not PING may still publish.
            Some(Reply::Error(refusal)) if refusal.code() != "NOPERM" => {
                Err(RedisError::Login { server: server.to_string(), what, words: refusal.to_string() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Sends commands at once and takes as many replies, all within `limit`.
    ///
    /// # Errors
    /// When the connection breaks, is silent, or speaks something else: it is of no use any more.
    pub async fn call(&mut self, commands: &[Command], limit: Duration) -> Result<Vec<Reply>, RedisError> {
        let exchange = async {
            self.send(commands).await?;
            let mut replies = Vec::with_capacity(commands.len());
            while replies.len() < commands.len() {
                replies.push(self.receive().await?);
            }
            Ok(replies)
        };
        timeout(limit, exchange).await.map_err(|_| RedisError::Silent { limit })?
    }

    /// Sends commands; the replies come by [`receive`](Self::receive). Not to be dropped half-way.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(&mut self, commands: &[Command]) -> Result<(), RedisError> {
        let bytes: Vec<u8> = commands.iter().flat_map(Command::to_wire).collect();
        self.stream.write_all(&bytes).await.map_err(RedisError::Broken)?;
        self.stream.flush().await.map_err(RedisError::Broken)
    }

    /// The next reply, or the next message of a subscription. May be dropped at any time without loss.
    ///
    /// # Errors
    /// When the connection breaks, or speaks something else.
    pub async fn receive(&mut self) -> Result<Reply, RedisError> {
        loop {
            if let Some((reply, length)) = Reply::read(&self.received)? {
                self.received.drain(..length);
                return Ok(reply);
            }
            if self.received.len() > LARGEST_REPLY {
                return Err(RedisError::Malformed(Malformed));
            }
            let read = self.stream.read_buf(&mut self.received).await.map_err(RedisError::Broken)?;
            if read == 0 {
                return Err(RedisError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}
