//! Reads the operating system's figures about processes and the machine, and writes to the
//! terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::Outcome;

/// The allocator of the shipped binary, so that a server in a benchmark's own process is measured
/// as it is shipped.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `USER_HZ` of Linux, the unit of the times in `/proc/<pid>/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the machine's clock, because no caller passes a clock to a benchmark.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the clock for the benchmarks"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// User and system time of this process so far; `None` where there is no `/proc`.
pub fn cpu_time() -> Option<Duration> {
    cpu_time_of(std::process::id())
}

/// The user and system time of any process.
pub fn cpu_time_of(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain any characters, so count the fields from its end: utime
    // is the 14th, stime the 15th.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
}

/// Resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Describes the machine in general terms, and how busy it already was.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let kib: f64 = text
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?
                .trim()
                .trim_end_matches("kB")
                .trim()
                .parse()
                .ok()?;
            Some(format!("{:.0} GiB, ", kib / 1024.0 / 1024.0))
        });
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| {
        text.split_whitespace()
            .next()
            .map(|one| format!("; load average when it began: {one}"))
    });
    format!(
        "{cores} cores, {}{}{}",
        memory.unwrap_or_default(),
        std::env::consts::OS,
        load.unwrap_or_default()
    )
}

/// Writes to standard output.
pub fn say(text: &str) -> Outcome<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Writes progress and errors to standard error.
pub fn complain(text: &str) -> Outcome<()> {
    Ok(std::io::stderr().lock().write_all(text.as_bytes())?)
}

/// The exit code of the process; prints the error if it failed.
pub fn exit(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = complain(&format!("benchmark: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
