//! The writer of one server: as long as somebody sits at it, one write after another.

use std::time::Duration;

use berth_api::events::EventReason;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::ALLOCATOR_MANAGER;
use berth_runtime::error::chain;
use berth_runtime::kube_client::{Class, within};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tracing::debug;

use super::desk::Batch;
use super::{Answer, Taker, patch};
use crate::actions::{Done, Trouble};
use crate::book::{Candidate, ServerKey, Version};

/// How long one call may take: most of what a request has, so that its outcome is mostly known in time.
const CALL: Duration = Duration::from_secs(5);

pub(super) async fn run(taker: Taker, key: ServerKey) {
    let servers = Api::namespaced(taker.client.clone(), &key.namespace);
    loop {
        // Unique, so that a write whose answer was lost can be told from one that was never made; and older than the
        // turn, so that no server bears a time at which its node was known to be closed.
        let stamp = taker.clock.now().to_string();
        let Some(batch) = taker.desk.next(&key, taker.clock.instant()) else { return };
        serve(&taker, &key, &servers, batch, stamp).await;
    }
}

async fn serve(taker: &Taker, key: &ServerKey, servers: &Api<GameServer>, batch: Batch, stamp: String) {
    let params = PatchParams { field_manager: Some(ALLOCATOR_MANAGER.to_owned()), ..PatchParams::default() };
    let body = Patch::Merge(patch::body(&batch, &stamp));
    taker.metrics.writes.inc();
    let error = match within(CALL, servers.patch(&key.name, &params, &body)).await {
        Ok(server) => return settle(taker, key, &server, batch.seats),
        Err(error) => error,
    };
    let class = error.class();
    let reason = chain(&error);
    debug!(game_server = %key, class = class.category(), error = reason, "a write of an allocation failed");
    // Only the API server knows how the server is now, and whether a write without an answer was made after all.
    let answer = match within(CALL, servers.get_opt(&key.name)).await {
        Ok(Some(server)) if patch::bears(&server, &stamp) => {
            return settle(taker, key, &server, batch.seats);
        }
        Ok(server) => {
            let seen = server.as_ref().map_or_else(|| batch.before.version.clone(), Version::of);
            taker.desk.rebase(key, &seen, server.as_ref().and_then(Candidate::read));
            class
        }
        // It stays as it was known: the next try or the watch will tell.
        Err(_) => class,
    };
    if matches!(answer, Class::Conflict | Class::NotFound | Class::Gone) {
        taker.metrics.lost.inc();
        taker.desk.note_lost(taker.clock.instant());
    } else {
        taker.metrics.failed.inc();
    }
    for (seat, _) in batch.seats {
        let told = match answer {
            Class::Conflict | Class::NotFound | Class::Gone => Answer::Lost,
            class => Answer::Failed { class, reason: reason.clone() },
        };
        drop(seat.reply.send(told));
    }
}

fn settle(taker: &Taker, key: &ServerKey, server: &GameServer, seats: Vec<(super::Seat, Done)>) {
    taker.desk.rebase(key, &Version::of(server), Candidate::read(server));
    for (seat, done) in seats {
        for trouble in &done.troubles {
            let (reason, message) = match trouble {
                Trouble::Counter(message) => (EventReason::CounterActionError, message),
                Trouble::List(message) => (EventReason::ListActionError, message),
            };
            taker.announcer.say(server, reason, message.clone());
        }
        taker.announcer.say(server, EventReason::State(State::Allocated), "Allocated".to_owned());
        taker.metrics.allocated.inc();
        // A caller who has hung up since finds the server Allocated, as with any other allocator.
        drop(seat.reply.send(Answer::Taken(Box::new(patch::status(server, &done)))));
    }
}
