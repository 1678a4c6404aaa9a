#![allow(clippy::unwrap_used, clippy::expect_used)]

use clap::Parser;

use super::super::{TrustArgs, check, inputs, tests::HUB};
use super::*;

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
    super::super::file(&expected().rules.entry(), Minor::V1_36)
}

fn compared(file: &str) -> Comparison {
    compare(file.as_bytes(), &expected(), Minor::V1_36).unwrap()
}

/// The lines of the result for a file in which `from` is replaced.
fn edited(from: &str, to: &str) -> Vec<String> {
    let file = printed();
    assert!(file.contains(from), "{from} is not in {file}");
    let compared = compared(&file.replace(from, to));
    assert!(compared.differs, "{}", compared.text);
    compared.text.lines().map(str::to_owned).collect()
}

#[test]
fn what_trust_prints_has_no_difference() {
    let compared = compared(&printed());
    assert!(!compared.differs, "{}", compared.text);
    assert!(
        compared.text.ends_with("the file has what it should have"),
        "{}",
        compared.text
    );
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
    assert!(!compared.differs, "{}", compared.text);
}

#[test]
fn a_changed_field_is_shown_with_both_values_and_its_line() {
    let lines = edited("prefix: \"hub:\"", "prefix: \"h:\"");
    assert!(
        lines.iter().any(|line| line
            .starts_with("different  jwt[0].claimMappings.username.prefix (line ")
            && line.ends_with(": has \"h:\", should have \"hub:\"")),
        "{lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "1 difference");
    let lines = edited("<= 7200", "<= 86400");
    assert!(
        lines.iter().any(|line| line
            .starts_with("different  jwt[0].claimValidationRules[1].expression")
            && line.contains("86400")
            && line.contains("7200")),
        "{lines:?}"
    );
}

#[test]
fn what_lacks_and_what_is_too_much_is_named() {
    let lines = edited("      audiences:\n", "      audiences:\n        - other\n");
    // Two audiences without a policy are also refused.
    assert!(
        lines.iter().any(
            |line| line.starts_with("too much   jwt[0].issuer.audiences")
                && line.ends_with("\"other\"")
        ),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("refused    by the target")),
        "{lines:?}"
    );
    let lines = edited(
        "      - expression: claims.aud.size() == 1\n        message: the token is for several audiences\n",
        "",
    );
    assert!(
        lines.iter().any(
            |line| line.starts_with("lacks      jwt[0].claimValidationRules")
                && line.contains("claims.aud.size() == 1")
        ),
        "{lines:?}"
    );
    let lines = edited(
        "'system:serviceaccount:tenant-b:ci'",
        "'system:serviceaccount:tenant-c:else'",
    );
    for expected in [
        "lacks      jwt[0].claimValidationRules[0].expression",
        "too much   jwt[0].claimValidationRules[0].expression",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(expected)),
            "{expected}: {lines:?}"
        );
    }
    let more = "    userValidationRules:\n      - expression: \"true\"\n";
    let text = compared(&format!("{}{more}", printed())).text;
    assert!(
        text.contains("\ntoo much   jwt[0].userValidationRules[0]"),
        "{text}"
    );
}

const PEOPLE: &str = "  - issuer:\n      url: https://people\n      audiences: [k8s]\n    \
    claimMappings:\n      username:\n        claim: sub\n        prefix: \"p:\"\n";

#[test]
fn other_issuers_are_left_alone() {
    let file = format!("{}{PEOPLE}", printed());
    let compared = compared(&file);
    assert!(!compared.differs, "{}", compared.text);
    assert!(
        compared
            .text
            .contains("left alone jwt[1], the entry of the issuer \"https://people\""),
        "{}",
        compared.text
    );
}

#[test]
fn a_file_without_our_entry_lacks_it() {
    let head = printed();
    let head = head.split_once("jwt:\n").unwrap().0;
    let alone = compared(&format!("{head}jwt:\n{PEOPLE}"));
    assert!(alone.differs);
    assert!(
        alone
            .text
            .contains("lacks      jwt: an entry of the issuer"),
        "{}",
        alone.text
    );
    let slash =
        compared(&printed().replace("https://hub.example.com\"", "https://hub.example.com/\""));
    assert!(
        slash.text.contains(
            "different  jwt[0].issuer.url: has \"https://hub.example.com/\", should have \
             \"https://hub.example.com\""
        ),
        "{}",
        slash.text
    );
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
    assert_eq!(compared.notes.len(), 1, "{:?}", compared.notes);
    assert!(compared.notes[0].contains("--discovery-ca"));
    assert!(!compared.text.contains("too much"), "{}", compared.text);
}
