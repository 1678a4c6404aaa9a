//! Numbers of JSON as the apiserver's Go reads them, and claims as its expressions see them.

use serde_json::{Map, Number, Value};

use crate::go::json::Json;

/// What a number claim is to an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// An integer where it is written as one and fits; up to 1.33.
    Kept,
    /// Always a double; from 1.34.
    Doubles,
}

/// The claims as a map, the last of two names kept. `None` where a number is beyond a float64.
pub(crate) fn to_claims(payload: &Json, numbers: Numbers) -> Option<Map<String, Value>> {
    payload.members().iter().map(|(name, value)| Some((name.clone(), to_value(value, numbers)?))).collect()
}

fn to_value(value: &Json, numbers: Numbers) -> Option<Value> {
    Some(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => Value::Number(number(digits, numbers)?),
        Json::Text(text) => Value::String(text.clone()),
        Json::List(items) => Value::Array(items.iter().map(|item| to_value(item, numbers)).collect::<Option<_>>()?),
        Json::Object(_) => Value::Object(to_claims(value, numbers)?),
    })
}

fn number(digits: &str, numbers: Numbers) -> Option<Number> {
    match digits.parse::<i64>() {
        Ok(integer) if numbers == Numbers::Kept => Some(Number::from(integer)),
        _ => Number::from_f64(digits.parse().ok()?),
    }
}

/// `json.Number` by go-oidc's `jsonTime`: seconds since 1970. A fraction is cut off, a text that is a number counts.
pub(crate) fn seconds(value: &Json) -> Result<i64, String> {
    let digits = match value {
        Json::Number(digits) => digits,
        Json::Null => return Err("strconv.ParseFloat: parsing \"\": invalid syntax".to_owned()),
        Json::Text(text) if matches!(Json::parse(text.as_bytes()), Ok(Json::Number(read)) if read == *text) => text,
        Json::Text(text) => {
            let shown = crate::go::quote::quote(&crate::go::quote::quote(text));
            return Err(format!("json: invalid number literal, trying to unmarshal {shown} into Number"));
        }
        other => return Err(other.mismatch("json.Number")),
    };
    if let Ok(seconds) = digits.parse::<i64>() {
        return Ok(seconds);
    }
    match digits.parse::<f64>() {
        // A float beyond an int64 becomes one end of it or the other, and either wraps into the far past.
        Ok(float) if float.is_finite() => Ok(if float.abs() < 9.2e18 { float as i64 } else { i64::MIN }),
        _ => Err(format!("strconv.ParseFloat: parsing {}: value out of range", crate::go::quote::quote(digits))),
    }
}
