//! `berth-dev`: real Kubernetes on this machine, and Berth on it.

mod app;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let command = app::Command::parse();
    app::log_to_standard_error();
    match app::run(command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("berth-dev: {error:#}");
            ExitCode::FAILURE
        }
    }
}
