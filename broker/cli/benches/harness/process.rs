//! Reads the operating system's figures about processes and the machine, and writes to the
//! terminal.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::Outcome;

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
    // utime is the 14th field, stime the 15th.
    ticks_of(pid, [11, 12])
}

/// The user and system time of all children of this process that have exited.
pub fn cpu_time_of_children() -> Option<Duration> {
    // cutime is the 16th field, cstime the 17th.
    ticks_of(std::process::id(), [13, 14])
}

/// How long each thread of a process has been able to run and had no core so far, by its id.
pub fn waits_of(pid: u32) -> BTreeMap<OsString, Duration> {
    let wait = |thread: DirEntry| {
        let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        // The time on a core, the time in its queue, and the number of turns.
        let queued = schedstat.split_whitespace().nth(1)?.parse().ok()?;
        Some((thread.file_name(), Duration::from_nanos(queued)))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.filter_map(wait).collect()
}

/// The milliseconds a second that the threads of a process, together, waited for a core during
/// `window`. `before` is [`waits_of`] at its begin; a thread that has ended since counts nothing.
pub fn waits_per_second(pid: u32, before: &BTreeMap<OsString, Duration>, window: Duration) -> f64 {
    let waited = waits_of(pid).into_iter().map(|(thread, after)| {
        after.saturating_sub(before.get(&thread).copied().unwrap_or_default())
    });
    waited.sum::<Duration>().as_secs_f64() * 1000.0 / window.as_secs_f64()
}

/// The sum of two times in `/proc/<pid>/stat`, by their places after the name of the program. The
/// name may contain any characters, so fields are counted from its end.
fn ticks_of(pid: u32, places: [usize; 2]) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let mut ticks = 0;
    for place in places {
        ticks += fields.get(place)?.parse::<u64>().ok()?;
    }
    Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
}

/// Resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    kib_in(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The highest resident memory of a process so far, in KiB.
pub fn peak_kib(pid: u32) -> Option<u64> {
    kib_in(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// The KiB on the line with this name of a file below `/proc`.
fn kib_in(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Describes the machine in general terms, and how busy it already was.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = kib_in("/proc/meminfo", "MemTotal:")
        .map(|kib| format!("{:.0} GiB, ", kib as f64 / 1024.0 / 1024.0));
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
