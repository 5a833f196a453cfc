//! Many agents and the real quotas, in virtual time: the machine, and the simulator without its sockets, step together. A call
//! is one attempt, here as in the client.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use berth_agent::drain::Course;
use berth_agent::fleetiq::call::{Answer, Call, Failure, Registration, Utilization};
use berth_agent::fleetiq::machine::{Machine, Mark, Outside};
use berth_api::game_node::Protection;
use berth_api::notice::InstanceStatus;
use berth_simulators::{Settings, Signatures, Simulator};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

/// One agent.
pub(super) struct Agent {
    group: &'static str,
    pub(super) instance: String,
    pub(super) machine: Machine,
    pub(super) course: Course,
    /// When FleetIQ last took a sign of life, and the longest time between two of them.
    beat: Option<Timestamp>,
    longest: Duration,
}

/// All agents and their account.
pub(super) struct Play {
    pub(super) simulator: Simulator,
    pub(super) agents: Vec<Agent>,
    dice: StdRng,
    pub(super) now: Timestamp,
    /// What is called next, and by which agent.
    due: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl Play {
    pub(super) async fn new(groups: &[(&'static str, usize)]) -> Self {
        let settings = Settings { signatures: Signatures::Read, ..Settings::for_tests() };
        let simulator = Simulator::start(&settings).await.expect("a simulator");
        let now = simulator.state()["now"].as_str().expect("a time").parse().expect("a time");
        let mut dice = StdRng::seed_from_u64(11);
        let mut agents = Vec::new();
        for (group, count) in groups {
            let change = json!({"protection": "FULL_PROTECTION", "maximum": count});
            simulator.order(json!({"order": "group", "group": group, "change": change})).expect("a group");
            let launch = json!({"order": "launch", "group": group, "wanted": {"count": count}});
            let launched = simulator.order(launch).expect("instances");
            for id in launched["instances"].as_array().expect("a list") {
                let instance = id.as_str().expect("an id").to_owned();
                let machine = Machine::new(Mark::None, now, dice.random());
                let (course, beat, longest) = (Course::Open, None, Duration::ZERO);
                agents.push(Agent { group, instance, machine, course, beat, longest });
            }
        }
        // All of them begin in the same instant.
        let due = (0..agents.len()).map(|number| Reverse((now, number))).collect();
        Self { simulator, agents, dice, now, due }
    }

    /// Lets everything happen that is due until then, or until it is so.
    pub(super) fn run(&mut self, limit: Duration, is_over: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        let mut turns: u32 = 0;
        while let Some(Reverse((at, number))) = self.due.pop() {
            if at > end {
                self.due.push(Reverse((at, number)));
                break;
            }
            self.go_to(at);
            self.turn(number);
            turns += 1;
            if turns.is_multiple_of(64) && is_over(self) {
                return;
            }
        }
        self.go_to(end);
    }

    /// An agent has another course, and acts by it at once.
    pub(super) fn steer(&mut self, number: usize, course: Course) {
        let (now, chance) = (self.now, self.dice.random());
        let agent = &mut self.agents[number];
        agent.machine.follow(&course, now, chance);
        agent.course = course;
        self.due.retain(|Reverse((_, one))| *one != number);
        self.due.push(Reverse((now, number)));
    }

    /// The machine of an agent is gone.
    pub(super) fn lose(&mut self, number: usize) {
        self.due.retain(|Reverse((_, one))| *one != number);
    }

    fn go_to(&mut self, at: Timestamp) {
        if at > self.now {
            self.simulator.advance(Duration::try_from(at.duration_since(self.now)).expect("forward"));
            self.now = at;
        }
    }

    fn turn(&mut self, number: usize) {
        let (now, agent) = (self.now, &mut self.agents[number]);
        let course = agent.course.clone();
        let outside = Outside { course: &course, is_warmed: false };
        let due = agent.machine.next(&outside, now).expect("something is always next");
        if due.is_due(now) {
            let answer = answer(&self.simulator, agent, due.call);
            if answer == Answer::Update(Ok(Utilization::Utilized))
                && let Some(beat) = agent.beat.replace(now)
            {
                let gap = Duration::try_from(now.duration_since(beat)).expect("forward");
                agent.longest = agent.longest.max(gap);
            }
            agent.machine.hear(answer, now, self.dice.random());
            agent.machine.follow(&course, now, self.dice.random());
        }
        let next = agent.machine.next(&outside, now).and_then(|due| due.at).unwrap_or(now);
        self.due.push(Reverse((next.max(now), number)));
    }

    pub(super) fn all_are_kept(&self) -> bool {
        self.agents.iter().all(|agent| agent.machine.protection() == Protection::Protected)
    }

    /// Servers that FleetIQ takes for in use.
    fn utilized(&self) -> usize {
        let state = self.simulator.state();
        let servers = state["servers"].as_array().expect("a list");
        servers.iter().filter(|server| server["utilization"] == "UTILIZED").count()
    }
}

fn answer(simulator: &Simulator, agent: &Agent, call: Call) -> Answer {
    let Agent { group, instance, .. } = agent;
    let body = match call {
        Call::Register => {
            json!({"GameServerGroupName": group, "GameServerId": instance, "InstanceId": instance})
        }
        Call::Claim | Call::Describe | Call::Deregister => {
            json!({"GameServerGroupName": group, "GameServerId": instance})
        }
        Call::Update => json!({
            "GameServerGroupName": group,
            "GameServerId": instance,
            "UtilizationStatus": "UTILIZED",
            "HealthCheck": "HEALTHY",
        }),
        Call::Live => json!({
            "GameServerGroupName": group,
            "GameServerId": instance,
            "HealthCheck": "HEALTHY",
        }),
        Call::AskStatus => json!({"GameServerGroupName": group, "InstanceIds": [instance]}),
    };
    let (status, said) = simulator.call(call.operation(), &body);
    let failure = (status != 200).then(|| match said["__type"].as_str() {
        Some(code) => Failure::of_code(code.rsplit('#').next().unwrap_or(code), Some(status)),
        None => Failure::of_status(Some(status)),
    });
    let done = failure.map_or(Ok(()), Err);
    let utilization = |server: &Value| match server["UtilizationStatus"].as_str() {
        Some("UTILIZED") => Utilization::Utilized,
        _ => Utilization::Available,
    };
    match call {
        Call::Register => Answer::Register(done),
        Call::Claim => Answer::Claim(done),
        Call::Deregister => Answer::Deregister(done),
        Call::Update => Answer::Update(done.map(|()| utilization(&said["GameServer"]))),
        Call::Live => Answer::Live(done.map(|()| utilization(&said["GameServer"]))),
        Call::Describe => Answer::Describe(done.map(|()| Registration {
            is_ours: said["GameServer"]["InstanceId"] == *instance,
            utilization: utilization(&said["GameServer"]),
        })),
        Call::AskStatus => Answer::AskStatus(done.map(|()| Some(InstanceStatus::Active))),
    }
}

#[tokio::test]
async fn a_thousand_agents_that_fleetiq_forgot_are_kept_again_within_three_minutes() {
    let mut play = Play::new(&[("pvp-eu", 1000)]).await;
    let began = play.now;
    play.run(Duration::from_secs(600), Play::all_are_kept);
    assert!(play.all_are_kept());
    println!("a thousand began together, and were kept after {:#}", play.now.duration_since(began));
    for agent in &play.agents {
        play.simulator.order(json!({"order": "remove-server", "server": agent.instance})).expect("removed");
    }
    assert_eq!(play.utilized(), 0);
    // Each finds out at its next sign of life.
    let forgotten = play.now;
    play.run(Duration::from_secs(180), |play| play.utilized() == 1000);
    println!("a thousand were forgotten, and kept again after {:#}", play.now.duration_since(forgotten));
    assert_eq!(play.utilized(), 1000, "within three minutes");
    assert!(play.all_are_kept());
}

#[tokio::test]
async fn at_the_quota_of_signs_of_life_faults_leave_no_long_gap() {
    let mut play = Play::new(&[("pvp-eu", 600), ("pve-eu", 600)]).await;
    play.run(Duration::from_secs(600), Play::all_are_kept);
    assert!(play.all_are_kept());
    let broken = json!({"effect": "error", "name": "InternalServiceException", "status": 500});
    play.simulator.fault("broken", json!({"probability": 0.01, "effects": [broken]})).expect("a fault");
    play.run(Duration::from_secs(3600), |_| false);
    assert_eq!(play.utilized(), 1200, "none was removed");
    let longest = play.agents.iter().map(|agent| agent.longest).max().expect("agents");
    println!("the longest gap between two signs of life was {longest:?}");
    assert!(longest <= Duration::from_secs(100), "{longest:?}");
}
