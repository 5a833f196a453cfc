//! Doing what a game asks for: one write for all of it, and word of what became of each part.

use std::time::Duration;

use berth_api::lifecycle::State;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use tracing::warn;

use super::{Business, Worker};
use crate::effects::Effect;
use crate::events::build;
use crate::game_server::Reason;
use crate::game_server::amounts::Amounts;
use crate::game_server::apply::ApplyError;
use crate::game_server::patches::{Verdict, grant, judge};
use crate::game_server::wishes::{StateWish, Wishes};
use crate::host::Host;

/// The pause after a write of what is no state: a game that counts without one makes a few writes a second, and many
/// such games leave the API server time for everybody's states.
const PACE: Duration = Duration::from_millis(250);

impl<H: Host> Worker<H> {
    /// Writes all that is wished. Where the API server does not take it, labels and annotations are dropped, and if it
    /// must be everything but the state: what a game counts or says of itself never blocks its state.
    pub(super) async fn grant(&mut self, wishes: Wishes) -> Result<Business, ApplyError> {
        let Err(error) = self.try_grant(&wishes).await else { return Ok(Business::GoesOn) };
        let less = wishes.without_metadata();
        if error.class() != Some(Class::Invalid) || wishes == wishes.state_alone() {
            return Err(error);
        }
        if less != wishes {
            self.drop_part("labels and annotations", &error);
            match self.try_grant(&less).await {
                Err(error) if error.class() == Some(Class::Invalid) && less != less.state_alone() => {
                    self.drop_part("counters, lists and players", &error);
                }
                done => return done.map(|()| Business::GoesOn),
            }
        } else {
            self.drop_part("counters, lists and players", &error);
        }
        self.try_grant(&wishes.state_alone()).await?;
        Ok(Business::GoesOn)
    }

    fn drop_part(&self, what: &str, error: &ApplyError) {
        warn!(game_server = %self.name(), error = %chain(error), what, "what the game asked for is dropped");
        self.drop_change(&format!("{what} of the game were refused: {}", chain(error)));
    }

    /// Tells that something a game asked for is not done.
    fn drop_change(&self, why: &str) {
        self.actor.metrics.changes_dropped.inc();
        self.actor.record(build::change_dropped(&self.server, why, self.actor.stamp()));
    }

    async fn try_grant(&mut self, wishes: &Wishes) -> Result<(), ApplyError> {
        let verdict = judge(&self.server, wishes);
        let amounts = Amounts::of(&self.server.status.clone().unwrap_or_default(), wishes);
        let before = self.memory.state;
        let body = self.at_ready(|server, at| grant(server, wishes, &amounts, at));
        self.write(Effect::Grant, body).await?;
        self.note_verdict(verdict, wishes, before);
        self.note_amounts(&amounts);
        if wishes.state.is_none() {
            self.rests_until = Some(self.actor.clock.instant() + PACE);
        }
        // The object names the last change it contains; the front acknowledges up to there.
        self.tell_front().await;
        Ok(())
    }

    fn note_verdict(&self, verdict: Verdict, wishes: &Wishes, before: State) {
        let asked = match &wishes.state {
            Some(StateWish::Ready) => "Ready",
            Some(StateWish::Allocate { .. }) => "Allocated",
            Some(StateWish::Reserve { .. }) => "Reserved",
            Some(StateWish::Shutdown) => "Shutdown",
            None => "no state",
        };
        match verdict {
            Verdict::NotAsked => {}
            Verdict::Granted(state) => {
                self.note_move(state, "Asked");
                self.actor.record(if state == State::Shutdown {
                    build::moved(&self.server, state, &Reason::ShutdownCalled.to_string(), self.actor.stamp())
                } else {
                    build::granted(&self.server, state, self.actor.stamp())
                });
            }
            Verdict::Forbidden if wishes.state == Some(StateWish::Ready) && before == State::Ready => {}
            Verdict::Forbidden => {
                self.drop_change(&format!("the game asked for {asked} while it was {before}"));
            }
            Verdict::Late => {
                warn!(game_server = %self.name(), asked, "a wish that is older than the session is dropped");
                self.drop_change(&format!(
                    "the game asked for {asked} before it could see that it had been Allocated"
                ));
            }
        }
    }

    fn note_amounts(&self, amounts: &Amounts) {
        let stamp = || self.actor.stamp();
        for (name, counter) in &amounts.counters {
            self.actor.record(build::counter_updated(&self.server, name, counter, stamp()));
        }
        for (name, list) in &amounts.lists {
            self.actor.record(build::list_updated(&self.server, name, list, stamp()));
        }
        if let Some(players) = &amounts.players {
            if amounts.has_new_count {
                self.actor.record(build::players_counted(&self.server, players, stamp()));
            }
            if amounts.has_new_capacity {
                self.actor.record(build::player_capacity(&self.server, players, stamp()));
            }
        }
        if amounts.lost > 0 {
            self.drop_change("the game changed a counter or list that its server does not have any more");
        }
    }
}
