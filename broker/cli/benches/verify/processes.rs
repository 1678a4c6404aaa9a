//! Measures the built binary on a shipped file, from its start to its exit.

use std::process::{Command, Stdio};

use keyferry_integration::auth_configs;

use crate::harness::{Outcome, process};

const RUNS: usize = 200;
const ROUNDS: usize = 5;

/// The runs of one command.
pub struct Subject {
    /// The command.
    pub name: &'static str,
    /// The wall-clock milliseconds of each run.
    pub times: Vec<f64>,
    /// The milliseconds of CPU time of all runs; `None` where there is no `/proc`.
    pub cpu: Option<f64>,
}

/// Runs the commands alternately, so that other load on the machine affects all of them.
pub fn measure() -> Outcome<Vec<Subject>> {
    let file = auth_configs::folder()
        .join("several-hubs.yaml")
        .display()
        .to_string();
    let account = [
        "--service-account",
        "tenant-a/reconciler",
        "--issuer",
        "https://hub-eu.keyferry.test",
    ];
    let keyferry = env!("CARGO_BIN_EXE_keyferry");
    let verify = [&["verify", "--auth-config", &file][..], &account].concat();
    let subjects: [(&'static str, &str, &[&str]); 4] = [
        ("a process that does nothing: `true`", "true", &[]),
        ("`keyferry --version`", keyferry, &["--version"]),
        (
            "`keyferry lint several-hubs.yaml`",
            keyferry,
            &["lint", &file],
        ),
        (
            "`keyferry verify --auth-config several-hubs.yaml --service-account …`",
            keyferry,
            &verify,
        ),
    ];
    let empty = |(name, ..): &(&'static str, _, _)| Subject {
        name,
        times: Vec::with_capacity(RUNS),
        cpu: Some(0.0),
    };
    let mut measured: Vec<Subject> = subjects.iter().map(empty).collect();
    for round in 0..=ROUNDS {
        for ((_, program, arguments), subject) in subjects.iter().zip(&mut measured) {
            let before = cpu_of_children();
            let mut times = Vec::new();
            for _ in 0..RUNS / ROUNDS {
                times.push(run(program, arguments)?);
            }
            // Do not count the first round, which reads the binary from disk.
            if round > 0 {
                subject.cpu = subject
                    .cpu
                    .zip(before)
                    .zip(cpu_of_children())
                    .map(|((sum, before), after)| sum + after - before);
                subject.times.extend(times);
            }
        }
    }
    Ok(measured)
}

fn run(program: &str, arguments: &[&str]) -> Outcome<f64> {
    let start = process::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    let time = start.elapsed().as_secs_f64() * 1000.0;
    if status.success() {
        Ok(time)
    } else {
        Err(format!("{program} {arguments:?} leaves with {status}").into())
    }
}

/// The milliseconds of CPU time of all children that have exited.
fn cpu_of_children() -> Option<f64> {
    process::cpu_time_of_children().map(|cpu| cpu.as_secs_f64() * 1000.0)
}
