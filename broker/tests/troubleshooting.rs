//! Every reason code has its section in docs/troubleshooting.md, and no section is for a code that there is not.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

use keyferry_core::reason::Reason;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/troubleshooting.md");
    std::fs::read_to_string(path).unwrap()
}

/// Heading and text of each section. A heading of one word is a code; others are symptoms.
fn sections(text: &str) -> Vec<(&str, &str)> {
    text.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect()
}

#[test]
fn every_code_has_a_section_and_every_section_a_code() {
    let text = document();
    let headings: Vec<&str> = sections(&text).into_iter().map(|(heading, _)| heading).filter(|heading| !heading.contains(' ')).collect();
    let told: BTreeSet<&str> = headings.iter().copied().collect();
    assert_eq!(told.len(), headings.len(), "a code has two sections");
    let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(codes, told, "left: codes of reason.rs; right: sections of docs/troubleshooting.md");
}

#[test]
fn a_code_has_a_symptom_a_cause_and_a_mend() {
    let text = document();
    let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    for (heading, section) in sections(&text).into_iter().filter(|(heading, _)| codes.contains(heading)) {
        let places: Vec<Option<usize>> =
            ["- **Symptom:** ", "- **Cause:** ", "- **Mend:** "].iter().map(|part| section.find(part)).collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{heading} lacks one of its three parts, or their order: {places:?}"
        );
    }
}
