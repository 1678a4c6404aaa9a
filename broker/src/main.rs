//! `keyferry`: parse the command line, run it, leave with its exit code.

use std::process::ExitCode;

/// Threads of the image's C library wait for each other in its own allocator, and those of glibc
/// for many sizes that a request needs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keyferry::cli::main()
}
