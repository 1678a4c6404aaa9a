//! The README's first screen is what the demo prints, and its links lead somewhere.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The one figure that depends on where a second begins, and on how long this machine takes for the
/// exchange.
fn steady(text: &str) -> String {
    (3480..3540).fold(text.to_owned(), |text, seconds| {
        text.replace(&format!("expires_in={seconds}"), "expires_in=3540")
    })
}

#[test]
fn the_transcript_is_what_the_demo_prints() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme
        .split_once("```transcript\n")
        .expect("the README has a transcript");
    let (transcript, _) = rest.split_once("```").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .args(["demo", "--once"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        steady(&String::from_utf8(output.stdout).unwrap()),
        transcript
    );
}

#[test]
fn links_lead_somewhere() {
    let mut documents = vec![
        repository().join("README.md"),
        repository().join("SECURITY.md"),
        repository().join("CONTRIBUTING.md"),
    ];
    for folder in ["docs", "docs/decisions"] {
        let entries = std::fs::read_dir(repository().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        documents.extend(
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")),
        );
    }
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") {
                continue;
            }
            let target = if path.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(path)
            };
            assert!(
                target.exists(),
                "{}: {link} leads nowhere",
                document.display()
            );
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let heading = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| slug(line) == anchor);
                assert!(heading, "{}: {link} names no heading", document.display());
            }
        }
    }
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|character| character.is_alphanumeric() || *character == ' ' || *character == '-')
        .collect::<String>()
        .replace(' ', "-")
}
