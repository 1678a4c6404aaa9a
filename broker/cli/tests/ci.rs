//! What decides which stages of `.ci/full` run: files, and never a date.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn full(argument: &str, path: &str) -> Output {
    Command::new("bash")
        .args([".ci/full", argument])
        .current_dir(repository())
        .env("PATH", path)
        .output()
        .unwrap()
}

/// A stage whose files cannot be hashed would always be due.
#[test]
fn every_path_of_the_stages_exists() {
    let text = std::fs::read_to_string(repository().join(".ci/full-stages")).unwrap();
    let mut paths = 0;
    for line in text.lines() {
        for path in line.split(' ').skip(4) {
            assert!(repository().join(path).exists(), "{line}: {path}");
            paths += 1;
        }
    }
    assert!(paths > 60, "the stages were read: {paths}");
}

/// A checkout that nobody touched for a year runs what it ran on its first day.
#[test]
fn no_date_decides_what_runs() {
    for script in [".ci/run", ".ci/full"] {
        let text = std::fs::read_to_string(repository().join(script)).unwrap();
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
        {
            let words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
            assert!(
                !words.clone().any(|word| word == "date" || word == "mtime"),
                "{script}: {line}"
            );
        }
    }
    let deny = std::fs::read_to_string(repository().join("deny.toml")).unwrap();
    assert!(deny.contains("\nmaximum-db-staleness = \"P36500D\"\n"));
    let path = std::env::var("PATH").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("date");
    std::fs::write(&clock, "#!/bin/sh\necho 2099-01-01\n").unwrap();
    std::fs::set_permissions(&clock, std::fs::Permissions::from_mode(0o755)).unwrap();
    let much_later = format!("{}:{path}", folder.path().display());
    for argument in ["due", "missing"] {
        let today = full(argument, &path);
        assert!(today.status.success(), "{today:?}");
        assert_eq!(today.stdout, full(argument, &much_later).stdout);
    }
}

/// Without git or history no stage can be shown to have passed.
#[test]
fn every_stage_is_due_without_history() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".ci")).unwrap();
    for file in [".ci/full", ".ci/full-stages"] {
        std::fs::copy(repository().join(file), folder.path().join(file)).unwrap();
    }
    let output = Command::new("bash")
        .args([".ci/full", "due"])
        .current_dir(folder.path())
        .env("GIT_CEILING_DIRECTORIES", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let due = String::from_utf8(output.stdout).unwrap();
    let text = std::fs::read_to_string(repository().join(".ci/full-stages")).unwrap();
    let all = text.lines().filter_map(|line| line.split(' ').next());
    assert_eq!(
        due.split_whitespace().collect::<Vec<_>>(),
        all.collect::<Vec<_>>()
    );
}
