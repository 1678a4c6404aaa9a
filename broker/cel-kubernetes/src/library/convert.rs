//! Conversions between types.

use super::Called;
use crate::number;
use crate::time::{Reading, Timestamp, parse_duration, print_duration};
use crate::value::Val;

/// Whether a function is a conversion, which the planner computes for a constant argument.
pub(crate) fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool"
            | "bytes"
            | "double"
            | "dyn"
            | "duration"
            | "int"
            | "string"
            | "timestamp"
            | "type"
            | "uint"
    )
}

/// Converts a value by the name of the function.
pub(crate) fn convert(function: &str, value: &Val) -> Called {
    let text = match value {
        Val::Str(s) => Some(&**s),
        _ => None,
    };
    let converted = match (function, value) {
        ("dyn", _) => Some(value.clone()),
        ("type", _) => Some(Val::Type(value.type_name().into())),
        ("bool", Val::Bool(_))
        | ("bytes", Val::Bytes(_))
        | ("double", Val::Double(_))
        | ("int", Val::Int(_)) => Some(value.clone()),
        ("uint", Val::Uint(_)) | ("string", Val::Str(_)) | ("duration", Val::Duration(_)) => {
            Some(value.clone())
        }
        ("timestamp", Val::Timestamp(_)) => Some(value.clone()),
        ("bool", Val::Str(s)) => number::parse_bool(s).map(Val::Bool),
        ("bytes", Val::Str(s)) => Some(Val::Bytes(s.as_bytes().into())),
        ("double", Val::Int(n)) => Some(Val::Double(*n as f64)),
        ("double", Val::Uint(n)) => Some(Val::Double(*n as f64)),
        ("double", Val::Str(s)) => number::parse_double(s).map(Val::Double),
        ("duration", Val::Str(s)) => parse_duration(s).map(Val::Duration),
        ("int", Val::Double(d)) => {
            return Ok(
                number::double_to_int(*d).map_or_else(|| Val::error("integer overflow"), Val::Int)
            );
        }
        ("int", Val::Uint(n)) => {
            return Ok(i64::try_from(*n).map_or_else(|_| Val::error("integer overflow"), Val::Int));
        }
        ("int", Val::Duration(n)) => Some(Val::Int(*n)),
        ("int", Val::Timestamp(t)) => Some(Val::Int(t.seconds)),
        ("int", Val::Str(s)) => s.parse().ok().map(Val::Int),
        ("uint", Val::Double(d)) => {
            return Ok(number::double_to_uint(*d)
                .map_or_else(|| Val::error("unsigned integer overflow"), Val::Uint));
        }
        ("uint", Val::Int(n)) => {
            return Ok(u64::try_from(*n)
                .map_or_else(|_| Val::error("unsigned integer overflow"), Val::Uint));
        }
        ("uint", Val::Str(s)) => s
            .parse()
            .ok()
            .filter(|_| !s.starts_with('+'))
            .map(Val::Uint),
        ("timestamp", Val::Int(n)) => match Timestamp::of_seconds(*n) {
            Some(t) => Some(Val::Timestamp(t)),
            None => return Ok(Val::error("timestamp overflow")),
        },
        ("timestamp", Val::Str(s)) => match Timestamp::read(s) {
            Reading::Is(t) => Some(Val::Timestamp(t)),
            Reading::IsNot => None,
            Reading::Overflow => return Ok(Val::error("timestamp overflow")),
        },
        ("string", _) => return Ok(string(value)),
        _ => {
            return Ok(Val::error(format!(
                "no such overload: {function}({})",
                value.type_name()
            )));
        }
    };
    Ok(converted
        .unwrap_or_else(|| mismatch(text.map_or(value.type_name(), |_| "string"), function)))
}

fn mismatch(from: &str, function: &str) -> Val {
    let to = match function {
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        other => other,
    };
    Val::error(format!("type conversion error from '{from}' to '{to}'"))
}

fn string(value: &Val) -> Val {
    match value {
        Val::Bool(b) => Val::from(b.to_string()),
        Val::Int(n) => Val::from(n.to_string()),
        Val::Uint(n) => Val::from(n.to_string()),
        Val::Double(d) => Val::from(number::go_verb_g(*d)),
        Val::Bytes(b) => match std::str::from_utf8(b) {
            Ok(text) => Val::from(text),
            Err(_) => Val::error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Timestamp(t) => Val::from(t.print()),
        Val::Duration(n) => Val::from(print_duration(*n)),
        Val::Ip(ip) => Val::from(ip.to_string()),
        Val::Prefix(prefix) => Val::from(prefix.to_string()),
        Val::Str(_) => value.clone(),
        other => Val::error(format!("no such overload: string({})", other.type_name())),
    }
}

/// Converts a value by overload.
pub(super) fn call(overload: &str, args: &[Val]) -> Option<Called> {
    let function = match overload {
        "bool_to_bool" | "string_to_bool" => "bool",
        "bytes_to_bytes" | "string_to_bytes" => "bytes",
        "double_to_double" | "int64_to_double" | "string_to_double" | "uint64_to_double" => {
            "double"
        }
        "duration_to_duration" | "string_to_duration" => "duration",
        "int64_to_duration" => return Some(Ok(mismatch("int", "duration"))),
        "int64_to_int64" | "double_to_int64" | "duration_to_int64" | "string_to_int64"
        | "timestamp_to_int64" | "uint64_to_int64" => "int",
        "uint64_to_uint64" | "double_to_uint64" | "int64_to_uint64" | "string_to_uint64" => "uint",
        "timestamp_to_timestamp" | "int64_to_timestamp" | "string_to_timestamp" => "timestamp",
        "string_to_string"
        | "bool_to_string"
        | "bytes_to_string"
        | "double_to_string"
        | "duration_to_string"
        | "int64_to_string"
        | "timestamp_to_string"
        | "uint64_to_string"
        | "ip_to_string"
        | "cidr_to_string" => "string",
        _ => return None,
    };
    args.first().map(|value| convert(function, value))
}
