//! The program `berth-simulator`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_runtime::exit::run(berth_simulators::run)
}
