#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::{Fault, Limit, read};
use crate::json::Json;

/// The output of `tests/observe.go`.
const OBSERVED: &str = include_str!("tests/observed.jsonl");

#[derive(Deserialize)]
struct Observation {
    yaml: Option<String>,
    bytes: Option<String>,
    json: Option<Value>,
    refused: Option<String>,
    strict: Option<String>,
}

/// Removes the values of numbers from JSON. No field is a number, and the recorded digits went
/// through float64.
fn ours(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => (*value).into(),
        Json::Number(_) => 0.into(),
        Json::Text(text) => text.as_str().into(),
        Json::List(items) => items.iter().map(ours).collect(),
        Json::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| (name.clone(), ours(value)))
                .collect(),
        ),
        Json::Deep(deep) => deep.kind.into(),
    }
}

fn theirs(json: Value) -> Value {
    match json {
        Value::Number(_) => 0.into(),
        Value::Array(items) => items.into_iter().map(theirs).collect(),
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| (name, theirs(value)))
                .collect(),
        ),
        other => other,
    }
}

#[test]
fn every_text_is_what_the_library_says() {
    let mut undecided = 0;
    for line in OBSERVED.lines() {
        let observation: Observation = serde_json::from_str(line).unwrap();
        let bytes = match (&observation.yaml, &observation.bytes) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(bytes)) => crate::base64::decode_standard(bytes.as_bytes()).unwrap(),
            (None, None) => panic!("{line}"),
        };
        match read(&bytes) {
            Ok(document) => {
                assert_eq!(observation.refused, None, "{line}");
                assert_eq!(
                    theirs(observation.json.unwrap_or_default()),
                    ours(&document.value),
                    "{line}"
                );
                assert_eq!(document.duplicates, observation.strict, "{line}");
            }
            Err(Fault::Refused { message, exact, .. }) => {
                let there = observation
                    .refused
                    .unwrap_or_else(|| panic!("only refused here: {message}: {line}"));
                assert!(!exact || message == there, "{message}: {line}");
            }
            Err(Fault::Undetermined(_)) => undecided += 1,
        }
    }
    assert!(undecided <= 2, "{undecided} texts are undecided");
}

fn limit(text: &str) -> Limit {
    match read(text.as_bytes()) {
        Err(Fault::Undetermined(limit)) => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_too_much_is_not_decided() {
    assert_eq!(limit(&"[".repeat(500)), Limit::Depth);
    assert_eq!(limit(&"- ".repeat(500)), Limit::Depth);
    assert_eq!(limit(&format!("[{}]", "a,".repeat(100_001))), Limit::Size);
    let long = "x".repeat(500_000);
    assert_eq!(
        limit(&format!("a: &a {long}\nb: [{}]\n", "*a,".repeat(60))),
        Limit::Size
    );
    // Each alias is shallow, but all of them together are not.
    let mut chain = String::from("a0: &a0 {x: y}\n");
    for level in 1..300 {
        chain.push_str(&format!("a{level}: &a{level} {{<<: *a{}}}\n", level - 1));
    }
    assert_eq!(limit(&chain), Limit::Depth);
    assert_eq!(
        limit("1: a\n\"1\": b\n"),
        Limit::Unusual("two keys of one map that are written differently and mean the same")
    );
}

#[test]
fn a_message_holds_no_whole_file() {
    for text in [
        format!("? [{}]\n", "aaaa, ".repeat(9000)),
        format!("~: [{}]\n", "aaaa, ".repeat(9000)),
    ] {
        match read(text.as_bytes()) {
            Err(Fault::Refused {
                message,
                exact: false,
                ..
            }) => {
                assert!(
                    message.len() < 5000 && message.ends_with('…'),
                    "{}",
                    message.len()
                )
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_takes_long() {
    let long = 1 << 17;
    let of = |piece: &str| piece.repeat(long / piece.len());
    // No parser here may take quadratic time; the limit is a hundred times the usual time.
    #[allow(
        clippy::disallowed_methods,
        reason = "the test is about the time that it takes"
    )]
    let start = Instant::now();
    for piece in [
        "[",
        "{",
        "- ",
        "? ",
        "a: ",
        "\"",
        "'",
        "&a ",
        "!a ",
        "*a ",
        "[]: ",
        "{a: b}, ",
        "a\n",
        "a:\n ",
        "\n",
        "#",
        "\t",
        "|\n",
        "a: |\n\n",
        "%",
        "\u{feff}",
        "x: 1\n",
        "- a\n",
        "? a\n: b\n",
        "\"\\\n",
        "'\n",
        "a: &a [*a, *a]\n",
        "a b ",
        "---\n",
        "...\n",
        "\u{0}",
        "é",
        "<<: {a: b}\n",
        "[a, ",
        "{a: ",
    ] {
        let _ = read(of(piece).as_bytes());
        let _ = read(format!("a: &a b\nc: [{}", of(piece)).as_bytes());
        let _ = read(format!("a: \"{}", of(piece)).as_bytes());
    }
    // Without a limit, one of them takes minutes.
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}
