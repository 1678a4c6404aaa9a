//! `broker/counts/instructions.tsv`: the figures that the run is held to, and all that they depend
//! on.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::figures::Figures;

/// How far a figure may be from the recorded one, in per cent.
const BOUND: f64 = 3.0;
const HEAD: &str = "# Instructions of one operation, counted by callgrind, and what the figures depend on. Written by\n\
    # KEYFERRY_WRITE_COPIES=1 cargo test --locked --profile counts -p keyferry-counts --test instructions\n";
const RECORD_AGAIN: &str = "fix: find the cause; if it is wanted, KEYFERRY_WRITE_COPIES=1 cargo \
    test --locked --profile counts -p keyferry-counts --test instructions";

/// What the figures depend on, by name.
pub type Environment = BTreeMap<&'static str, String>;

/// The record, by the names of its lines.
pub struct Record(BTreeMap<String, String>);

/// What this run's figures depend on.
pub fn environment(valgrind: String, processor: String) -> Environment {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().next().unwrap_or("unknown").to_owned()
    };
    Environment::from([
        ("rustc", first_line("rustc", "--version")),
        ("cc", first_line("cc", "--version")),
        ("libc", first_line("getconf", "GNU_LIBC_VERSION")),
        (
            "target",
            format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        ),
        ("valgrind", valgrind),
        ("processor", processor),
    ])
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv")
}

/// Writes the record.
pub fn write(environment: &Environment, figures: &Figures) -> Result<(), String> {
    let mut text = HEAD.to_owned();
    for (name, value) in environment {
        let _ = writeln!(text, "{name}\t{value}");
    }
    for figure in &figures.0 {
        let _ = writeln!(text, "{}\t{}", figure.subject.name(), figure.median);
    }
    std::fs::write(path(), text).map_err(|error| format!("{}: {error}", path().display()))?;
    println!("instructions: recorded in {}", path().display());
    Ok(())
}

/// Reads the record. One that is missing was made with nothing, so nothing is compared with it.
pub fn read() -> Record {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('\t'));
    Record(
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

impl Record {
    /// Why these figures cannot be compared with the record.
    pub fn difference(&self, environment: &Environment) -> Option<String> {
        environment.iter().find_map(|(name, value)| {
            let recorded = self.0.get(*name).map_or("nothing", String::as_str);
            (recorded != value).then(|| {
                format!(
                    "it was made with {name} {recorded:?}, and this is {value:?}. {RECORD_AGAIN}"
                )
            })
        })
    }

    /// Fails if a figure is further from the recorded one than the bound, in either direction: what
    /// became cheaper unrecorded could become dear again unseen.
    pub fn compare(&self, figures: &Figures) -> Result<(), String> {
        let mut wrong = Vec::new();
        for figure in &figures.0 {
            let name = figure.subject.name();
            let recorded = self.0.get(name).and_then(|text| text.parse::<f64>().ok());
            let Some(recorded) = recorded else {
                wrong.push(format!("{name} has no record"));
                continue;
            };
            let change = (figure.median as f64 / recorded - 1.0) * 100.0;
            println!("instructions: {name}: {change:+.2} %");
            if change.abs() > BOUND {
                wrong.push(format!("{name}: {change:+.2} % of {recorded}"));
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{}. {RECORD_AGAIN}", wrong.join("; "))),
        }
    }
}
