#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;
use insta::assert_snapshot;

use super::super::{TrustArgs, check, inputs, tests::HUB};
use super::*;

mod edits;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TrustArgs,
}

/// What the target should have, by the flags of the tests of `trust`.
fn expected() -> TrustInputs {
    let line = HUB.iter().filter(|flag| !flag.starts_with("--bind"));
    let args = Line::try_parse_from(line).unwrap().args;
    inputs::read(&args, None).unwrap()
}

/// The file that `trust` prints.
fn printed() -> String {
    super::super::file(&expected().text(), Minor::V1_36)
}

fn compared(file: &str) -> Comparison {
    compare(file.as_bytes(), &expected(), Minor::V1_36).unwrap()
}

/// The result for a file in which `from` is replaced.
fn edited(from: &str, to: &str) -> String {
    let file = printed();
    assert!(file.contains(from), "{from} is not in {file}");
    let compared = compared(&file.replace(from, to));
    assert!(!compared.differences.is_empty(), "{}", compared.text);
    compared.text
}

#[test]
fn what_trust_prints_has_no_difference() {
    let compared = compared(&printed());
    assert!(compared.differences.is_empty(), "{}", compared.text);
    assert_snapshot!("no-difference", compared.text);
    let mut notes = Vec::new();
    check(&printed(), Minor::V1_36, &[], &mut notes).unwrap();
}

#[test]
fn the_form_of_the_file_does_not_count() {
    let file = printed();
    let mut json: serde_json::Value = serde_saphyr::from_str(&file).unwrap();
    let rules = json["jwt"][0]["claimValidationRules"]
        .as_array_mut()
        .unwrap();
    rules.reverse();
    let subjects = rules
        .iter_mut()
        .find(|rule| rule["expression"].as_str().unwrap().contains("claims.sub"))
        .unwrap();
    subjects["expression"] = "claims.sub in ['system:serviceaccount:tenant-b:ci', \
        'system:serviceaccount:tenant-a:reconciler']"
        .into();
    json["jwt"][0]["issuer"]["audienceMatchPolicy"] = "MatchAny".into();
    let compared = compared(&json.to_string());
    assert!(compared.differences.is_empty(), "{}", compared.text);
}

#[test]
fn each_difference_is_shown_with_both_values_and_its_line() {
    for (case, from, to) in [
        ("a-changed-prefix", "prefix: \"hub:\"", "prefix: \"h:\""),
        ("a-changed-rule", "<= 7200", "<= 86400"),
        // Two audiences without a policy are also refused.
        (
            "an-audience-too-much",
            "      audiences:\n",
            "      audiences:\n        - other\n",
        ),
        (
            "a-rule-that-lacks",
            "      - expression: claims.aud.size() == 1\n        message: the token is for several audiences\n",
            "",
        ),
        (
            "another-account",
            "'system:serviceaccount:tenant-b:ci'",
            "'system:serviceaccount:tenant-c:else'",
        ),
        (
            "another-issuer",
            "https://hub.example.com\"",
            "https://hub.example.com/\"",
        ),
    ] {
        assert_snapshot!(case, edited(from, to));
    }
    let more = "    userValidationRules:\n      - expression: \"true\"\n";
    let text = compared(&format!("{}{more}", printed())).text;
    assert_snapshot!("a-rule-too-much", text);
}

const PEOPLE: &str = "  - issuer:\n      url: https://people\n      audiences: [k8s]\n    \
    claimMappings:\n      username:\n        claim: sub\n        prefix: \"p:\"\n";

#[test]
fn other_issuers_are_left_alone() {
    let file = format!("{}{PEOPLE}", printed());
    let compared = compared(&file);
    assert!(compared.differences.is_empty(), "{}", compared.text);
    assert_snapshot!("another-entry", compared.text);
}

#[test]
fn a_file_without_our_entry_lacks_it() {
    let head = printed();
    let head = head.split_once("jwt:\n").unwrap().0;
    let alone = compared(&format!("{head}jwt:\n{PEOPLE}"));
    assert!(!alone.differences.is_empty());
    assert_snapshot!("an-entry-that-lacks", alone.text);
}

#[test]
fn several_entries_of_our_issuer_are_an_error_of_the_file() {
    let file = printed();
    let entry = file.split_once("jwt:\n").unwrap().1;
    let twice = format!("{file}{entry}");
    let error = compare(twice.as_bytes(), &expected(), Minor::V1_36).unwrap_err();
    assert!(
        matches!(&error, DiffProblem::Several { entries, .. } if entries.len() == 2),
        "{error}"
    );
    let unknown = file.replace("audiences:", "audiencez:");
    let error = compare(unknown.as_bytes(), &expected(), Minor::V1_36).unwrap_err();
    assert!(matches!(error, DiffProblem::NotLoaded(_)), "{error}");
}

#[test]
fn an_unknown_authority_is_not_compared_and_that_is_said() {
    let file = printed().replace(
        "      audiences:\n",
        "      certificateAuthority: \"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\"\n      \
         audiences:\n",
    );
    let compared = compared(&file);
    let shown = format!("{}\nnotes:\n{}", compared.text, compared.notes.join("\n"));
    assert_snapshot!("an-unknown-authority", shown);
}
