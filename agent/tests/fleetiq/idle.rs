//! A group whose players go home, in virtual time: its own scaling policy makes it as small as it may be, and cuts nobody.
//! The agents are the machine and what the drain knows of idle nodes; a word stands for the brain, which needs none of the
//! servers of a node without sessions.

use std::time::Duration;

use berth_agent::drain::Course;
use berth_agent::drain::idle::{Idle, Sight};
use berth_agent::drain::notice::{Notices, Source};
use berth_agent::drain::sources::Ordered;
use berth_agent::fleetiq::Offers;
use berth_agent::fleetiq::machine::{Outside, Unprotected};
use berth_api::game_node::{GameNodeSpec, Protection};
use serde_json::{Value, json};

use super::many::Play;

const COUNT: usize = 20;
const MINIMUM: usize = 2;
const STEP: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(3600);
/// Somebody plays on so many, each for so much longer than the one before.
const PLAYED: usize = 6;
const LONGER: Duration = Duration::from_secs(15 * 60);

/// The nodes of the group.
struct Nodes {
    play: Play,
    idle: Vec<Idle>,
    notices: Vec<Notices>,
    /// Somebody plays there.
    sessions: Vec<bool>,
    /// The brain needs it.
    is_needed: Vec<bool>,
    is_there: Vec<bool>,
}

impl Nodes {
    async fn new(release: Option<Duration>) -> Self {
        let mut play = Play::new(&[("pvp-eu", COUNT)]).await;
        play.run(Duration::from_secs(300), |_| false);
        assert!(play.all_are_kept());
        let change = json!({"minimum": MINIMUM, "maximum": COUNT, "utilization_target": 80.0});
        play.simulator
            .order(json!({"order": "group", "group": "pvp-eu", "change": change}))
            .expect("a group");
        Self {
            play,
            idle: vec![Idle::new(release); COUNT],
            notices: vec![Notices::default(); COUNT],
            sessions: vec![false; COUNT],
            is_needed: vec![false; COUNT],
            is_there: vec![true; COUNT],
        }
    }

    fn set_session(&mut self, number: usize, is_on: bool) {
        let instance = &self.play.agents[number].instance;
        let order = json!({"order": "sessions", "instance": instance, "live": u32::from(is_on)});
        self.play.simulator.order(order).expect("sessions");
        self.sessions[number] = is_on;
    }

    fn offers(&self, number: usize) -> bool {
        let agent = &self.play.agents[number];
        let outside = Outside { course: &agent.course, is_warmed: false };
        agent.machine.offers(&outside, Unprotected::Refuse, self.play.now) == Offers::Allowed
    }

    /// Everybody looks around, and acts for five seconds.
    fn step(&mut self) {
        for number in (0..COUNT).filter(|number| self.is_there[*number]).collect::<Vec<_>>() {
            let now = self.play.now;
            let agent = &self.play.agents[number];
            let is_open = agent.machine.protection() == Protection::Protected && agent.course == Course::Open;
            let sight = Sight {
                are_known: true,
                has_session: self.sessions[number],
                may_ask: is_open && self.offers(number),
            };
            self.idle[number].note(sight, now);
            let is_spare = self.play.agents[number].course.is_spare();
            let asked = self.idle[number].asks(now).map(|since| since.to_string());
            // A word stands until the node is needed.
            let standing = is_spare.then(|| now.to_string());
            let surplus = asked.or(standing).filter(|_| !self.is_needed[number]);
            let ordered = Ordered::Known(GameNodeSpec { surplus, ..GameNodeSpec::default() });
            if let Some(signal) = self.idle[number].signal(&ordered, &self.notices[number], now) {
                self.notices[number].hear(signal);
            }
            let course = match self.notices[number].of(&Source::Surplus) {
                None => Course::Open,
                Some(notice) => Course::Spare { notice: notice.clone(), is_empty: !self.sessions[number] },
            };
            if course != self.play.agents[number].course {
                self.play.steer(number, course);
            }
        }
        self.play.run(STEP, |_| false);
        self.look();
    }

    /// Which instances are left.
    fn look(&mut self) {
        let state = self.play.simulator.state();
        assert_eq!(state["audit"]["violations"], json!([]), "nobody is cut");
        let instances = state["instances"].as_array().expect("a list");
        let is_there = |instance: &str| {
            instances.iter().any(|one| one["id"] == instance && one["stage"] == "in-service")
        };
        for number in 0..COUNT {
            if self.is_there[number] && !is_there(&self.play.agents[number].instance) {
                assert!(!self.sessions[number], "somebody played on {number}");
                self.is_there[number] = false;
                self.play.lose(number);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.play.now + time;
        while self.play.now < end {
            self.step();
        }
    }

    fn left(&self) -> usize {
        self.is_there.iter().filter(|is_there| **is_there).count()
    }

    fn server(&self, number: usize) -> Value {
        let state = self.play.simulator.state();
        let servers = state["servers"].as_array().expect("a list");
        let instance = &self.play.agents[number].instance;
        servers.iter().find(|one| one["id"] == **instance).cloned().unwrap_or_default()
    }
}

#[tokio::test]
async fn an_idle_group_of_twenty_shrinks_to_its_minimum_and_nobody_is_cut() {
    let mut nodes = Nodes::new(Some(Duration::from_secs(600))).await;
    for number in 0..PLAYED {
        nodes.set_session(number, true);
    }
    for number in 0..PLAYED {
        nodes.pass(LONGER);
        println!("after {} minutes {} instances are left", 15 * (number + 1), nodes.left());
        assert!(nodes.left() >= PLAYED - number && nodes.is_there[number]);
        nodes.set_session(number, false);
    }
    nodes.pass(HOUR);
    assert_eq!(nodes.left(), MINIMUM);

    // One of those that are left is needed: it is in use before it is offered, and kept from then on.
    let number = nodes.is_there.iter().position(|is_there| *is_there).expect("one");
    assert_eq!(
        (nodes.server(number)["utilization"].as_str(), nodes.offers(number)),
        (Some("AVAILABLE"), false)
    );
    nodes.is_needed[number] = true;
    nodes.step();
    assert!(nodes.offers(number));
    assert_eq!(nodes.server(number)["utilization"], "UTILIZED");
    nodes.set_session(number, true);
    nodes.is_needed[number] = false;
    let change = json!({"minimum": 0, "desired": 0});
    let order = json!({"order": "group", "group": "pvp-eu", "change": change});
    nodes.play.simulator.order(order).expect("a group");
    nodes.pass(HOUR);
    assert!(nodes.is_there[number] && nodes.offers(number), "somebody plays there");
}

#[tokio::test]
async fn with_idle_release_off_a_group_stays_as_large_as_it_is() {
    let mut nodes = Nodes::new(None).await;
    nodes.pass(HOUR * 3);
    assert_eq!(nodes.left(), COUNT);
}
