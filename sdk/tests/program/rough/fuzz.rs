//! Nonsense without end: what is known to be bad, changed at random. Whatever is said at either port, the program does not
//! panic, takes no more memory for it than a little, and serves the neighbour all the time.
//!
//! `BERTH_FUZZ_SECONDS` is for how long at each port, instead of a few hundred inputs. Each input comes of a number; the
//! first is `BERTH_FUZZ_SEED`, and the same numbers are the same inputs.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use berth_api::link::ToAgent;
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::seeds::{self, Seed};
use super::{Stage, stage};
use crate::agent::{Game, Level, Link, Program, within};
use crate::rest::ask;

/// Inputs at each port where no time is set.
const INPUTS: u64 = 300;
/// The first number where none is set: the same inputs each time.
const FIRST: u64 = 1;
/// Inputs that are said at the same time.
const AT_ONCE: usize = 16;
/// What the program may take more than before, in bytes.
const GROWTH: u64 = 64 * 1024 * 1024;
/// How long an answer is waited for: what was said may well have none.
const PATIENCE: Duration = Duration::from_millis(500);
/// Numbers that lengths and counts are tried with.
const EDGES: [&[u8]; 8] = [
    &[0],
    &[0x7f],
    &[0x80],
    &[0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    b"99999999999999999999",
];
/// One input: what is said, in parts of which size, and whether an answer is waited for.
#[derive(Clone, Debug)]
struct Input {
    bytes: Vec<u8>,
    part: usize,
    listens: bool,
}

impl Input {
    /// The input of a number.
    fn of(number: u64, seeds: &[Seed]) -> Self {
        let mut random = StdRng::seed_from_u64(number);
        let mut bytes = pick(seeds, &mut random);
        for _ in 0..random.random_range(0..8) {
            change(&mut bytes, seeds, &mut random);
        }
        let part = if random.random_bool(0.7) { bytes.len().max(1) } else { random.random_range(1..2048) };
        Self { bytes, part, listens: random.random_bool(0.7) }
    }

    /// Says it, and hangs up.
    async fn say(&self, address: SocketAddr) {
        let Ok(mut stream) = TcpStream::connect(address).await else { return };
        for part in self.bytes.chunks(self.part) {
            // The other side may hang up first, or take no more.
            let Ok(Ok(())) = tokio::time::timeout(PATIENCE, stream.write_all(part)).await else { return };
        }
        if self.listens {
            let _ = stream.shutdown().await;
            let mut heard = Vec::new();
            let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
        }
    }
}

fn pick(seeds: &[Seed], random: &mut StdRng) -> Vec<u8> {
    seeds.choose(random).map(|(_, bytes)| bytes.clone()).unwrap_or_default()
}

/// A place in the bytes, mostly near their beginning, where what is said decides over the rest.
fn place(bytes: &[u8], random: &mut StdRng) -> usize {
    let end = if random.random_bool(0.8) { bytes.len().min(512) } else { bytes.len() };
    random.random_range(0..=end)
}

fn change(bytes: &mut Vec<u8>, seeds: &[Seed], random: &mut StdRng) {
    let (one, other) = (place(bytes, random), place(bytes, random));
    let (begin, end) = (one.min(other), one.max(other));
    match random.random_range(0..7) {
        0 => {
            if let Some(byte) = bytes.get_mut(begin) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(begin) {
                *byte = random.random();
            }
        }
        2 => {
            bytes.drain(begin..end);
        }
        3 => {
            let again = bytes[begin..end].to_vec();
            bytes.splice(end..end, again);
        }
        4 => {
            let edge = EDGES.choose(random).copied().unwrap_or_default();
            let end = bytes.len().min(begin + edge.len());
            bytes.splice(begin..end, edge.iter().copied());
        }
        5 => {
            let another = pick(seeds, random);
            let from = place(&another, random);
            bytes.splice(begin.., another[from..].iter().copied());
        }
        _ => bytes.truncate(end),
    }
}

/// How much is said.
enum Until {
    Inputs(u64),
    Time(Instant),
}

impl Until {
    fn read() -> Self {
        let seconds = variable::<u64>("BERTH_FUZZ_SECONDS");
        seconds
            .map_or(Self::Inputs(INPUTS), |seconds| Self::Time(Instant::now() + Duration::from_secs(seconds)))
    }

    fn is_over(&self, said: u64) -> bool {
        match self {
            Self::Inputs(count) => said >= *count,
            Self::Time(end) => Instant::now() >= *end,
        }
    }
}

fn variable<Number: FromStr>(name: &str) -> Option<Number> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// The most that the program has had in memory so far, in bytes.
fn memory(program: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("the program is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
    let kibibytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kibibytes * 1024
}

/// The agent takes note of whatever the games ask for.
async fn acknowledge(link: &mut Link) {
    while let Some(frame) = link.try_next().await {
        if let ToAgent::Change { uid, sequence, .. } = frame {
            link.acknowledge(&uid.0, sequence.0).await;
        }
    }
}

/// The neighbour's game pings until all is said: how often, and how long the longest answer took.
async fn ping(neighbour: SocketAddr, is_over: &Cell<bool>) -> (u64, Duration) {
    let (mut pings, mut longest) = (0, Duration::ZERO);
    while !is_over.get() {
        let began = Instant::now();
        let answer =
            within("the neighbour is served", ask(neighbour, "POST", "/health", "", Some("{}"))).await;
        assert_eq!(answer.status, 200, "the neighbour is served");
        (pings, longest) = (pings + 1, longest.max(began.elapsed()));
    }
    (pings, longest)
}

/// Says all there is to say; gives back how much that was.
async fn talk(address: SocketAddr, seeds: &[Seed], first: u64, is_over: &Cell<bool>) -> u64 {
    let (until, said) = (Until::read(), Cell::new(0_u64));
    let inputs = futures::stream::iter(std::iter::from_fn(|| {
        let number = said.get();
        said.set(number + 1);
        (!until.is_over(number)).then(|| Input::of(first.wrapping_add(number), seeds))
    }));
    inputs.for_each_concurrent(AT_ONCE, |input| async move { input.say(address).await }).await;
    is_over.set(true);
    said.get() - 1
}

async fn fuzz(transport: &str, seeds: Vec<Seed>, port: impl Fn(&Game) -> SocketAddr) {
    let Stage { _agent, program, mut link, rough, neighbour } = stage(Level::Info).await;
    let address = port(&rough);
    let first = variable("BERTH_FUZZ_SEED").unwrap_or(FIRST);
    println!("{transport}: inputs from number {first} on");
    let is_over = Cell::new(false);
    let story = async {
        // Once all that is known: what the program takes for that, it may keep.
        for (name, bytes) in &seeds {
            let input = Input { bytes: bytes.clone(), part: bytes.len().max(1), listens: true };
            within(name, input.say(address)).await;
        }
        let before = memory(&program);
        let (said, (pings, longest)) =
            tokio::join!(talk(address, &seeds, first, &is_over), ping(neighbour.rest, &is_over));
        let growth = memory(&program).saturating_sub(before);
        println!(
            "{transport}: {said} inputs; {growth} bytes of growth; {pings} pings of the neighbour, \
             the longest {longest:?}"
        );
        assert!(growth <= GROWTH, "it took {growth} bytes more, from {before} on");
    };
    tokio::select! {
        biased;
        () = story => {}
        () = acknowledge(&mut link) => panic!("it let go of the link"),
    }
    let log = program.log();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(
        ask(rough.rest, "GET", "/gameserver", "", None).await.status,
        200,
        "its own server goes on as well"
    );
}

#[tokio::test]
async fn changed_nonsense_at_the_grpc_port_harms_nobody() {
    fuzz("gRPC", [seeds::for_grpc(), seeds::fair_for_grpc()].concat(), |game| game.grpc).await;
}

#[tokio::test]
async fn changed_nonsense_at_the_rest_port_harms_nobody() {
    fuzz("REST", [seeds::for_rest(), seeds::fair_for_rest()].concat(), |game| game.rest).await;
}
