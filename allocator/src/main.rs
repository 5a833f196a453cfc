//! `berth-allocator`: parses, and serves or makes certificates.

use std::process::ExitCode;

use berth_allocator::{Command, CommandLine, certs};

fn main() -> ExitCode {
    berth_runtime::exit::run(|line: CommandLine| async move {
        match line.command {
            None => Box::pin(berth_allocator::run(line.run)).await,
            Some(Command::Run(settings)) => Box::pin(berth_allocator::run(*settings)).await,
            Some(Command::Certs(flags)) => Ok(certs::run(&flags)?),
        }
    })
}
