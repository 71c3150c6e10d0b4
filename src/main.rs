//! Exit codes and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    waypost::cli::run()
}
