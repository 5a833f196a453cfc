//! The program `berth-sdk`.

use std::process::ExitCode;

use berth_runtime::exit;

fn main() -> ExitCode {
    exit::run(berth_sdk::app::run)
}
