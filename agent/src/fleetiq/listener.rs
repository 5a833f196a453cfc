//! The task that listens to the instance's channel on Redis, and fetches what is retained beside it.
//!
//! It subscribes, waits until that is confirmed, and only then fetches: so nothing falls between the two. A connection that
//! says nothing is not trusted: it is asked every 15 seconds, and given up after 45 without a word. Whatever happens it
//! connects again, and whatever it does holds up nobody else.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_api::notice;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::redis_connection::{Command, RedisConnection, RedisError, Refusal, Reply};
use berth_runtime::redis_url::RedisServer;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::FleetMetrics;
use super::retry::{before_connecting, before_login};
use super::status::Observation;
use crate::events::NodeRecorder;

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(15);
/// How long it may say nothing.
const SILENCE: Duration = Duration::from_secs(45);
/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Why a subscription ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("Redis has not confirmed the subscription within {LIMIT:?}")]
    Unconfirmed,
    #[error("Redis refuses the subscription: {0}")]
    Refused(Refusal),
    #[error("Redis has said nothing for {SILENCE:?}")]
    Silent,
    #[error("nobody listens any more")]
    Unheard,
}

impl Ended {
    /// Whether name, secret or permission were refused: somebody has to put that right.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_login(),
            Self::Refused(_) => true,
            Self::Unconfirmed | Self::Silent | Self::Unheard => false,
        }
    }
}

/// Listens to one instance's channel.
#[derive(Debug)]
pub struct Listener {
    server: RedisServer,
    instance: String,
    observations: mpsc::Sender<Observation>,
    tell: NodeRecorder,
    metrics: FleetMetrics,
    /// For commands: a connection that is subscribed takes none.
    asking: Option<RedisConnection>,
    /// The server does not let us fetch what is retained.
    is_without_keys: bool,
    failures: u32,
    is_told: bool,
}

impl Listener {
    /// A listener that is not connected yet.
    #[must_use]
    pub fn new(
        server: RedisServer,
        instance: &str,
        observations: mpsc::Sender<Observation>,
        tell: NodeRecorder,
        metrics: FleetMetrics,
    ) -> Self {
        Self {
            server,
            instance: instance.to_owned(),
            observations,
            tell,
            metrics,
            asking: None,
            is_without_keys: false,
            failures: 0,
            is_told: false,
        }
    }

    /// Listens until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                ended = self.listen() => ended,
            };
            self.metrics.redis_connected.set(0);
            self.metrics.redis_failures.inc();
            self.asking = None;
            let pause = if ended.is_refusal() {
                self.complain(&ended);
                before_login()
            } else {
                before_connecting(self.failures, rand::random())
            };
            if self.failures == 0 {
                warn!(server = %self.server, error = %chain(&ended), "not listening to Redis");
            } else {
                debug!(server = %self.server, error = %chain(&ended), "not listening to Redis");
            }
            self.failures = self.failures.saturating_add(1);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Subscribes and listens, until that is no longer possible.
    async fn listen(&mut self) -> Ended {
        match self.try_listen().await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn try_listen(&mut self) -> Result<Infallible, Ended> {
        let mut channel = RedisConnection::open(&self.server).await?;
        let subscribe = Command::new("SUBSCRIBE").with(&self.instance);
        timeout(LIMIT, subscribed(&mut channel, subscribe)).await.map_err(|_| Ended::Unconfirmed)??;
        info!(server = %self.server, channel = %self.instance, "listening to Redis");
        self.metrics.redis_connected.set(1);
        self.metrics.redis_subscriptions.inc();
        self.failures = 0;
        self.is_told = false;
        self.is_without_keys = false;
        self.fetch().await?;
        let mut heard = Instant::now();
        let mut ping_at = heard + PING;
        loop {
            tokio::select! {
                biased;
                reply = channel.receive() => {
                    heard = Instant::now();
                    if let Some(message) = message(reply?)? {
                        self.pass_on(Observation::Message(message)).await?;
                        self.fetch().await?;
                    }
                }
                () = sleep_until(heard + SILENCE) => return Err(Ended::Silent),
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + PING;
                    timeout(LIMIT, channel.send(&[Command::new("PING")])).await.map_err(|_| Ended::Silent)??;
                }
            }
        }
    }

    /// Fetches what is retained. Without it the channel has to do.
    async fn fetch(&mut self) -> Result<(), Ended> {
        if self.is_without_keys {
            return Ok(());
        }
        match self.try_fetch().await {
            Ok(Reply::Bulk(Some(retained))) => self.pass_on(Observation::Retained(retained)).await,
            Ok(Reply::Error(refusal)) => {
                info!(server = %self.server, refusal = %refusal, "Redis gives no retained statuses; the channel has to do");
                self.is_without_keys = true;
                Ok(())
            }
            Ok(Reply::Bulk(None) | Reply::Status(_) | Reply::Integer(_) | Reply::Array(_)) => Ok(()),
            Err(error) => {
                debug!(server = %self.server, error = %chain(&error), "could not fetch the retained status");
                self.asking = None;
                Ok(())
            }
        }
    }

    async fn try_fetch(&mut self) -> Result<Reply, RedisError> {
        let mut asking = match self.asking.take() {
            Some(asking) => asking,
            None => RedisConnection::open(&self.server).await?,
        };
        let get = Command::new("GET").with(notice::instance_key(&self.instance));
        let replies = asking.call(&[get], LIMIT).await?;
        self.asking = Some(asking);
        Ok(replies.into_iter().next().unwrap_or(Reply::Bulk(None)))
    }

    async fn pass_on(&self, observation: Observation) -> Result<(), Ended> {
        self.observations.send(observation).await.map_err(|_| Ended::Unheard)
    }

    fn complain(&mut self, ended: &Ended) {
        if !std::mem::replace(&mut self.is_told, true) {
            let words = format!("the instance's status cannot be listened to: {}", chain(ended));
            self.tell.record(EventReason::RedisRefuses, &words);
        }
    }
}

/// Subscribes, and waits until that is confirmed.
async fn subscribed(channel: &mut RedisConnection, subscribe: Command) -> Result<(), Ended> {
    channel.send(&[subscribe]).await?;
    loop {
        match channel.receive().await? {
            Reply::Error(refusal) => return Err(Ended::Refused(refusal)),
            Reply::Array(Some(parts)) if is_word(parts.first(), "subscribe") => return Ok(()),
            Reply::Array(_) | Reply::Status(_) | Reply::Integer(_) | Reply::Bulk(_) => {}
        }
    }
}

/// The message in a reply, if it is one.
fn message(reply: Reply) -> Result<Option<Vec<u8>>, Ended> {
    match reply {
        Reply::Array(Some(mut parts)) if parts.len() == 3 && is_word(parts.first(), "message") => {
            match parts.pop() {
                Some(Reply::Bulk(Some(payload))) => Ok(Some(payload)),
                _ => Ok(None),
            }
        }
        Reply::Error(refusal) => Err(Ended::Refused(refusal)),
        // The answer to a PING.
        Reply::Array(_) | Reply::Status(_) | Reply::Integer(_) | Reply::Bulk(_) => Ok(None),
    }
}

fn is_word(part: Option<&Reply>, word: &str) -> bool {
    matches!(part, Some(Reply::Bulk(Some(bytes))) if bytes == word.as_bytes())
}
