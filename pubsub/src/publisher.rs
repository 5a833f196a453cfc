//! The task that holds the connection to Redis and tells what changed.
//!
//! It never gives up: what is known is told in full to each new connection. A silent connection is found by a PING whose
//! answer is waited for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::backoff;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use berth_runtime::redis_connection::{Command, RedisConnection, RedisError, Refusal, Reply};
use berth_runtime::redis_url::RedisServer;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::announce::{Announcer, News};
use crate::diff::{Operation, Terms, Told, plan};
use crate::lead::Lead;
use crate::limits::Survey;
use crate::metrics::{PubsubMetrics, Refused};
use crate::picture::Picture;

/// Commands sent at once.
const AT_ONCE: usize = 500;
/// How long their replies may take; with [`QUIET`] a dead connection is left within 45 s.
const REPLY: Duration = Duration::from_secs(10);
/// How long nothing may be sent before a PING is.
const QUIET: Duration = Duration::from_secs(15);
/// The first wait for another connection, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The wait after name or secret were refused.
const LOGIN_WAIT: Duration = Duration::from_secs(30);

/// Why a connection is left.
#[derive(Debug, thiserror::Error)]
enum Left {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("this Redis takes no writes now: {0}")]
    NoWrites(Refusal),
}

/// What a refusal of a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyRefusal {
    /// Another server is to be found: after a failover this one is a replica, or loads its data.
    Reconnect,
    /// Keys are not for us here: an access list, or a cluster whose other node has them.
    ChannelsOnly,
    /// This one, this time.
    Passing,
}

impl KeyRefusal {
    fn of(code: &str) -> Self {
        match code {
            "READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH" => Self::Reconnect,
            "NOPERM" | "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => Self::ChannelsOnly,
            _ => Self::Passing,
        }
    }
}

/// Tells Redis.
pub(crate) struct Publisher {
    pub(crate) server: RedisServer,
    pub(crate) terms: Terms,
    pub(crate) lead: Lead,
    pub(crate) picture: watch::Receiver<Option<Arc<Picture>>>,
    pub(crate) survey: watch::Receiver<Arc<Survey>>,
    pub(crate) connected: Condition,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: PubsubMetrics,
}

/// What is told once.
#[derive(Default)]
struct Mentioned {
    keys: bool,
    messages: bool,
    login: Option<String>,
    failures: u32,
}

/// A connection, and what was told over it.
struct Session {
    connection: RedisConnection,
    told: Told,
    keys_are_refused: bool,
}

impl Publisher {
    /// Tells until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut mentioned = Mentioned::default();
        loop {
            let left = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                left = self.connect_and_serve(&mut mentioned) => left,
            };
            self.connected.set(false);
            self.metrics.redis_connected.set(0);
            self.metrics.redis_failures.inc();
            let wait = self.note_left(&left, &mut mentioned);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Says why the connection is left, and how long to wait for another.
    fn note_left(&self, left: &Left, mentioned: &mut Mentioned) -> Duration {
        let words = chain(left);
        if matches!(left, Left::Redis(error) if error.is_login()) {
            if mentioned.login.as_ref() != Some(&words) && self.lead.is_ours() {
                self.announcer.say(News::RedisLogin(words.clone()));
                mentioned.login = Some(words);
            }
            return LOGIN_WAIT;
        }
        if mentioned.failures == 0 {
            warn!(server = %self.server, error = words, "no connection to Redis; trying again");
        }
        let whole = backoff::whole(WAITS.0, WAITS.1, mentioned.failures);
        mentioned.failures = mentioned.failures.saturating_add(1);
        // From nothing to all of it, so that many publishers and agents do not come back together.
        whole.mul_f64(rand::random())
    }

    async fn connect_and_serve(&mut self, mentioned: &mut Mentioned) -> Left {
        let connection = match RedisConnection::open(&self.server).await {
            Ok(connection) => connection,
            Err(error) => return error.into(),
        };
        info!(server = %self.server, "connected to Redis");
        self.metrics.redis_connects.inc();
        self.metrics.redis_connected.set(1);
        self.connected.set(true);
        mentioned.login = None;
        let mut session = Session { connection, told: Told::default(), keys_are_refused: false };
        loop {
            if let Err(left) = self.turn(&mut session, mentioned).await {
                return left;
            }
        }
    }

    /// Tells what there is to tell, and waits until there is more.
    async fn turn(&mut self, session: &mut Session, mentioned: &mut Mentioned) -> Result<(), Left> {
        let picture = self.picture.borrow_and_update().clone().filter(|_| self.lead.is_ours());
        let next = match picture {
            Some(picture) => {
                let survey = Arc::clone(&self.survey.borrow());
                let plan = plan(&picture, &survey, &session.told, &self.terms, Instant::now());
                for some in plan.operations.chunks(AT_ONCE) {
                    self.tell(session, some, mentioned).await?;
                }
                plan.next
            }
            None => {
                // Whoever leads tells it all anew; so will we.
                session.told = Told::default();
                None
            }
        };
        mentioned.failures = 0;
        let quiet = Instant::now() + QUIET;
        tokio::select! {
            biased;
            // The poller lives as long as we do.
            changed = self.picture.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = tokio::time::sleep_until(next.unwrap_or(quiet).min(quiet)) => {
                if next.is_none_or(|next| next > quiet) {
                    session.connection.call(&[Command::new("PING")], REPLY).await?;
                }
            }
        }
        Ok(())
    }

    async fn tell(
        &self,
        session: &mut Session,
        operations: &[Operation],
        mentioned: &mut Mentioned,
    ) -> Result<(), Left> {
        let is_sent = |operation: &&Operation| match operation {
            Operation::Say { .. } => true,
            Operation::Keep { .. } | Operation::Forget { .. } => !session.keys_are_refused,
        };
        let (sent, unsent): (Vec<_>, Vec<_>) = operations.iter().partition(is_sent);
        let commands: Vec<Command> = sent.iter().map(|operation| command(operation)).collect();
        let replies = session.connection.call(&commands, REPLY).await?;
        // From here on, so that two messages are never nearer than they should be.
        let now = Instant::now();
        for (operation, reply) in sent.iter().zip(replies) {
            self.note(session, operation, reply, mentioned)?;
            session.told.note(operation, now);
        }
        for operation in unsent {
            session.told.note(operation, now);
        }
        debug!(operations = operations.len(), "told");
        Ok(())
    }

    fn note(
        &self,
        session: &mut Session,
        operation: &Operation,
        reply: Reply,
        mentioned: &mut Mentioned,
    ) -> Result<(), Left> {
        let Reply::Error(refusal) = reply else {
            match operation {
                Operation::Keep { .. } => {
                    self.metrics.keys_written.inc();
                }
                Operation::Forget { .. } => {
                    self.metrics.keys_removed.inc();
                }
                Operation::Say { is_change, .. } => self.metrics.note_message(*is_change),
            }
            return Ok(());
        };
        let refused = match operation {
            Operation::Say { .. } => Refused::Message,
            Operation::Keep { .. } | Operation::Forget { .. } => Refused::Key,
        };
        self.metrics.note_refusal(refused);
        match (refused, KeyRefusal::of(refusal.code())) {
            (_, KeyRefusal::Reconnect) => return Err(Left::NoWrites(refusal)),
            (Refused::Key, KeyRefusal::ChannelsOnly) => {
                session.keys_are_refused = true;
                if !std::mem::replace(&mut mentioned.keys, true) {
                    self.announcer.say(News::KeysRefused(format!(
                        "Redis refuses keys ({refusal}); statuses are published on channels alone, so that an agent that \
                         subscribes late waits for the next message"
                    )));
                }
            }
            (Refused::Key, KeyRefusal::Passing) => warn!(error = %refusal, "Redis refused a key"),
            (Refused::Message, KeyRefusal::ChannelsOnly | KeyRefusal::Passing) => {
                if !std::mem::replace(&mut mentioned.messages, true) {
                    tracing::error!(error = %refusal, "Redis refuses messages: no agent is told anything");
                }
            }
        }
        Ok(())
    }
}

fn command(operation: &Operation) -> Command {
    match operation {
        Operation::Keep { key, value, life, .. } => {
            Command::new("SET").with(key).with(value).with("PX").with(life.as_millis().max(1).to_string())
        }
        Operation::Say { instance, message, .. } => Command::new("PUBLISH").with(instance).with(message),
        Operation::Forget { key, .. } => Command::new("DEL").with(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart_by_their_code() {
        for (code, expected) in [
            ("READONLY", KeyRefusal::Reconnect),
            ("LOADING", KeyRefusal::Reconnect),
            ("NOPERM", KeyRefusal::ChannelsOnly),
            ("MOVED", KeyRefusal::ChannelsOnly),
            ("OOM", KeyRefusal::Passing),
            ("ERR", KeyRefusal::Passing),
        ] {
            assert_eq!(KeyRefusal::of(code), expected, "{code}");
        }
    }
}
