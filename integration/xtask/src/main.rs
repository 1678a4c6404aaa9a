//! `cargo xtask`: the tasks of a contributor, each as one command. `.ci/run` runs the same ones.

mod task;

use std::process::{Command, ExitCode};

use self::task::{Step, TASKS, find};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&problem);
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let (name, rest) = words.split_first().ok_or_else(usage)?;
    let task = find(name).ok_or_else(|| format!("no task is called {name:?}\n{}", usage()))?;
    for step in (task.steps)(rest)? {
        run_step(&step)?;
    }
    Ok(())
}

/// The table of tasks, as it is printed without one.
fn usage() -> String {
    let lines = TASKS.iter().map(|task| {
        let call = format!("{} {}", task.name, task.arguments);
        format!("  cargo xtask {:<22} {}", call.trim_end(), task.about)
    });
    let lines: Vec<String> = lines.collect();
    format!("tasks:\n{}", lines.join("\n"))
}

fn run_step(step: &Step) -> Result<(), String> {
    say(&format!("== {step}"));
    let status = Command::new(step.program)
        .args(&step.arguments)
        .envs(step.variables.iter().map(|(name, value)| (name, value)))
        .status()
        .map_err(|error| format!("starting {}: {error}. fix: {}", step.program, step.fix))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{step}: {status}")),
    }
}

/// What the tasks say goes beside the output of their programs.
#[expect(clippy::print_stderr, reason = "this program talks to a person")]
fn say(text: &str) {
    eprintln!("{text}");
}
