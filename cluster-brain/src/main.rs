//! The program `berth-brain`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_runtime::exit::run(berth_brain::run)
}
