//! Converts JSON numbers as the apiserver's Go does, and claims for expressions.

use keyferry_go_formats::json::Json;
use serde_json::{Map, Number, Value};

/// The type that a number claim has in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// An integer if it is written as one and fits; up to 1.33.
    Kept,
    /// Always a double; from 1.34.
    Doubles,
}

/// Why a claim cannot be passed to an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimFault {
    /// It contains a number beyond a float64; the text is the number as written.
    HugeNumber(String),
    /// It nests deeper than expressions are evaluated on here.
    TooDeep,
}

/// The deepest nesting of a claim that is passed to an expression.
const MAX_CLAIM_DEPTH: usize = 120;

/// Converts a claim to the value that expressions use.
pub(crate) fn to_claim(value: &Json, numbers: Numbers) -> Result<Value, ClaimFault> {
    if value.nests_below(MAX_CLAIM_DEPTH) {
        Err(ClaimFault::TooDeep)
    } else {
        to_value(value, numbers)
    }
}

fn to_value(value: &Json, numbers: Numbers) -> Result<Value, ClaimFault> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => Value::Number(
            read_number(digits, numbers).ok_or_else(|| ClaimFault::HugeNumber(digits.clone()))?,
        ),
        Json::Text(text) => Value::String(text.clone()),
        Json::List(items) => Value::Array(
            items
                .iter()
                .map(|item| to_value(item, numbers))
                .collect::<Result<_, _>>()?,
        ),
        Json::Object(members) if numbers == Numbers::Kept => {
            // Up to 1.33, numbers are converted after the decoding, which has dropped a member that
            // a later one of the same name replaces.
            let mut object = Map::new();
            for (name, value) in members.iter().rev() {
                if !object.contains_key(name) {
                    object.insert(name.clone(), to_value(value, numbers)?);
                }
            }
            Value::Object(object)
        }
        Json::Object(members) => {
            // If a name occurs twice, the last one counts, but all are converted.
            let values = members
                .iter()
                .map(|(name, value)| Ok((name.clone(), to_value(value, numbers)?)));
            Value::Object(values.collect::<Result<_, _>>()?)
        }
        Json::Deep(_) => return Err(ClaimFault::TooDeep),
    })
}

fn read_number(digits: &str, numbers: Numbers) -> Option<Number> {
    match digits.parse::<i64>() {
        Ok(integer) if numbers == Numbers::Kept => Some(Number::from(integer)),
        _ => Number::from_f64(digits.parse().ok()?),
    }
}

/// The sentence with which Go's `encoding/json` or `strconv` refuses a claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DecodeFault(pub(crate) String);

/// Reads `json.Number` as go-oidc's `jsonTime` does: seconds since 1970. A fraction is cut off, and
/// a text that is a number counts.
pub(crate) fn read_seconds(value: &Json) -> Result<i64, DecodeFault> {
    let digits = match value {
        Json::Number(digits) => digits,
        Json::Null => {
            let sentence = "strconv.ParseFloat: parsing \"\": invalid syntax";
            return Err(DecodeFault(sentence.to_owned()));
        }
        Json::Text(text) if matches!(Json::parse(text.as_bytes()), Ok(Json::Number(read)) if read == *text) => {
            text
        }
        Json::Text(text) => {
            let shown = keyferry_go_formats::quote::quote(&keyferry_go_formats::quote::quote(text));
            return Err(DecodeFault(format!(
                "json: invalid number literal, trying to unmarshal {shown} into Number"
            )));
        }
        other => return Err(DecodeFault(other.mismatch("json.Number"))),
    };
    if let Ok(seconds) = digits.parse::<i64>() {
        return Ok(seconds);
    }
    match digits.parse::<f64>() {
        // A float beyond int64 becomes either limit of int64, and both wrap into the far past.
        Ok(float) if float.is_finite() => Ok(if float.abs() < 9.2e18 {
            float as i64
        } else {
            i64::MIN
        }),
        _ => Err(DecodeFault(format!(
            "strconv.ParseFloat: parsing {}: value out of range",
            keyferry_go_formats::quote::quote(digits)
        ))),
    }
}
