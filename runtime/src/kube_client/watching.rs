//! Watches that go on: errors are followed by a wait that grows, and what cannot be decoded is skipped by name.
//!
//! kube's own backoff starts over at every `Init`, and a watcher whose list fails yields an `Init` before each try, so a
//! server that is down would be asked at the first pace forever. Here only an object, or the end of a list, starts over.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::backoff::Backoff;
use crate::metrics::Subsystem;

/// The first wait after an error of a watch.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest: short enough that an agent is back soon after an API server is.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// An object that may be undecodable: make the watched `Api` of this type, `Api::<Lenient<Pod>>::all(client)`.
pub type Lenient<K> = DeserializeGuard<K>;

/// An object that the server has and that we cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not decode {kind} {}{name}: {reason}", namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default())]
pub struct Undecodable {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<String>,
    /// What the decoder says.
    pub reason: String,
}

/// Counts the objects that watches skipped. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Skipped(Counter);

impl Skipped {
    /// Registers the counter with a subsystem, as `undecodable_objects_total`.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        Self(subsystem.register(
            "undecodable_objects",
            "Objects that a watch saw and could not decode",
            Counter::default(),
        ))
    }

    /// How many were skipped.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Watches, and waits after each error before it goes on. The stream never ends.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    unhurried(watcher::watcher(api, config).boxed(), Backoff::new(FIRST_WAIT, LONGEST_WAIT))
}

/// Watches as [`watch`] does, but an object that cannot be decoded comes as [`Undecodable`], warned of and counted.
///
/// It still comes, so that the caller does not mistake an object it cannot read for one that was deleted.
pub fn watch_lenient<K>(
    api: Api<Lenient<K>>,
    config: watcher::Config,
    skipped: Skipped,
) -> impl Stream<Item = Result<Event<Result<K, Undecodable>>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    watch(api, config).map(move |event| event.map(|event| open_event(event, &skipped)))
}

fn open_event<K>(event: Event<Lenient<K>>, skipped: &Skipped) -> Event<Result<K, Undecodable>>
where
    K: Resource,
    K::DynamicType: Default,
{
    match event {
        Event::Apply(object) => Event::Apply(open(object, skipped)),
        Event::Delete(object) => Event::Delete(open(object, skipped)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(open(object, skipped)),
        Event::InitDone => Event::InitDone,
    }
}

/// What is in a lenient object. One that cannot be decoded is warned of and counted.
///
/// # Errors
/// It cannot be decoded.
pub fn open<K>(object: Lenient<K>, skipped: &Skipped) -> Result<K, Undecodable>
where
    K: Resource,
    K::DynamicType: Default,
{
    let (namespace, name, uid) = (object.namespace(), object.name_any(), object.uid());
    object.0.map_err(|invalid| {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        let undecodable = Undecodable { kind, namespace, name, uid, reason: invalid.error };
        skipped.0.inc();
        warn!(
            kind = undecodable.kind,
            namespace = undecodable.namespace,
            name = undecodable.name,
            error = undecodable.reason,
            "object skipped: it cannot be decoded"
        );
        undecodable
    })
}

fn unhurried<K, E>(
    events: impl Stream<Item = Result<Event<K>, E>> + Send + Unpin,
    backoff: Backoff,
) -> impl Stream<Item = Result<Event<K>, E>> + Send
where
    K: Send,
    E: Send,
{
    struct Pace<S> {
        events: S,
        backoff: Backoff,
        wait: Option<Duration>,
    }
    stream::unfold(Pace { events, backoff, wait: None }, |mut pace| async move {
        if let Some(wait) = pace.wait.take() {
            tokio::time::sleep(wait).await;
        }
        let event = pace.events.next().await?;
        match &event {
            Err(_) => pace.wait = Some(pace.backoff.next()),
            Ok(Event::Init) => {}
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitApply(_) | Event::InitDone) => {
                pace.backoff.reset();
            }
        }
        Some((event, pace))
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn guarded(object: serde_json::Value) -> Lenient<ConfigMap> {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_object_that_cannot_be_decoded_keeps_its_name_and_is_counted() {
        let skipped = Skipped::default();
        let bad = guarded(json!({
            "metadata": {"name": "broken", "namespace": "games", "uid": "u-1"}, "data": "not a map"
        }));
        let Event::Apply(Err(undecodable)) = open_event(Event::Apply(bad), &skipped) else {
            panic!("the object does not decode");
        };
        assert_eq!((undecodable.name.as_str(), undecodable.uid.as_deref()), ("broken", Some("u-1")));
        assert!(
            undecodable.to_string().starts_with("could not decode ConfigMap games/broken: "),
            "{undecodable}"
        );
        assert_eq!(skipped.count(), 1);
    }

    #[test]
    fn a_good_object_passes() {
        let skipped = Skipped::default();
        let good = guarded(json!({"metadata": {"name": "fine"}, "data": {"key": "value"}}));
        let event = open_event(Event::InitApply(good), &skipped);
        assert!(matches!(event, Event::InitApply(Ok(map)) if map.name_any() == "fine"));
        assert_eq!(skipped.count(), 0);
    }

    /// A server that is down: before each failed list the watcher says `Init`.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_down_is_asked_less_and_less_often() {
        let failing =
            stream::iter((0..20).map(|turn| if turn % 2 == 0 { Ok(Event::<()>::Init) } else { Err(()) }));
        let started = tokio::time::Instant::now();
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let events = unhurried(failing, backoff).collect::<Vec<_>>().await;
        assert_eq!(events.len(), 20);
        // Ten waits: 0.5, 1, 2, 4, 8 and then five times 10 s, each at least half of that.
        assert!(started.elapsed() >= Duration::from_millis(32_750), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_list_starts_the_waits_over() {
        let turns = (0..20).map(|turn| if turn % 2 == 0 { Ok(Event::<()>::InitDone) } else { Err(()) });
        let started = tokio::time::Instant::now();
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        unhurried(stream::iter(turns), backoff).collect::<Vec<_>>().await;
        assert!(started.elapsed() <= FIRST_WAIT * 10 + Duration::from_millis(20), "{:?}", started.elapsed());
    }
}
