//! Runs this binary in callgrind, and reads what it counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::counted::{FOLDER, PROCESSOR, ROUNDS, Subject};

/// The thread that asks, as callgrind numbers threads.
const ASKING_THREAD: u32 = 1;

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
    let _ = std::fs::remove_dir_all(&folder);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let this = std::env::current_exe().map_err(failed)?;
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--separate-threads=yes"])
        .args(["--dump-line=no", "--dump-before=*mark_of_a_part*"])
        .arg(format!(
            "--callgrind-out-file={}",
            folder.join("out").display()
        ))
        .arg(this)
        .env(FOLDER, &folder)
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the counted process: {}: {said}", output.status));
    }
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

/// Instructions by part and thread.
type Totals = BTreeMap<(usize, u32), u64>;

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
        if let (Some(part), Some(thread), Some(total)) =
            (number("part: "), number("thread: "), number("totals: "))
        {
            *totals.entry((part as usize, thread as u32)).or_default() += total;
        }
    }
    Ok(totals)
}

/// Part 1 ends at the first mark, so the `at`-th work, counted from 0, is in part `2 * at + 2`.
fn of_one(totals: &Totals, at: usize, subject: Subject) -> Result<u64, String> {
    let part = 2 * at + 2;
    let of_threads = totals.range((part, 0)..(part + 1, 0));
    let counted: u64 = of_threads
        .filter(|((_, thread), _)| (*thread != ASKING_THREAD) == subject.is_served())
        .map(|(_, total)| total)
        .sum();
    match counted / subject.repetitions() as u64 {
        0 => Err(format!("callgrind counted nothing for {}", subject.name())),
        count => Ok(count),
    }
}
