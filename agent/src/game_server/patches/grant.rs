//! The write that does what a game asks for, with its number, so that it is never done twice. Pure.

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::Seen;
use berth_api::names;
use serde_json::{Value, json};

use super::{AtReady, Patch, make_ready_in, reason_text};
use crate::game_server::Reason;
use crate::game_server::amounts::Amounts;
use crate::game_server::wishes::{StateWish, Wishes};

/// What becomes of the state that a game asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::game_server) enum Verdict {
    /// No state is asked for.
    NotAsked,
    /// It is written.
    Granted(State),
    /// The present state does not allow it.
    Forbidden,
    /// Somebody else has begun a session of which the game did not know when it asked.
    Late,
}

/// What becomes of the state that is asked for.
pub(in crate::game_server) fn judge(server: &GameServer, wishes: &Wishes) -> Verdict {
    let Some(wish) = wishes.state.as_ref() else { return Verdict::NotAsked };
    let (wished, ends_session) = match wish {
        StateWish::Ready => (State::Ready, true),
        StateWish::Allocate { .. } => (State::Allocated, false),
        StateWish::Reserve { .. } => (State::Reserved, true),
        StateWish::Shutdown => (State::Shutdown, false),
    };
    if ends_session && is_unknown_session(server, &wishes.seen) {
        return Verdict::Late;
    }
    let may = server.state().unwrap_or(State::Creating).may_become(wished);
    if may { Verdict::Granted(wished) } else { Verdict::Forbidden }
}

/// Whether there is a session now of which the game did not know. A game that knows nothing of generations is believed.
fn is_unknown_session(server: &GameServer, seen: &Seen) -> bool {
    let generation = server.metadata.generation.unwrap_or_default();
    let session = server.annotation(names::LAST_ALLOCATED_ANNOTATION).unwrap_or_default();
    server.state() == Some(State::Allocated)
        && seen.generation != 0
        && seen.generation < generation
        && !seen.sessions.iter().any(|known| known == session)
}

/// What the game asks for, as far as it is granted.
pub(in crate::game_server) fn grant(
    server: &GameServer,
    wishes: &Wishes,
    amounts: &Amounts,
    at: AtReady<'_>,
) -> Value {
    let mut patch = Patch::under(server);
    patch.annotate(names::SDK_APPLIED_ANNOTATION, wishes.up_to.0.to_string());
    for (key, value) in &wishes.labels {
        patch.labels.insert(format!("{}{key}", names::SDK_PREFIX), json!(value));
    }
    for (key, value) in &wishes.annotations {
        patch.annotate(format!("{}{key}", names::SDK_PREFIX), value.as_str());
    }
    amounts.write(&mut patch.status);
    let is_granted = matches!(judge(server, wishes), Verdict::Granted(_));
    match wishes.state.as_ref().filter(|_| is_granted) {
        None => {}
        Some(StateWish::Ready) => make_ready_in(&mut patch, at),
        Some(StateWish::Allocate { at: time }) => {
            patch.status("state", json!(State::Allocated));
            patch.status("reservedUntil", Value::Null);
            patch.status("addresses", json!(at.place.addresses()));
            patch.annotate(names::LAST_ALLOCATED_ANNOTATION, time.as_str());
        }
        Some(StateWish::Reserve { until }) => {
            patch.status("state", json!(State::Reserved));
            patch.status("reservedUntil", json!(until));
            patch.status("addresses", json!(at.place.addresses()));
        }
        Some(StateWish::Shutdown) => {
            patch.status("state", json!(State::Shutdown));
            patch.status("reservedUntil", Value::Null);
            patch.annotate(names::REASON_ANNOTATION, reason_text(&Reason::ShutdownCalled));
        }
    }
    patch.finish()
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::{GameServer, GameServerSpec, GameServerStatus};
    use berth_api::lifecycle::State;
    use berth_api::link::Seen;
    use berth_api::names;

    use super::{Verdict, judge};
    use crate::game_server::wishes::{StateWish, Wishes};

    fn server(state: State, generation: i64, session: Option<&str>) -> GameServer {
        let mut server = GameServer::new("gs", GameServerSpec::default());
        server.metadata.generation = Some(generation);
        server.metadata.annotations =
            session.map(|session| [(names::LAST_ALLOCATED_ANNOTATION.to_owned(), session.to_owned())].into());
        server.status = Some(GameServerStatus { state: Some(state), ..GameServerStatus::default() });
        server
    }

    fn wish(state: StateWish, generation: i64, sessions: &[&str]) -> Wishes {
        let sessions = sessions.iter().map(|session| (*session).to_owned()).collect();
        Wishes { state: Some(state), seen: Seen { generation, sessions }, ..Wishes::default() }
    }

    #[test]
    fn a_wish_that_is_older_than_a_foreign_session_does_not_end_it() {
        let ready = || StateWish::Ready;
        let reserve = || StateWish::Reserve { until: None };
        let allocate = || StateWish::Allocate { at: "t9".to_owned() };
        let allocated = |session| server(State::Allocated, 7, session);
        let granted = Verdict::Granted;
        let table = [
            ("it saw no session", allocated(Some("t1")), wish(ready(), 5, &[]), Verdict::Late),
            ("nor does Reserve", allocated(Some("t1")), wish(reserve(), 5, &[]), Verdict::Late),
            ("it saw an earlier one", allocated(Some("t1")), wish(ready(), 5, &["t0"]), Verdict::Late),
            ("a session that nobody dated", allocated(None), wish(ready(), 5, &[]), Verdict::Late),
            ("it saw this one", allocated(Some("t1")), wish(ready(), 5, &["t1"]), granted(State::Ready)),
            (
                "it began it itself",
                allocated(Some("t1")),
                wish(ready(), 5, &["t0", "t1"]),
                granted(State::Ready),
            ),
            ("it saw all there is", allocated(Some("t1")), wish(ready(), 7, &[]), granted(State::Ready)),
            ("nothing is known", allocated(Some("t1")), wish(ready(), 0, &[]), granted(State::Ready)),
            (
                "it asks for a session",
                allocated(Some("t1")),
                wish(allocate(), 5, &[]),
                granted(State::Allocated),
            ),
            ("it ends", allocated(Some("t1")), wish(StateWish::Shutdown, 5, &[]), granted(State::Shutdown)),
            (
                "there is no session",
                server(State::Reserved, 7, Some("t1")),
                wish(ready(), 5, &[]),
                granted(State::Ready),
            ),
            ("no way back", server(State::Unhealthy, 7, None), wish(ready(), 7, &[]), Verdict::Forbidden),
        ];
        for (name, server, wishes, verdict) in table {
            assert_eq!(judge(&server, &wishes), verdict, "{name}");
        }
        assert_eq!(judge(&allocated(None), &Wishes::default()), Verdict::NotAsked);
    }
}
