//! `berth-agent`: parses, and runs the agent or asks a running one.

use std::process::ExitCode;

use berth_agent::config::{Command, CommandLine, Flags, Settings, StatusFlags};
use berth_agent::{app, socket};
use berth_runtime::{clock, exit, shutdown, telemetry};

fn main() -> ExitCode {
    exit::run(|line: CommandLine| async move {
        match line.command {
            None => Box::pin(run(line.run)).await,
            Some(Command::Run(flags)) => Box::pin(run(*flags)).await,
            Some(Command::Status(flags)) => status(&flags).await,
        }
    })
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let log = flags.log.clone();
    let settings = Settings::try_from(flags)?;
    telemetry::init(&log)?;
    let stop = shutdown::Shutdown::on_signals()?.token();
    app::run(settings, stop).await
}

async fn status(flags: &StatusFlags) -> anyhow::Result<()> {
    let status = socket::client::status(&flags.socket).await?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", status.table(clock::now()));
    }
    Ok(())
}
