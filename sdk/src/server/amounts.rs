//! Counters, lists and players as a game may count on them: what the agent said last, and what is pending. Pure.
//!
//! Whenever nobody else writes, the API server comes to the same once everything pending is applied.

use berth_api::game_server::{Counter, List, PlayersStatus};
use berth_api::link::{Change, View};

use super::outbox::Outbox;

/// What all values of lists and all players may come to. An object of the API server has little more than twice that, and
/// the rest of it is for the pod's template and for annotations.
const MOST_BYTES: usize = 512 * 1024;

/// More than an object has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("values of lists and players would come to {bytes} bytes together; at most {MOST_BYTES} are allowed")]
pub(crate) struct TooMuch {
    bytes: usize,
}

/// A counter, if the server has it.
pub(crate) fn counter(view: &View, outbox: &Outbox, name: &str) -> Option<Counter> {
    let known = view.status.counters.as_ref()?.get(name)?.clone();
    Some(outbox.iter().fold(known, |now, change| match change {
        Change::Counter { name: other, by } if other == name => by.apply(&now),
        _ => now,
    }))
}

/// A list, if the server has it.
pub(crate) fn list(view: &View, outbox: &Outbox, name: &str) -> Option<List> {
    let known = view.status.lists.as_ref()?.get(name)?.clone();
    Some(outbox.iter().fold(known, |now, change| match change {
        Change::List { name: other, by } if other == name => by.apply(&now),
        _ => now,
    }))
}

/// The players; nobody, and room for nobody, where they are not tracked yet.
pub(crate) fn players(view: &View, outbox: &Outbox) -> PlayersStatus {
    let known = view.status.players.clone().unwrap_or_default();
    outbox.iter().fold(known, |now, change| match change {
        Change::Players { by } => by.apply(&now),
        _ => now,
    })
}

/// Checks that an object has room for so many bytes more. What goes is not taken off before it is gone.
pub(crate) fn check_bytes(view: &View, outbox: &Outbox, more: usize) -> Result<(), TooMuch> {
    let listed = view.status.lists.iter().flatten().flat_map(|(_, list)| list.values.iter().flatten());
    let players = view.status.players.iter().flat_map(|players| players.ids.iter().flatten());
    let pending = outbox.iter().map(|change| match change {
        Change::List { by, .. } => by.add.iter().map(String::len).sum(),
        Change::Players { by } => by.connect.iter().map(String::len).sum(),
        _ => 0_usize,
    });
    let known: usize = listed.chain(players).map(String::len).sum();
    let bytes = known + pending.sum::<usize>() + more;
    if bytes > MOST_BYTES { Err(TooMuch { bytes }) } else { Ok(()) }
}
