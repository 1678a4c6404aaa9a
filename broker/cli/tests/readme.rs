//! The README's transcript is a part of what the demo prints, every Markdown link leads somewhere,
//! old addresses of pages say where their content is, and decisions have one form.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
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
fn the_transcript_is_a_part_of_what_the_demo_prints() {
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
    let printed = steady(&String::from_utf8(output.stdout).unwrap());
    assert!(
        transcript.lines().count() > 20 && printed.contains(transcript),
        "the demo prints:\n{printed}\nthe README shows:\n{transcript}"
    );
}

/// The folders whose Markdown is not ours: builds, and what tests install.
const FOREIGN_FOLDERS: [&str; 3] = ["target", ".git", "node_modules"];

/// Every Markdown file below `folder`.
fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if !FOREIGN_FOLDERS.contains(&name.as_str()) {
                files.extend(markdown_files(&path));
            }
        } else if name.ends_with(".md") {
            files.push(path);
        }
    }
    files
}

/// The targets of the links of a text, without those in blocks of code.
fn link_targets(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    outside
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .collect()
}

fn has_anchor(text: &str, anchor: &str) -> bool {
    text.contains(&format!("<a id=\"{anchor}\"></a>"))
        || text
            .lines()
            .filter(|line| line.starts_with('#'))
            .any(|line| slug(line) == anchor)
}

#[test]
fn links_lead_somewhere() {
    let documents = markdown_files(repository());
    assert!(documents.len() > 300, "{}", documents.len());
    let mut faults = Vec::new();
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in link_targets(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let target = if path.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(path)
            };
            let leads_somewhere = target.exists()
                && (anchor.is_empty()
                    || has_anchor(&std::fs::read_to_string(&target).unwrap(), anchor));
            if !leads_somewhere {
                faults.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_decision_has_one_form() {
    let folder = repository().join("docs/development/decisions");
    let decisions = markdown_files(&folder);
    assert!(decisions.len() > 20, "{}", decisions.len());
    for decision in decisions {
        let text = std::fs::read_to_string(&decision).unwrap();
        for part in ["**Decision.**", "**Why.**", "**Price.**"] {
            let count = text.lines().filter(|line| line.starts_with(part)).count();
            assert!(count == 1, "{}: {count} times {part}", decision.display());
        }
    }
}

/// The pages that messages, alerts and files of earlier versions name. Each is still there, and
/// says where its content is now.
const OLD_ADDRESSES: [&str; 20] = [
    "api.md",
    "benchmarks.md",
    "ci.md",
    "clients.md",
    "compatibility.md",
    "configuration.md",
    "conformance.md",
    "deliveries.md",
    "fips.md",
    "flux.md",
    "impersonation.md",
    "inputs.md",
    "install.md",
    "operations.md",
    "reason-codes.md",
    "reference.md",
    "security.md",
    "tls.md",
    "troubleshooting.md",
    "verify-codes.md",
];

/// The sections that messages of earlier versions name.
const OLD_SECTIONS: [(&str, &str); 15] = [
    ("api.md", "post-v1token"),
    ("ci.md", "let-a-project-deploy"),
    ("configuration.md", "serverconfiguration"),
    ("deliveries.md", "deletion-and-drain"),
    ("flux.md", "rights-at-the-target"),
    ("inputs.md", "give-a-cluster-its-credential"),
    ("inputs.md", "give-a-cluster-its-platform-components"),
    ("install.md", "admission-policies"),
    ("operations.md", "key-rotation-on-the-hub"),
    ("operations.md", "keys"),
    ("operations.md", "managed-issuers"),
    ("operations.md", "restarts-of-the-hubs-apiservers"),
    ("security.md", "connections"),
    ("tls.md", "from-one-ca-to-the-next"),
    ("tls.md", "metrics-with-tls"),
];

#[test]
fn old_addresses_say_where_their_content_is() {
    let read = |page: &str| std::fs::read_to_string(repository().join("docs").join(page)).unwrap();
    for page in OLD_ADDRESSES {
        assert!(read(page).contains("This page is now ["), "{page}");
    }
    for (page, anchor) in OLD_SECTIONS {
        assert!(has_anchor(&read(page), anchor), "{page}#{anchor}");
    }
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|character| character.is_alphanumeric() || *character == ' ' || *character == '-')
        .collect::<String>()
        .replace(' ', "-")
}
