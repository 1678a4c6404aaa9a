//! docs/reference/objects.md is what the command prints, and every field has a description.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;

fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_keyferry"))
        .arg("crds")
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_document_is_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/objects.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert!(
        document == printed(&["--markdown"]),
        "run: keyferry crds --markdown > docs/reference/objects.md"
    );
}

#[test]
fn the_stream_holds_the_files_as_they_are() {
    let stream = printed(&[]);
    for name in ["targetclusters", "targetaccesses", "audiencepairings"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crds/{name}.yaml"));
        assert!(
            stream.contains(std::fs::read_to_string(path).unwrap().trim_end()),
            "{name}"
        );
    }
    assert_eq!(stream.split("---\n").count(), 3);
}

#[test]
fn every_field_of_a_spec_is_described() {
    let text = printed(&["--markdown"]);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `spec") || line.starts_with("| `pairs"))
        .collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for row in rows {
        let meaning = row
            .split(" | ")
            .nth(2)
            .unwrap_or_default()
            .trim_end_matches('|')
            .trim();
        assert!(meaning.len() > 10, "{row}");
    }
}
