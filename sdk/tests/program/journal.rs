//! What games were promised outlives the program, however it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use berth_api::lifecycle::State;
use berth_api::link::{Change, ToAgent};
use berth_api::sdk::v1::sdk_client::SdkClient;
use berth_api::sdk::v1::{Empty, KeyValue};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::agent::{Agent, Game, Program, uid, view, within};
use crate::games::client;
use crate::rest::ask;

pub(crate) fn label(key: &str, value: u64) -> KeyValue {
    KeyValue { key: key.to_owned(), value: value.to_string() }
}

/// A number of the program's metrics.
pub(crate) async fn count(program: &Program, name: &str) -> u64 {
    let scraped = ask(program.admin().await, "GET", "/metrics", "", None).await.body;
    let line = scraped.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let number = line.and_then(|line| line.rsplit(' ').next()).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{name} is not in\n{scraped}"))
}

/// One server as its agent knows it over all deaths: the object, and what is not in it yet.
#[derive(Default)]
struct Server {
    applied: u64,
    /// Told and not yet applied, as an agent keeps it.
    pending: BTreeMap<u64, Change>,
    /// Everything that was applied, in order.
    history: Vec<Change>,
}

impl Server {
    fn hear(&mut self, sequence: u64, change: Change) {
        if sequence <= self.applied {
            let before = &self.history[usize::try_from(sequence - 1).expect("small")];
            assert_eq!(before, &change, "{sequence} means two things");
        } else if let Some(before) = self.pending.insert(sequence, change) {
            assert_eq!(before, self.pending[&sequence], "{sequence} means two things");
        }
    }

    fn apply(&mut self) {
        while let Some(change) = self.pending.remove(&(self.applied + 1)) {
            self.applied += 1;
            self.history.push(change);
        }
        assert!(self.pending.is_empty(), "a gap after {}: {:?}", self.applied, self.pending.keys());
    }
}

/// What the games of one server asked for, and what they were answered.
#[derive(Default)]
struct Played {
    asked: AtomicU64,
    answered: Mutex<Vec<u64>>,
}

/// A game that calls without a pause, several times at once, until it is aborted or refused.
fn play(game: &SdkClient<Channel>, played: &Arc<Played>, answers: &Arc<AtomicU64>) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let (mut game, played, answers) = (game.clone(), Arc::clone(played), Arc::clone(answers));
        callers.spawn(async move {
            loop {
                let number = played.asked.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = game.set_label(label(&format!("n{number}"), number)).await {
                    // The program is dead, or the test fails with too few answers.
                    eprintln!("the last call of a game: {error}");
                    return;
                }
                played.answered.lock().expect("nobody panics with it").push(number);
                answers.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_change_arrives_once_and_in_order_however_often_the_program_is_killed() {
    const ROUNDS: u64 = 50;
    const SERVERS: [&str; 2] = ["u1", "u2"];
    let agent = Agent::listen();
    let mut servers: BTreeMap<&str, Server> = SERVERS.iter().map(|uid| (*uid, Server::default())).collect();
    let played: BTreeMap<&str, Arc<Played>> = SERVERS.iter().map(|uid| (*uid, Arc::default())).collect();
    let mut games: BTreeMap<&str, Game> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut program = Program::start(&agent.socket());
        let (mut link, handed_back) = agent.meet().await;
        for name in SERVERS {
            let is_promised = !played[name].answered.lock().expect("nobody panics with it").is_empty();
            assert!(!is_promised || handed_back.contains_key(&uid(name)), "{name} in round {round}");
        }
        let answers = Arc::new(AtomicU64::new(0));
        let mut playing = Vec::new();
        for name in SERVERS {
            link.introduce(name, &view(name, State::Ready), servers[name].applied).await;
            match games.get(name) {
                Some(game) => link.pass(name, game, 1).await,
                None => drop(games.insert(name, link.open(name, 1).await)),
            }
            let game = client(&games[name]).await;
            playing.push(play(&game, &played[name], &answers));
        }
        // Some rounds end at the first answers, some after many; the agent confirms more or less of what it hears.
        let (until, confirms) = (1 + (round * 7) % 24, round % 3);
        let enough = async {
            while answers.load(Ordering::SeqCst) < until {
                tokio::task::yield_now().await;
            }
        };
        let mut enough = std::pin::pin!(within("enough answers", enough));
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut enough => break,
                frame = link.try_next() => frame,
            };
            if let Some(ToAgent::Change { uid, sequence, change, .. }) = frame {
                let server = servers.get_mut(uid.0.as_str()).unwrap();
                server.hear(sequence.0, change);
                if confirms > 0 && sequence.0 % confirms == 0 {
                    server.apply();
                    link.acknowledge(&uid.0, server.applied).await;
                }
            }
        }
        for callers in &mut playing {
            assert!(callers.try_join_next().is_none(), "a call failed in round {round}");
        }
        program.signal(Signal::KILL);
        program.ended().await;
        // Their next calls wait at the listener, for a program that is not there yet.
        drop(playing);
        // What it had written before it died is there to be read, and nothing of it is lost by not being read.
        if round % 2 == 0 {
            while let Some(ToAgent::Change { uid, sequence, change, .. }) = link.try_next().await {
                servers.get_mut(uid.0.as_str()).unwrap().hear(sequence.0, change);
            }
        }
    }
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    for name in SERVERS {
        let answered = played[name].answered.lock().expect("nobody panics with it").clone();
        let is_there = |server: &Server| {
            let wanted = answered.iter().map(|number| label(&format!("n{number}"), *number));
            let there: std::collections::BTreeSet<&str> = server
                .history
                .iter()
                .filter_map(|change| match change {
                    Change::Label { key, .. } => Some(key.as_str()),
                    _ => None,
                })
                .collect();
            wanted.into_iter().all(|pair| there.contains(pair.key.as_str()))
        };
        while !is_there(&servers[name]) {
            let (uid, sequence, change) = link.change().await;
            let server = servers.get_mut(uid.0.as_str()).unwrap();
            server.hear(sequence, change);
            server.apply();
            link.acknowledge(&uid.0, server.applied).await;
        }
        let mut seen = std::collections::BTreeSet::new();
        for change in &servers[name].history {
            assert!(seen.insert(format!("{change:?}")), "{change:?} arrived twice");
        }
        assert!(answered.len() >= usize::try_from(ROUNDS).unwrap() / 2, "{}", answered.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_share_a_commit() {
    const CALLS: u64 = 400;
    let agent = Agent::listen();
    let program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let mut games = Vec::new();
    for index in 0..4 {
        games.push(link.offer(&format!("u{index}")).await);
    }
    let mut calls = JoinSet::new();
    for game in &games {
        let game = client(game).await;
        for number in 0..CALLS / 4 {
            let mut game = game.clone();
            calls.spawn(async move { game.set_label(label(&format!("n{number}"), number)).await });
        }
    }
    let all = within("every call is answered", calls.join_all()).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let (commits, changes) = (
        count(&program, "berth_sdk_journal_commits_total").await,
        count(&program, "berth_sdk_journal_changes_total").await,
    );
    assert_eq!(changes, CALLS);
    assert!(commits <= CALLS / 4, "{commits} commits for {CALLS} calls");
}

#[tokio::test]
async fn what_is_forgotten_is_gone_from_the_journal() {
    let agent = Agent::listen();
    let mut program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let games = [link.offer("u1").await, link.offer("u2").await];
    for game in &games {
        client(game).await.ready(Empty {}).await.unwrap();
        link.change().await;
    }
    link.forget("u1").await;
    link.acknowledge("u2", 1).await;
    within("both are trimmed", async { while count(&program, "berth_sdk_journal_bytes").await > 0 {} }).await;
    program.signal(Signal::TERM);
    program.ended().await;
    let _program = Program::start(&agent.socket());
    let (mut link, handed_back) = agent.meet().await;
    assert_eq!(handed_back.keys().collect::<Vec<_>>(), [&uid("u2")]);
    link.introduce("u2", &view("u2", State::Ready), 1).await;
    link.pass("u2", &games[1], 1).await;
    client(&games[1]).await.shutdown(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u2"), 2, Change::Shutdown), "nothing but what is new");
}
