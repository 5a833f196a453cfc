//! The task that runs the machine: it makes the calls, one at a time, and alone says how the hook stands.
//!
//! When the agent stops it leaves the hook as it is: a heartbeat outlasts a restart, and what comes next is another agent.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::call::{Answer, advice};
use super::client::HookClient;
use super::machine::{Lack, Machine, News, Outside, Resumed};
use super::{Holding, HookMetrics, HookName, Stage};
use crate::drain::Course;
use crate::drain::notice::{Notice, Severity, Signal, Source};
use crate::events::NodeRecorder;
use crate::metadata::{ENDED_BY_AUTO_SCALING, Lifecycle};

/// Deadlines that lie no further apart are the same.
const SAME: SignedDuration = SignedDuration::from_secs(1);

/// What the keeper hears.
#[derive(Debug)]
pub struct Inlets {
    /// The node's course.
    pub course: watch::Receiver<Course>,
    /// Auto Scaling's target state.
    pub lifecycle: watch::Receiver<Lifecycle>,
}

/// Where the keeper speaks.
#[derive(Clone, Debug)]
pub struct Outlets {
    /// When the node is gone.
    pub signals: mpsc::Sender<Signal>,
    /// How the hook stands.
    pub holding: watch::Sender<Holding>,
    /// Where people read.
    pub tell: NodeRecorder,
    /// Numbers.
    pub metrics: HookMetrics,
}

/// Runs the machine of one instance's hook.
#[derive(Debug)]
pub struct Keeper {
    hook: HookName,
    machine: Machine,
    clock: Clock,
    inlets: Inlets,
    outlets: Outlets,
    /// The deadline that was said.
    said: Option<Timestamp>,
}

impl Keeper {
    /// A keeper that goes on where a predecessor stopped.
    #[must_use]
    pub fn new(hook: HookName, resumed: Option<Resumed>, inlets: Inlets, outlets: Outlets) -> Self {
        // A clock that only goes forward, whatever is done to the time of day.
        let clock = Clock::anchored_at(berth_runtime::clock::now());
        let machine = Machine::new(resumed, clock.now(), rand::random());
        let said = resumed.and_then(|one| one.deadline);
        Self { hook, machine, clock, inlets, outlets, said }
    }

    /// Answers the hook until asked to stop. Which instance this is may take time to find out.
    ///
    /// # Errors
    /// None.
    pub async fn run(
        mut self,
        reach: impl Future<Output = HookClient> + Send,
        stop: CancellationToken,
    ) -> Result<(), Infallible> {
        let mut reach = pin!(reach);
        let mut client: Option<HookClient> = None;
        loop {
            self.note().await;
            let now = self.clock.now();
            let course = self.inlets.course.borrow().clone();
            let outside = Outside { course: &course, is_ending: self.is_ending() };
            let due = self.machine.next(&outside).filter(|_| client.is_some());
            if let (Some(due), Some(client)) = (due.as_ref().filter(|due| due.is_due(now)), &client) {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    answer = client.call(&due.call) => self.hear(answer, client.instance()),
                }
                continue;
            }
            let at = due.and_then(|due| due.at).into_iter().chain(self.machine.look_at(now)).min();
            let rest = async {
                match at {
                    Some(at) => {
                        let pause = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                        sleep(pause.max(Duration::from_millis(1))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                found = &mut reach, if client.is_none() => client = Some(found),
                () = changed(&mut self.inlets.course) => {}
                () = changed(&mut self.inlets.lifecycle) => {}
                () = rest => {}
            }
        }
    }

    /// Takes in what is outside, and says how the hook stands.
    async fn note(&mut self) {
        let now = self.clock.now();
        let course = self.inlets.course.borrow_and_update().clone();
        self.inlets.lifecycle.borrow_and_update();
        let outside = Outside { course: &course, is_ending: self.is_ending() };
        self.machine.follow(&outside, now);
        let beats = self.machine.beats();
        let holding = Holding {
            hook: Some(self.hook.clone()),
            group: self.machine.group().map(str::to_owned),
            stage: self.machine.stage(),
            last_beat: beats.map(|(last, _)| last),
            expires_at: beats.map(|(_, expires)| expires),
            problem: self.problem(),
        };
        let metrics = &self.outlets.metrics;
        let seconds = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_second);
        metrics.waits.set(i64::from(holding.stage == Stage::Waits));
        metrics.last_beat.set(seconds(holding.last_beat));
        metrics.expires.set(seconds(holding.expires_at));
        self.outlets.holding.send_if_modified(|last| {
            let is_new = *last != holding;
            *last = holding;
            is_new
        });
        let deadline = self.machine.deadline(now);
        if let Some(deadline) = deadline.filter(|deadline| is_news(*deadline, self.said)) {
            self.said = Some(deadline);
            let notice = Notice {
                source: Source::Lifecycle,
                severity: Severity::AutoScaling,
                reason: ENDED_BY_AUTO_SCALING.to_owned(),
                deadline: Some(deadline),
            };
            // Nobody listens any more: the agent stops.
            drop(self.outlets.signals.send(Signal::Raised(notice)).await);
        }
    }

    fn hear(&mut self, answer: Answer, instance: &str) {
        self.outlets.metrics.called(&answer);
        let news = self.machine.hear(answer, self.clock.now(), rand::random());
        if let Some(news) = news {
            self.announce(news, instance);
        }
    }

    /// Says what somebody else should know.
    fn announce(&self, news: News, instance: &str) {
        let hook = &self.hook;
        let (reason, words) = match news {
            News::Holds(until) => (
                EventReason::HookWaits,
                format!(
                    "Auto Scaling ends {instance}, and waits for lifecycle hook {hook} until {until} at most"
                ),
            ),
            News::Completed => (
                EventReason::HookCompleted,
                format!("the node is empty: Auto Scaling may go on with the end of {instance} (hook {hook})"),
            ),
            News::Passed => (
                EventReason::HookFails,
                format!("Auto Scaling ends {instance}, and does not wait for lifecycle hook {hook}"),
            ),
            News::Lacking(lack) => (EventReason::HookFails, lacks(&lack, hook)),
            News::Trouble(operation, failure) => (
                EventReason::HookFails,
                format!("{} fails ({failure}): {}", operation.name(), advice(failure)),
            ),
        };
        if reason.is_warning() {
            warn!(reason = reason.as_str(), "{words}");
        } else {
            info!(reason = reason.as_str(), "{words}");
        }
        self.outlets.tell.record(reason, &words);
    }

    fn problem(&self) -> Option<String> {
        let failing = self.machine.problem().map(|(operation, failure)| {
            format!("{} fails ({failure}): {}", operation.name(), advice(failure))
        });
        failing.or_else(|| self.machine.lacks().map(|lack| lacks(lack, &self.hook)))
    }

    fn is_ending(&self) -> bool {
        *self.inlets.lifecycle.borrow() == Lifecycle::Ending
    }
}

/// Whether a deadline is to be said. What was said stands, unless the end comes sooner: by more than lies between two who
/// saw it begin, one after the other.
fn is_news(deadline: Timestamp, said: Option<Timestamp>) -> bool {
    said.is_none_or(|said| said.duration_since(deadline) > SAME)
}

fn lacks(lack: &Lack, hook: &HookName) -> String {
    match lack {
        Lack::Group => {
            "the instance is of no Auto Scaling group, so that no lifecycle hook holds it".to_owned()
        }
        Lack::Hook { group } => {
            format!("Auto Scaling group {group} has no lifecycle hook {hook} for instances that end")
        }
    }
}

/// Waits until a value is new. Never ends once nobody can send one.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_stands_unless_the_end_comes_sooner() {
        let at = |milliseconds: i64| Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).unwrap();
        let table = [
            (None, true, "nothing was said"),
            (Some(at(0)), false, "the same"),
            (Some(at(1)), false, "as the Node's mark has it, which is another's clock"),
            (Some(at(-60_000)), false, "later than what was said"),
            (Some(at(60_000)), true, "sooner"),
        ];
        for (said, expected, what) in table {
            assert_eq!(is_news(at(0), said), expected, "{what}");
        }
    }
}
