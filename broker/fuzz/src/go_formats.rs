//! JSON and YAML as Go's libraries read them, beside Rust's.

use keyferry_go_formats::json::Json;
use keyferry_go_formats::yaml::{self, Fault};
use serde_json::Value;

/// The longest text that is read a second time, in bytes.
const MAX_COMPARED_BYTES: usize = 64 * 1024;
/// The longest key in quotes that go-yaml reads without a question mark before it, in bytes.
const MAX_KEY_BYTES: usize = 1000;

/// Go reads all JSON that serde_json reads, with the same values. What Go alone reads is no UTF-8,
/// has a lone surrogate, a number beyond a float64, or nests deeper.
pub(crate) fn go_json(data: &[u8]) {
    let read = Json::parse(data);
    assert!(read.is_err() || Json::parse_at_any_depth(data).is_ok());
    let other = serde_json::from_slice::<Value>(data);
    match (&read, &other) {
        (Ok(read), Ok(other)) => assert_same(read, other),
        (Err(fault), Ok(_)) => panic!("only serde_json reads it: {fault:?}"),
        (Ok(read), Err(error)) => {
            let text = String::from_utf8_lossy(data);
            let is_known = std::str::from_utf8(data).is_err()
                || text.to_ascii_lowercase().contains("\\ud")
                || error.to_string().starts_with("number out of range")
                || error.to_string().starts_with("recursion limit exceeded");
            assert!(is_known, "only Go reads it: {error}, {read:?}");
        }
        (Err(_), Err(_)) => {}
    }
}

/// Compares values. Go keeps both of two members of one name, and serde_json the last.
fn assert_same(go: &Json, other: &Value) {
    match (go, other) {
        (Json::Null, Value::Null) | (Json::Deep(_), Value::Array(_) | Value::Object(_)) => {}
        (Json::Bool(one), Value::Bool(other)) => assert_eq!(one, other),
        (Json::Text(one), Value::String(other)) => assert_eq!(one, other),
        (Json::Number(digits), Value::Number(number)) => {
            let (exact, read) = (digits.parse().unwrap_or(f64::NAN), number.as_f64());
            // serde_json reads floats to one unit in the last place.
            let near = |read: f64| (read - exact).abs() <= exact.abs() * 1e-15 + f64::MIN_POSITIVE;
            assert!(read.is_some_and(near), "{digits}");
        }
        (Json::List(items), Value::Array(others)) => {
            assert_eq!(items.len(), others.len());
            for (item, other) in items.iter().zip(others) {
                assert_same(item, other);
            }
        }
        (Json::Object(members), Value::Object(others)) => {
            for (name, _) in members {
                let last = go.member(name).expect("it has this member");
                assert_same(last, &others[name]);
            }
            assert!(others.keys().all(|name| go.member(name).is_some()));
        }
        (one, other) => panic!("{one:?} and {other:?}"),
    }
}

/// A document that is read is the same when it is written as JSON and read as YAML again. A field is
/// at a place in the file.
pub(crate) fn go_yaml(data: &[u8]) {
    let document = match yaml::read(data) {
        Ok(document) => document,
        Err(Fault::Refused { message, .. }) => {
            return assert!(!message.is_empty());
        }
        Err(Fault::Undetermined(_)) => return,
    };
    let places = data.len() as u64 + 1;
    for (path, at) in &document.positions {
        assert!(
            (1..=places).contains(&at.line) && (1..=places).contains(&at.column),
            "{path}"
        );
    }
    let mut written = String::new();
    let differs_in_yaml = write_json(&document.value, &mut written);
    if differs_in_yaml || written.len() > MAX_COMPARED_BYTES {
        return;
    }
    match yaml::read(written.as_bytes()) {
        Ok(again) => {
            assert_eq!(again.value, document.value, "{written}");
            assert!(!again.more && again.duplicates.is_none());
        }
        Err(Fault::Undetermined(_)) => {}
        Err(fault) => panic!("{fault:?}: {written}"),
    }
}

/// Writes a value as JSON, and says whether YAML reads it otherwise: a key that is too long, or the
/// negative zero, which is the integer 0 there.
fn write_json(value: &Json, out: &mut String) -> bool {
    let mut differs_in_yaml = false;
    match value {
        Json::Null | Json::Deep(_) => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(digits) => {
            out.push_str(digits);
            differs_in_yaml |= digits == "-0";
        }
        Json::Text(text) => write_text(text, out),
        Json::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                differs_in_yaml |= write_json(item, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                let start = out.len();
                write_text(name, out);
                differs_in_yaml |= out.len() - start > MAX_KEY_BYTES;
                out.push_str(": ");
                differs_in_yaml |= write_json(value, out);
            }
            out.push('}');
        }
    }
    differs_in_yaml
}

/// Writes a text with an escape for all that YAML may not contain as it is.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            ' ' | '!' | '#'..='[' | ']'..='~' => out.push(character),
            '\0'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(character))),
        }
    }
    out.push('"');
}
