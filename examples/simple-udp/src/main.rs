//! An example game server: it echoes what it is sent over UDP and TCP, takes the commands that testers of game server
//! platforms know, and speaks the SDK protocol as a real game would.
//!
//! Exit codes: 0 ended as asked, 1 failed, 64 bad configuration, or what CRASH was told.

mod app;
mod command;
mod game;
mod health;
mod sdk;
mod serve;
mod settings;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::game::Ending;
use crate::settings::Settings;

const BAD_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let settings = match Settings::try_parse() {
        Ok(settings) => settings,
        Err(error) => {
            // Nothing can be done when even stderr is closed.
            let _ = error.print();
            let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if asked_for { 0 } else { BAD_CONFIGURATION });
        }
    };
    if let Err(what) = settings.check() {
        eprintln!("error: {what}");
        return ExitCode::from(BAD_CONFIGURATION);
    }
    match run(settings) {
        Ok(Ending::Exit) => ExitCode::SUCCESS,
        Ok(Ending::Crash(code)) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread is enough for an echo, and dozens of these share a machine.
fn run(settings: Settings) -> anyhow::Result<Ending> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(app::run(settings))
}
