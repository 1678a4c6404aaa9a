//! The image and the one that `examples/install/Dockerfile` makes have the same files and the same
//! configuration, as far as the Dockerfile's text says. No daemon runs it here, so this does not
//! compare the bytes of the binary and of the CA certificates, which come from another base there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use keyferry_image::{Image, Labels, keyferry};

fn dockerfile() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/install/Dockerfile");
    let text = std::fs::read_to_string(path).unwrap();
    text.replace("\\\n", " ")
}

/// The rest of the only line of the last stage that begins with this word.
fn instruction(word: &str) -> String {
    let text = dockerfile();
    let (_, stage) = text.rsplit_once("\nFROM ").unwrap();
    let mut lines = stage
        .lines()
        .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let found = lines.next().unwrap().trim().to_owned();
    assert_eq!(lines.next(), None, "{word}");
    found
}

/// A static binary of 64 bits without program headers.
fn image() -> Image {
    let mut binary = vec![0; 64];
    binary[..6].copy_from_slice(b"\x7fELF\x02\x01");
    binary[18] = 62;
    let labels = Labels {
        version: "${VERSION}".to_owned(),
        revision: "${REVISION}".to_owned(),
    };
    keyferry(binary, b"PEM".to_vec(), &labels).unwrap()
}

#[test]
fn the_files_are_those_that_the_build_installs() {
    let text = dockerfile();
    let run = text.lines().find(|line| line.contains("/image/")).unwrap();
    let mut installed = BTreeMap::new();
    let mut written = BTreeMap::new();
    for command in run.split("&&").map(str::trim) {
        let words: Vec<&str> = command.split_whitespace().collect();
        if let ["install", "-D", "-m", mode, _, to] = words[..] {
            let mode = u32::from_str_radix(mode, 8).unwrap();
            installed.insert(to.strip_prefix("/image/").unwrap().to_owned(), mode);
        } else if let Some(rest) = command.strip_prefix("echo '") {
            let (line, to) = rest.split_once("' > /image/").unwrap();
            written.insert(to.to_owned(), format!("{line}\n"));
            // `install` has made no such file, so its mode is that of the shell's umask.
            installed.insert(to.to_owned(), 0o644);
        } else {
            assert!(!command.contains("/image/"), "not understood: {command}");
        }
    }
    let image = image();
    let files: BTreeMap<String, u32> = image
        .files
        .iter()
        .map(|file| (file.path.clone(), file.mode))
        .collect();
    assert_eq!(files, installed);
    for (path, text) in written {
        let file = image.files.iter().find(|file| file.path == path).unwrap();
        assert_eq!(String::from_utf8_lossy(&file.content), text, "{path}");
    }
}

#[test]
fn the_process_is_the_one_that_the_last_stage_names() {
    let config = image().config;
    let words = |word: &str| serde_json::from_str::<Vec<String>>(&instruction(word)).unwrap();
    assert_eq!(config.user, instruction("USER"));
    assert_eq!(config.entrypoint, words("ENTRYPOINT"));
    assert_eq!(config.command, words("CMD"));
    let ports: Vec<String> = config.ports.iter().map(ToString::to_string).collect();
    assert_eq!(ports.join(" "), instruction("EXPOSE"));
}

#[test]
fn the_labels_are_the_same() {
    let text = instruction("LABEL");
    let labels: BTreeSet<(String, String)> = text
        .split("\" ")
        .map(|label| {
            label
                .trim()
                .trim_end_matches('"')
                .split_once("=\"")
                .unwrap()
        })
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let ours: BTreeSet<(String, String)> = image().config.labels.into_iter().collect();
    assert_eq!(ours, labels);
}
