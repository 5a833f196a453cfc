//! `berth-agent`: parses, and runs the agent or asks a running one.

use std::process::ExitCode;

use berth_agent::config::{Command, CommandLine, Flags, Settings, TokenFlags};
use berth_agent::socket::command;
use berth_agent::{app, token};
use berth_runtime::{exit, shutdown, telemetry};

fn main() -> ExitCode {
    exit::run(|line: CommandLine| async move {
        match line.command {
            None => Box::pin(run(line.run)).await,
            Some(Command::Run(flags)) => Box::pin(run(*flags)).await,
            Some(Command::Status(flags)) => command::status(&flags).await,
            Some(Command::Drain(flags)) => command::drain(&flags).await,
            Some(Command::Undrain(flags)) => command::undrain(&flags).await,
            Some(Command::Deregister(flags)) => command::deregister(&flags).await,
            Some(Command::Why(flags)) => command::why(&flags).await,
            Some(Command::RenewToken(flags)) => renew_token(&flags).await,
        }
    })
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let log = flags.log.clone();
    let settings = Settings::try_from(flags)?;
    telemetry::init(&log)?;
    let stop = shutdown::Shutdown::on_signals()?.token();
    // What every part of the agent is made from is in it.
    Box::pin(app::run(settings, stop)).await
}

async fn renew_token(flags: &TokenFlags) -> anyhow::Result<()> {
    let end = token::renew(flags).await?;
    println!("{} holds a token for node {} until {end}", flags.file.display(), flags.node_name);
    Ok(())
}
