//! Runs this binary in callgrind, and reads what it counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::counted::{FOLDER, PROCESSOR, ROUNDS, Subject};

/// How often the counted process is started until it ends well.
const ATTEMPTS: usize = 3;

/// What callgrind counted.
pub struct Counted {
    /// Instructions of one operation of each of [`Subject::ALL`], for each round.
    pub rounds: Vec<Vec<u64>>,
    /// What the emulated processor can do.
    pub processor: String,
}

/// The version of valgrind, if there is one.
pub fn version() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(version)
}

/// Counts every subject in every round. The files stay, for a profile.
pub fn count() -> Result<Counted, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callgrind");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    // On a crowded machine the world around the subjects may not start in its time.
    (1..=ATTEMPTS)
        .find_map(|attempt| match run_in_callgrind(&folder) {
            Err(_) if attempt < ATTEMPTS => None,
            outcome => Some(outcome),
        })
        .unwrap_or_else(|| Err("no attempt was made".to_owned()))?;
    let totals = read_totals(&folder)?;
    let processor = std::fs::read_to_string(folder.join(PROCESSOR)).map_err(failed)?;
    let counts_of_round = |round| {
        Subject::ALL
            .iter()
            .enumerate()
            .map(|(at, subject)| of_one(&totals, round * Subject::ALL.len() + at, *subject))
            .collect()
    };
    Ok(Counted {
        rounds: (0..ROUNDS).map(counts_of_round).collect::<Result<_, _>>()?,
        processor,
    })
}

fn run_in_callgrind(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let out = folder.join("out");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--separate-threads=yes"])
        .args(["--dump-line=no", "--dump-before=*mark_of_a_part*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().map_err(failed)?)
        .env(FOLDER, folder)
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("the counted process: {}: {said}", output.status))
}

/// Instructions by part.
type Totals = BTreeMap<u64, u64>;

fn read_totals(folder: &Path) -> Result<Totals, String> {
    let mut totals = Totals::new();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        let path: PathBuf = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read(&path).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let number = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        if let (Some(part), Some(total)) = (number("part: "), number("totals: ")) {
            totals.insert(part, total);
        }
    }
    Ok(totals)
}

/// Each mark ends a part of its thread, so the `at`-th work, counted from 0, is part `2 * at + 2`.
fn of_one(totals: &Totals, at: usize, subject: Subject) -> Result<u64, String> {
    let counted = totals.get(&(2 * at as u64 + 2)).copied();
    match counted.unwrap_or_default() / subject.repetitions() as u64 {
        0 => Err(format!("callgrind counted nothing for {}", subject.name())),
        count => Ok(count),
    }
}
