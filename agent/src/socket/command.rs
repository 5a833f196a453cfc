//! The commands that ask the agent of this node: each asks, prints, and says by its exit code what came of it.

use std::time::Duration;

use berth_runtime::clock;
use berth_runtime::exit::AnswerIsNo;
use serde::Serialize;

use super::client;
use super::views::{DrainAnswer, DrainRequest};
use crate::config::{AskFlags, DrainFlags, StatusFlags, WhyFlags};

/// Between two looks.
const PACE: Duration = Duration::from_secs(1);
/// Clears a terminal and goes to its upper left corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

fn print(json: bool, answer: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(answer)?);
    } else {
        print!("{}", text());
    }
    Ok(())
}

fn no(why: impl Into<String>) -> anyhow::Error {
    AnswerIsNo { why: why.into() }.into()
}

/// `status`.
///
/// # Errors
/// There is no answer.
pub async fn status(flags: &StatusFlags) -> anyhow::Result<()> {
    loop {
        let status = client::status(&flags.ask.socket).await?;
        let clear = if flags.watch && !flags.ask.json { CLEAR } else { "" };
        print(flags.ask.json, &status, || format!("{clear}{}", status.table(clock::now())))?;
        if !flags.watch {
            return Ok(());
        }
        tokio::time::sleep(PACE).await;
    }
}

/// `drain`.
///
/// # Errors
/// It is not done; or sessions would be at risk.
pub async fn drain(flags: &DrainFlags) -> anyhow::Result<()> {
    let request = DrainRequest {
        reason: flags.reason.clone(),
        deadline: flags.deadline.map(|deadline| deadline.from(clock::now())),
        plan: flags.plan,
    };
    let answer = client::drain(&flags.ask.socket, &request).await?;
    show(&flags.ask, &answer)?;
    if flags.plan && answer.plan.at_risk() > 0 {
        return Err(no(format!("{} sessions would be at risk", answer.plan.at_risk())));
    }
    if !flags.wait {
        return Ok(());
    }
    loop {
        let status = client::status(&flags.ask.socket).await?;
        match status.drain.course.as_str() {
            "drained" => return Ok(()),
            "draining" => tokio::time::sleep(PACE).await,
            other => return Err(no(format!("the order was taken back: the node is {other}"))),
        }
    }
}

/// `undrain`.
///
/// # Errors
/// It is not done; or somebody else keeps the node closed.
pub async fn undrain(flags: &AskFlags) -> anyhow::Result<()> {
    let answer = client::undrain(&flags.socket).await?;
    show(flags, &answer)?;
    match answer.drain.reason {
        None => Ok(()),
        Some(reason) => Err(no(format!("the node is still {}: {reason}", answer.drain.course))),
    }
}

fn show(flags: &AskFlags, answer: &DrainAnswer) -> anyhow::Result<()> {
    print(flags.json, answer, || answer.text(clock::now()))
}

/// `deregister`.
///
/// # Errors
/// It is not done.
pub async fn deregister(flags: &AskFlags) -> anyhow::Result<()> {
    let told = client::deregister(&flags.socket).await?;
    print(flags.json, &told, || format!("{}\n", told.message))
}

/// `why`.
///
/// # Errors
/// It is not known.
pub async fn why(flags: &WhyFlags) -> anyhow::Result<()> {
    match client::why(&flags.ask.socket, &flags.server).await {
        Ok(line) => print(flags.ask.json, &line, || line.story(clock::now())),
        Err(error) if error.is_not_found() => Err(no(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
