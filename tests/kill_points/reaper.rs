//! The reaper: starts programs with a point each, sees them die there, and starts them with the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::rc::Rc;
use std::time::Duration;

use berth_agent::effects::Effect as OfAgent;
use berth_brain::Effect as OfBrain;
use berth_dev::Daemon;
use berth_runtime::kill_point::{KillPoint, Side, VARIABLE};
use berth_sdk::effects::Effect as OfSdk;
use berth_stories::harbour::Harbour;
use berth_stories::world::STEP;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::choice::Choice;
use super::silence::{Awaited, needed_by};

/// How long a program may take to come to its point. Far above what it takes: some are passed once in a guest's stay, and
/// the machine may be busy with other things.
const REACH: Duration = Duration::from_secs(600);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// How long a program that is to die as it stops may run before it is asked to stop.
const POLITE: Duration = Duration::from_secs(4);
/// Deaths that a failure is told with.
const REMEMBERED: usize = 12;

/// The points of a program that are still to be reached; its processes share them.
type Queue = Rc<RefCell<VecDeque<KillPoint>>>;

struct Target<'a> {
    daemon: &'a Daemon,
    queue: Queue,
    armed: Option<Armed>,
    /// Where it is said that a silent node is needed.
    awaited: Option<Awaited>,
}

#[derive(Clone)]
struct Armed {
    point: KillPoint,
    /// Since when it is waited for.
    since: Instant,
    started: Instant,
    was_asked_to_stop: bool,
    /// Where the log of this life begins.
    log_begins: usize,
}

/// Kills by points.
pub(crate) struct Reaper<'a> {
    began: Instant,
    /// The brain first.
    targets: Vec<Target<'a>>,
    /// Points of the brain for which a node falls silent. They come last: what else is on that node does little then.
    in_silence: VecDeque<KillPoint>,
    deaths: Vec<String>,
}

impl<'a> Reaper<'a> {
    pub(crate) fn new(harbour: &'a Harbour, choice: Choice, awaited: Awaited) -> Self {
        let berth = &harbour.berth;
        let queue = |points| -> Queue { Rc::new(RefCell::new(points)) };
        let target =
            |daemon, queue: &Queue| Target { daemon, queue: Rc::clone(queue), armed: None, awaited: None };
        let mut of_brain = choice.points::<OfBrain>();
        // Of nodes that are instances of AWS: a test of the brain's own does that.
        of_brain.retain(|point| {
            let mut idle = OfBrain::OF_IDLE
                .iter()
                .flat_map(|effect| Side::ALL.map(|side| KillPoint::new(*effect, side)));
            !idle.any(|one| one == *point)
        });
        let (in_silence, others): (VecDeque<_>, VecDeque<_>) =
            of_brain.into_iter().partition(|point| needed_by(point).is_some());
        let in_silence = if choice.with_silence { in_silence } else { VecDeque::new() };
        let brain = Target { awaited: Some(awaited), ..target(berth.brain(), &queue(others)) };
        let mut targets = vec![brain];
        // The tour empties no node, since that would end what nobody is to touch, and its nodes are no instances of AWS:
        // the agent's own tests do both.
        let is_elsewhere = |point: &KillPoint| {
            let both = |effect: &OfAgent| Side::ALL.map(|side| KillPoint::new(*effect, side));
            let of_aws = OfAgent::OF_FLEETIQ.iter().chain(&OfAgent::OF_HOOK);
            OfAgent::OF_DRAIN.iter().chain(of_aws).flat_map(both).any(|one| one == *point)
        };
        let mut of_agent = choice.points::<OfAgent>();
        of_agent.retain(|point| !is_elsewhere(point));
        let (agents, sdks) = (queue(of_agent), queue(choice.points::<OfSdk>()));
        for position in 0..harbour.cluster.nodes().len() {
            targets.push(target(berth.agent(position), &agents));
            targets.push(target(berth.sdk(position), &sdks));
        }
        Self { began: Instant::now(), targets, in_silence, deaths: Vec::new() }
    }

    /// Works until every point has been reached, and leaves every program running.
    pub(crate) async fn work(&mut self) -> anyhow::Result<()> {
        for target in &mut self.targets {
            target.daemon.kill().await?;
            target.begin()?;
        }
        self.until_all_are_reached().await?;
        let in_silence = std::mem::take(&mut self.in_silence);
        if let Some(brain) = self.targets.first_mut().filter(|_| !in_silence.is_empty()) {
            brain.queue.replace(in_silence);
            brain.daemon.kill().await?;
            brain.begin()?;
        }
        self.until_all_are_reached().await
    }

    async fn until_all_are_reached(&mut self) -> anyhow::Result<()> {
        while self.targets.iter().any(|target| target.armed.is_some()) {
            sleep(LOOK).await;
            for target in &mut self.targets {
                if let Some(reached) = target.look().await? {
                    let time = self.began.elapsed().as_secs_f64();
                    self.deaths.push(format!("{time:>8.3} s  {reached} of {}", target.daemon.name()));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn summary(&self) -> String {
        format!("{} deaths in {:.0} s", self.deaths.len(), self.began.elapsed().as_secs_f64())
    }

    pub(crate) fn last_deaths(&self) -> Vec<String> {
        self.deaths[self.deaths.len().saturating_sub(REMEMBERED)..].to_vec()
    }
}

impl Target<'_> {
    /// Starts the dead program with its next point, or for good.
    fn begin(&mut self) -> anyhow::Result<()> {
        let next = self.queue.borrow_mut().pop_front();
        if let Some(awaited) = &self.awaited {
            awaited.set(next.as_ref().and_then(needed_by));
        }
        match next {
            Some(point) => self.armed = Some(arm(self.daemon, point, Instant::now())?),
            None => {
                self.armed = None;
                self.daemon.start_again()?;
            }
        }
        Ok(())
    }

    /// The point that was reached, if one was.
    async fn look(&mut self) -> anyhow::Result<Option<KillPoint>> {
        let name = self.daemon.name();
        if self.daemon.is_alive() {
            let Some(armed) = &mut self.armed else { return Ok(None) };
            anyhow::ensure!(armed.since.elapsed() < REACH, "{name} never came to {}", armed.point);
            if armed.is_polite() && !armed.was_asked_to_stop && armed.started.elapsed() > POLITE {
                armed.was_asked_to_stop = true;
                self.daemon.signal(Signal::TERM);
            }
            return Ok(None);
        }
        let status = self.daemon.wait(STEP).await?;
        let died = || format!("{name} ended ({status:?}): {}", self.daemon.last_words());
        let Some(armed) = self.armed.clone() else { anyhow::bail!("{}", died()) };
        if armed.was_asked_to_stop && status.is_some_and(|status| status.success()) {
            // It did not come so far as to have anything to give back.
            self.armed = Some(arm(self.daemon, armed.point, armed.since)?);
            return Ok(None);
        }
        let log = fs::read(self.daemon.log())?;
        let said = String::from_utf8_lossy(log.get(armed.log_begins..).unwrap_or_default()).into_owned();
        let was_there = said.contains(&armed.point.last_words());
        let was_killed = status.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw());
        anyhow::ensure!(was_there && was_killed, "on its way to {}, {}", armed.point, died());
        self.begin()?;
        Ok(Some(armed.point))
    }
}

impl Armed {
    /// Whether the point is on the way of a program that stops as asked, and nowhere else.
    fn is_polite(&self) -> bool {
        Side::ALL.iter().any(|side| self.point == KillPoint::new(OfBrain::GiveLeadBack, *side))
    }
}

fn arm(daemon: &Daemon, point: KillPoint, since: Instant) -> anyhow::Result<Armed> {
    let log_begins = usize::try_from(fs::metadata(daemon.log())?.len())?;
    daemon.start_again_with(VARIABLE, &point.to_string())?;
    Ok(Armed { point, since, started: Instant::now(), was_asked_to_stop: false, log_begins })
}
