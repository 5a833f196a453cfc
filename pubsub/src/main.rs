//! The program `berth-pubsub`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_runtime::exit::run(berth_pubsub::run)
}
