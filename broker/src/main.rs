//! `keyferry`: parse the command line, run it, leave with its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    keyferry::cli::main()
}
