//! The program `berth-allocator`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_runtime::exit::run(berth_allocator::run)
}
