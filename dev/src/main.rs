//! `berth-dev`: real Kubernetes on this machine, and Berth on it.

mod app;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let command = app::Command::parse();
    // Programs that run as another user must be able to reach what is made for them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    app::log_to_standard_error();
    match app::run(command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("berth-dev: {error:#}");
            ExitCode::FAILURE
        }
    }
}
