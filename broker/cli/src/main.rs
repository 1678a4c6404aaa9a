//! `keyferry`: parses the command line, runs the command and exits with its code.

use std::process::ExitCode;

/// The allocator. In that of the image's C library all threads contend, and in that of glibc for
/// many sizes that a request needs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keyferry::main()
}
