#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn parse_answer(json: &str) -> Answer {
    serde_json::from_str(json).unwrap()
}

fn rejected(text: &str) -> Verdict {
    Verdict::Rejected {
        text: text.to_owned(),
        exact: false,
    }
}

fn user(name: &str) -> Verdict {
    Verdict::Accepted(User {
        name: name.to_owned(),
        uid: String::new(),
        groups: Vec::new(),
        extra: std::collections::BTreeMap::new(),
    })
}

fn kinds(ours: &[Verdict], theirs: &str) -> Vec<String> {
    let theirs = parse_answer(&format!(
        r#"{{"id":1,"authenticators":[{{}}],"tokens":[[{theirs}]]}}"#
    ));
    compare(&Ruling::Verdicts(vec![ours.to_vec()]), &theirs)
        .differences
        .into_iter()
        .map(|difference| difference.kind)
        .collect()
}

#[test]
fn verdicts_are_told_apart() {
    let none: Vec<String> = Vec::new();
    assert_eq!(kinds(&[user("a")], r#"{"user":{"name":"a"}}"#), none);
    assert_eq!(
        kinds(&[user("a")], r#"{"user":{"name":"b"}}"#),
        ["another user: name"]
    );
    assert_eq!(kinds(&[Verdict::Skipped], r#"{"skipped":true}"#), none);
    assert_eq!(
        kinds(&[Verdict::Skipped], r#"{"user":{"name":"b"}}"#),
        ["verdict: ours skipped, theirs accepted"]
    );
    assert_eq!(
        kinds(
            &[rejected("oidc: email not verified")],
            r#"{"error":"oidc: email not verified"}"#
        ),
        none
    );
    assert_eq!(
        kinds(
            &[rejected("oidc: email not verified")],
            r#"{"error":"oidc: token is expired"}"#
        ),
        ["verdict: ours rejected: email not verified, theirs rejected: expired"]
    );
    assert_eq!(
        kinds(
            &[Verdict::OneOf(vec![user("a"), rejected("x")])],
            r#"{"user":{"name":"a"}}"#
        ),
        none
    );
    let exact = Verdict::Rejected {
        text: "oidc: email not verified".to_owned(),
        exact: true,
    };
    assert_eq!(
        kinds(
            std::slice::from_ref(&exact),
            r#"{"error":"oidc: email not verified"}"#
        ),
        none
    );
    assert_eq!(
        kinds(&[exact], r#"{"error":"oidc: email not verified!"}"#),
        ["other words: rejected: email not verified"]
    );
    assert_eq!(kinds(&[], r#"{"skipped":true}"#), ["no verdict of ours"]);
}

#[test]
fn words_and_gaps_are_counted() {
    let theirs = parse_answer(
        r#"{"id":1,"authenticators":[{}],"tokens":[[{"error":"oidc: token is expired (x)"}]]}"#,
    );
    let ours = |verdict: Verdict| compare(&Ruling::Verdicts(vec![vec![verdict]]), &theirs).tally;
    assert_eq!(
        ours(rejected("oidc: token is expired (y)")),
        Tally {
            agreed: 1,
            other_words: 1,
            refusals: 1,
            ..Tally::default()
        }
    );
    assert_eq!(
        ours(Verdict::Undetermined { why: String::new() }),
        Tally {
            undetermined: 1,
            ..Tally::default()
        }
    );
    let half = Tally {
        agreed: 1,
        undetermined: 1,
        ..Tally::default()
    };
    assert_eq!(half.decided_per_mille(), 500);
}

#[test]
fn issues_of_expressions_are_counted() {
    let theirs = |issues: &[&str]| {
        let text: Vec<String> = issues
            .iter()
            .map(|issue| format!("ERROR: <input>:1:1: {issue}"))
            .collect();
        parse_answer(&serde_json::json!({"id": 1, "validation_errors": [{"field": "a", "type": "k", "text": text.join(" ")}]}).to_string())
    };
    let ours = |issues: &[&str]| {
        let text = theirs(issues).validation_errors[0].text.clone();
        let fault = FieldFault {
            field: "a".to_owned(),
            kind: "k".to_owned(),
            text,
            exact: false,
        };
        Ruling::NotValid {
            errors: vec![fault],
            complete: true,
        }
    };
    let disagreed =
        |left: &[&str], right: &[&str]| compare(&ours(left), &theirs(right)).tally.disagreed == 1;
    assert!(
        !disagreed(&["x", "y"], &["x", "z"])
            && disagreed(&["x"], &["x", "y"])
            && disagreed(&["x", "y"], &["x"])
    );
    assert!(
        !disagreed(&["Syntax error: x"], &["Syntax error: x", "y"])
            && disagreed(&["x"], &["Syntax error: x"])
    );
}

#[test]
fn configurations_are_compared_by_fields() {
    let theirs = parse_answer(
        r#"{"id":1,"validation_errors":[{"field":"a","type":"FieldValueInvalid","text":"t"}]}"#,
    );
    let fault = |field: &str| FieldFault {
        field: field.to_owned(),
        kind: "FieldValueInvalid".to_owned(),
        text: "t".to_owned(),
        exact: true,
    };
    let not_valid = |fields: &[&str], complete| Ruling::NotValid {
        errors: fields.iter().map(|field| fault(field)).collect(),
        complete,
    };
    assert_eq!(compare(&not_valid(&[], false), &theirs).tally.agreed, 1);
    assert_eq!(
        compare(&not_valid(&["b"], false), &theirs).tally.disagreed,
        1
    );
    assert_eq!(compare(&not_valid(&["a"], true), &theirs).tally.agreed, 1);
    assert_eq!(
        compare(&not_valid(&["b"], true), &theirs).tally.disagreed,
        1
    );
    assert_eq!(
        compare(&not_valid(&["a", "a"], true), &theirs)
            .tally
            .disagreed,
        1
    );
    assert_eq!(
        compare(&not_valid(&["a", "a"], false), &theirs)
            .tally
            .disagreed,
        1
    );
    let other_text = |exact| Ruling::NotValid {
        errors: vec![FieldFault {
            text: "u".to_owned(),
            exact,
            ..fault("a")
        }],
        complete: true,
    };
    assert_eq!(compare(&other_text(true), &theirs).tally.disagreed, 1);
    assert_eq!(compare(&other_text(false), &theirs).tally.other_words, 1);
    assert_eq!(
        compare(&Ruling::Verdicts(Vec::new()), &theirs)
            .tally
            .disagreed,
        1
    );
    assert_eq!(
        compare(
            &Ruling::NotLoaded {
                text: "t".to_owned(),
                exact: true
            },
            &theirs
        )
        .tally
        .disagreed,
        1
    );
}
