//! What a bad disk does: full, read-only, with a file on it that is broken or somebody else's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_api::lifecycle::State;
use berth_api::link::Change;
use berth_api::sdk::v1::sdk_client::SdkClient;
use berth_api::sdk::v1::{Empty, KeyValue};
use rustix::process::Signal;
use tonic::Code;
use tonic::transport::Channel;

use crate::agent::{Agent, Game, Link, Program, view, within};
use crate::games::{Pinging, client};
use crate::journal::{count, label};
use crate::rest::ask;

/// Breaks the journal of a program that was killed while it held a promise, and starts another one.
async fn with_broken_journal(break_it: impl Fn(&Path)) -> (Agent, Program, Link, Game) {
    let agent = Agent::listen();
    let mut first = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    client(&game).await.ready(Empty {}).await.expect("it is answered");
    link.change().await;
    first.signal(Signal::KILL);
    first.ended().await;
    break_it(&agent.socket().with_file_name("state").join("journal.redb"));
    let second = Program::start(&agent.socket());
    let (link, _) = agent.meet().await;
    (agent, second, link, game)
}

fn set_aside(agent: &Agent) -> Vec<PathBuf> {
    let folder = fs::read_dir(agent.socket().with_file_name("state")).expect("it is there");
    folder
        .map(|entry| entry.expect("reads").path())
        .filter(|path| path.to_string_lossy().contains(".redb."))
        .collect()
}

#[tokio::test]
async fn a_corrupted_journal_is_set_aside_and_its_numbers_are_not_used_again() {
    let cases: [(&str, fn(&Path)); 4] = [
        ("nonsense", |path| fs::write(path, "nonsense".repeat(10_000)).unwrap()),
        ("cut off", |path| fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap()),
        ("short", |path| fs::write(path, "redb").unwrap()),
        ("zeros", |path| {
            let length = usize::try_from(fs::metadata(path).unwrap().len()).unwrap();
            let mut bytes = fs::read(path).unwrap();
            bytes[length / 8..].fill(0);
            fs::write(path, bytes).unwrap();
        }),
    ];
    for (name, break_it) in cases {
        let (agent, program, mut link, game) = with_broken_journal(break_it).await;
        program.logged("the journal is lost and a new one begun").await;
        let aside = set_aside(&agent);
        assert_eq!(aside.len(), 1, "{name}");
        assert!(aside[0].to_string_lossy().contains("journal.redb.corrupt-"), "{name}: {aside:?}");
        assert_eq!(count(&program, "berth_sdk_journal_set_aside_total").await, 1, "{name}");
        // The agent has heard of 1, which is not in the object yet.
        link.introduce("u1", &view("u1", State::Scheduled), 0).await;
        link.pass("u1", &game, 1).await;
        client(&game).await.ready(Empty {}).await.unwrap();
        let (_, sequence, change) = link.change().await;
        assert!(sequence > 1000 && change == Change::Ready, "{name}: {sequence}");
    }
}

#[tokio::test]
async fn a_journal_that_vanishes_is_begun_anew() {
    let (agent, program, mut link, game) = with_broken_journal(|path| fs::remove_file(path).unwrap()).await;
    assert!(set_aside(&agent).is_empty());
    link.introduce("u1", &view("u1", State::Ready), 1).await;
    link.pass("u1", &game, 1).await;
    client(&game).await.allocate(Empty {}).await.unwrap();
    assert!(link.change().await.1 > 1000);
    drop(program);
}

/// A folder that can be unmounted.
struct Small(PathBuf);

impl Small {
    /// Room for little; `None` without the right to mount.
    fn mount(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).expect("a folder");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: only root may mount a small file system");
            return None;
        }
        Some(Self(folder.to_owned()))
    }

    fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", options]).arg(&self.0).status().expect("mount is there");
        assert!(status.success(), "{options}: {status}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Waits until calls are answered again.
async fn healed(caller: &mut SdkClient<Channel>, key: &str) {
    within("calls are answered again", async {
        while caller.set_label(label(key, 1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_nothing_else_until_there_is_room() {
    let agent = Agent::listen();
    let state = agent.socket().with_file_name("state");
    let Some(_small) = Small::mount(&state) else { return };
    let program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut caller = client(&game).await;
    caller.set_label(label("before", 1)).await.unwrap();
    assert_eq!(link.change().await.1, 1);

    let filler = state.join("filler");
    let _ = fs::write(&filler, vec![0; 8 * 1024 * 1024]);
    let mut kept = Vec::new();
    let refused = loop {
        let key = format!("big{}", kept.len());
        let pair = KeyValue { key: key.clone(), value: "x".repeat(100_000) };
        match caller.set_annotation(pair).await {
            Ok(_) => {
                kept.push(key);
                let (_, sequence, _) = link.change().await;
                link.introduce("u1", &view("u1", State::Ready), sequence).await;
            }
            Err(refused) => break refused,
        }
        assert!(kept.len() < 100, "the disk is never full");
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("could not be written down"), "{refused}");
    let answer = ask(game.rest, "POST", "/ready", "", Some("{}")).await;
    if answer.status != 200 {
        assert_eq!(answer.status, 503, "{}", answer.body);
    }
    program.logged("the journal cannot be written").await;
    caller.get_game_server(Empty {}).await.unwrap();
    let pinging = Pinging::begin(caller.clone());
    pinging.ping().await;
    pinging.end().await.unwrap();

    fs::remove_file(&filler).unwrap();
    healed(&mut caller, "after").await;
    let mut heard = link.change().await.2;
    while heard != (Change::Label { key: "after".to_owned(), value: "1".to_owned() }) {
        heard = link.change().await.2;
    }
}

#[tokio::test]
async fn a_disk_that_nothing_can_be_written_to_is_told_once_and_heals() {
    let agent = Agent::listen();
    let state = agent.socket().with_file_name("state");
    let Some(small) = Small::mount(&state) else { return };
    small.remount("remount,ro");
    let program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut caller = client(&game).await;
    for _ in 0..3 {
        let refused = within("a refusal", caller.ready(Empty {})).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    assert_eq!(ask(game.rest, "POST", "/ready", "", Some("{}")).await.status, 503);
    caller.get_game_server(Empty {}).await.unwrap();
    assert_eq!(ask(program.admin().await, "GET", "/readyz", "", None).await.status, 503);
    assert_eq!(count(&program, "berth_sdk_journal_writable").await, 0);
    within("it is tried again", async {
        while count(&program, r#"berth_sdk_journal_failures_total{reason="open"}"#).await < 3 {}
    })
    .await;
    let told = "changes are refused, and it is tried again";
    program.logged(told).await;
    assert_eq!(program.log().matches(told).count(), 1);

    small.remount("remount,rw");
    healed(&mut caller, "after").await;
    assert_eq!(link.change().await.1, 1);
    assert_eq!(ask(program.admin().await, "GET", "/readyz", "", None).await.status, 200);
}

#[tokio::test]
async fn two_programs_do_not_share_a_journal() {
    let (agent, other) = (Agent::listen(), Agent::listen());
    let state = agent.socket().with_file_name("state");
    let _first = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    client(&game).await.ready(Empty {}).await.unwrap();
    let second = Program::start_in(&other.socket(), &state);
    second.logged("is in use by another process").await;
    let (mut link, handed_back) = other.meet().await;
    assert!(handed_back.is_empty());
    let game = link.offer("u9").await;
    let refused = client(&game).await.ready(Empty {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(set_aside(&agent).is_empty());
}
