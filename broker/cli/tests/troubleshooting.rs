//! Every reason code has its section in docs/troubleshooting.md, and no section is for a code that
//! there is not.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

use keyferry_api::reason::Reason;
use keyferry_kube_authn::Code;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
    std::fs::read_to_string(path).unwrap()
}

/// Heading and text of each section. A heading of one word is a code; others are symptoms.
fn sections(text: &str) -> Vec<(&str, &str)> {
    text.split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .collect()
}

/// Whatever can be printed as a reason: by the server, and by the tools for targets.
fn codes() -> BTreeSet<&'static str> {
    let (server, trust) = (
        Reason::ALL.iter().map(|reason| reason.as_str()),
        Code::ALL.iter().map(|code| code.name()),
    );
    server.chain(trust).collect()
}

#[test]
fn no_name_means_two_things() {
    assert_eq!(codes().len(), Reason::ALL.len() + Code::ALL.len());
}

#[test]
fn every_code_has_a_section_and_every_section_a_code() {
    let text = document();
    let headings: Vec<&str> = sections(&text)
        .into_iter()
        .map(|(heading, _)| heading)
        .filter(|heading| !heading.contains(' '))
        .collect();
    let told: BTreeSet<&str> = headings.iter().copied().collect();
    assert_eq!(told.len(), headings.len(), "a code has two sections");
    assert_eq!(
        codes(),
        told,
        "left: codes of reason.rs and of keyferry-kube-authn's code.rs; right: sections of \
         docs/troubleshooting.md"
    );
}

#[test]
fn a_code_has_a_symptom_a_cause_and_a_fix() {
    let text = document();
    let codes = codes();
    for (heading, section) in sections(&text)
        .into_iter()
        .filter(|(heading, _)| codes.contains(heading))
    {
        let places: Vec<Option<usize>> = ["- **Symptom:** ", "- **Cause:** ", "- **Fix:** "]
            .iter()
            .map(|part| section.find(part))
            .collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{heading} lacks one of its three parts, or their order: {places:?}"
        );
    }
}

#[test]
fn the_document_and_the_tools_give_the_same_cause_and_fix() {
    let text = document();
    for (heading, section) in sections(&text) {
        let Some(code) = Code::ALL.iter().find(|code| code.name() == heading) else {
            continue;
        };
        // The document may add sentences of its own.
        for (label, ours) in [("Cause", code.cause()), ("Fix", code.fix())] {
            let (_, theirs) = section.split_once(&format!("- **{label}:** ")).unwrap();
            let theirs = theirs.split_whitespace().collect::<Vec<_>>().join(" ");
            let begins = theirs
                .get(..ours.len())
                .is_some_and(|theirs| theirs.eq_ignore_ascii_case(ours));
            assert!(begins, "{heading}: {label}: the tools say {ours:?}");
        }
    }
}
