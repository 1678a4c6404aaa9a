//! Checks that docs/development/conformance.md covers every check, and that every test it names
//! exists.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;

const CHECKS: usize = 45;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The number, the text and the tests of each row that begins with a number.
fn rows() -> Vec<(usize, String, String)> {
    let text =
        std::fs::read_to_string(repository().join("docs/development/conformance.md")).unwrap();
    let cells = |line: &str| -> Option<(usize, String, String)> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let row = (
            cells.next()?.parse().ok()?,
            cells.next()?.to_owned(),
            cells.next()?.to_owned(),
        );
        cells.next().is_none().then_some(row)
    };
    text.lines().filter_map(cells).collect()
}

/// The texts in backticks that name a test: `suite::test` or `path.rs::test`.
fn named_tests(held_by: &str) -> Vec<(&str, &str)> {
    held_by
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|name| name.rsplit_once("::"))
        .collect()
}

#[test]
fn every_check_has_one_row_in_order() {
    let numbers: Vec<usize> = rows().into_iter().map(|(number, _, _)| number).collect();
    assert_eq!(numbers, (1..=CHECKS).collect::<Vec<_>>());
}

#[test]
fn every_row_names_a_test_or_a_reason() {
    for (number, what, held_by) in rows() {
        let reason = held_by.split_whitespace().count() >= 5 || held_by.starts_with("open: ");
        assert!(
            !what.is_empty() && (!named_tests(&held_by).is_empty() || reason),
            "{number}: {held_by}"
        );
    }
}

#[test]
fn every_named_test_is_there() {
    let mut tests_checked = 0;
    for (number, _, held_by) in rows() {
        for (place, test) in named_tests(&held_by) {
            let (file, needles) = if place.ends_with(".rs") {
                (place.to_owned(), vec![format!("fn {test}(")])
            } else {
                (
                    format!("integration/tests/{place}.rs"),
                    vec![format!("test(\"{test}\""), format!("test_alone(\"{test}\"")],
                )
            };
            let text = std::fs::read_to_string(repository().join(&file)).unwrap_or_default();
            // rustfmt may break the line after the bracket.
            let text: String = text
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace("( ", "(");
            assert!(
                needles.iter().any(|needle| text.contains(needle)),
                "{number} names {test}, which {file} does not hold"
            );
            tests_checked += 1;
        }
    }
    assert!(tests_checked > 50, "the table was read: {tests_checked}");
}

#[test]
fn the_lists_of_verifiers_are_those_of_the_test() {
    let document =
        std::fs::read_to_string(repository().join("docs/development/conformance.md")).unwrap();
    let test =
        std::fs::read_to_string(repository().join("integration/tests/verifiers/verdicts.rs"))
            .unwrap();
    let (_, expected) = test.split_once("fn expected(").unwrap();
    let (expected, _) = expected.split_once("\n}\n").unwrap();
    let versions: Vec<&str> = expected
        .split('"')
        .skip(1)
        .step_by(2)
        .filter_map(|name| name.rsplit(' ').next())
        .collect();
    assert!(versions.len() > 15, "the test was read: {versions:?}");
    for version in versions {
        assert!(
            document.contains(version),
            "docs/development/conformance.md does not name {version}"
        );
    }
}
