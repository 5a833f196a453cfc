//! Events: told on change, in the background, never in the way of the work.
//!
//! The queue is bounded; what does not fit is dropped and counted, since an Event is a courtesy and a late write is not.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, PostParams};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::clock::Clock;
use crate::error::chain;
use crate::kube_client::within;
use crate::metrics::Subsystem;

/// Events that may wait: a burst of a few batches.
const WAITING: usize = 1024;
/// How long one Event may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest message that the API takes.
const LONGEST_MESSAGE: usize = 1024;

/// Something to tell.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// What it is about.
    pub about: ObjectReference,
    /// Who speaks, in the words that tools know.
    pub component: &'static str,
    /// Whether it is a Warning.
    pub is_warning: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// What there is to say.
    pub message: String,
}

/// Counts Events.
#[derive(Clone, Debug)]
pub struct AnnounceMetrics {
    sent: Counter,
    dropped: Counter,
}

impl AnnounceMetrics {
    /// Registers them with the subsystem of a program's Events.
    pub fn register(events: &mut Subsystem<'_>) -> Self {
        Self {
            sent: events.register("sent", "Events written", Counter::default()),
            dropped: events.register(
                "dropped",
                "Events dropped, because too many waited or the API server refused them",
                Counter::default(),
            ),
        }
    }
}

/// The end that tells.
#[derive(Clone, Debug)]
pub struct Announcer {
    sender: mpsc::Sender<Announcement>,
    metrics: AnnounceMetrics,
}

impl Announcer {
    /// An announcer, and the task that writes for it.
    #[must_use]
    pub fn new(client: Client, identity: String, metrics: AnnounceMetrics) -> (Self, Crier) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let crier = Crier { client, identity, receiver, metrics: metrics.clone() };
        (Self { sender, metrics }, crier)
    }

    /// Tells it, soon.
    pub fn say(&self, announcement: Announcement) {
        if self.sender.try_send(announcement).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

/// Writes the Events.
pub struct Crier {
    client: Client,
    identity: String,
    receiver: mpsc::Receiver<Announcement>,
    metrics: AnnounceMetrics,
}

impl Crier {
    /// Writes what is said, one at a time, until `stop`.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(announcement) = self.receiver.recv() => self.write(announcement).await,
            }
        }
    }

    async fn write(&self, announcement: Announcement) {
        let namespace = announcement.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = event(announcement, &self.identity, Clock::system().now());
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        match within(LIMIT, api.create(&PostParams::default(), &event)).await {
            Ok(_) => self.metrics.sent.inc(),
            Err(error) => {
                debug!(error = %chain(&error), "event dropped");
                self.metrics.dropped.inc()
            }
        };
    }
}

fn event(announcement: Announcement, identity: &str, now: jiff::Timestamp) -> Event {
    let Announcement { about, component, is_warning, reason, message } = announcement;
    let kind = if is_warning { "Warning" } else { "Normal" };
    let name = about.name.as_deref().unwrap_or_default();
    // Unique, and short enough beside an object's name of any length.
    let name = format!("{}.{:x}{:04x}", shortened(name, 200), now.as_nanosecond(), rand::random::<u16>());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about,
        action: Some(reason.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(shortened(&message, LONGEST_MESSAGE)),
        type_: Some(kind.to_owned()),
        event_time: Some(MicroTime(now)),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(shortened(identity, 128)),
        ..Event::default()
    }
}

fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_who_what_and_why() {
        let about = ObjectReference {
            name: Some("lobby".to_owned()),
            namespace: Some("games".to_owned()),
            ..ObjectReference::default()
        };
        let announcement = Announcement {
            about,
            component: "keeper",
            is_warning: true,
            reason: "NoRoom",
            message: "x".repeat(2000),
        };
        let event = event(announcement, "me", jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.reason.as_deref(), Some("NoRoom"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("games"));
        assert_eq!(event.message.map(|message| message.len()), Some(LONGEST_MESSAGE));
    }

    #[test]
    fn text_is_cut_between_letters() {
        assert_eq!(shortened("äöü", 5), "ä…");
        assert_eq!(shortened("äöü", 6), "äöü");
    }
}
