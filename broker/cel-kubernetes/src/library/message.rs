//! The protobuf messages that an expression can make, like `google.protobuf.Duration{seconds: 1}`.

use super::Called;
use crate::time::{NANOS_PER_SECOND, Timestamp};
use crate::types::Type;
use crate::value::{Map, Val};

/// A message that cel-go's registry knows.
#[derive(Debug)]
pub(crate) struct Message {
    name: &'static str,
    /// The type of the value that the message becomes.
    result: &'static str,
    /// The fields, with their types.
    fields: &'static [(&'static str, &'static str)],
}

const fn message(
    name: &'static str,
    result: &'static str,
    fields: &'static [(&'static str, &'static str)],
) -> Message {
    Message {
        name,
        result,
        fields,
    }
}

/// The well-known types that `pb.DefaultDb` of cel-go registers.
const MESSAGES: [Message; 16] = [
    message(
        "Duration",
        "duration",
        &[("seconds", "int"), ("nanos", "int")],
    ),
    message(
        "Timestamp",
        "timestamp",
        &[("seconds", "int"), ("nanos", "int")],
    ),
    message("BoolValue", "wrapper(bool)", &[("value", "bool")]),
    message("BytesValue", "wrapper(bytes)", &[("value", "bytes")]),
    message("DoubleValue", "wrapper(double)", &[("value", "double")]),
    message("FloatValue", "wrapper(double)", &[("value", "double")]),
    message("Int32Value", "wrapper(int)", &[("value", "int")]),
    message("Int64Value", "wrapper(int)", &[("value", "int")]),
    message("UInt32Value", "wrapper(uint)", &[("value", "uint")]),
    message("UInt64Value", "wrapper(uint)", &[("value", "uint")]),
    message("StringValue", "wrapper(string)", &[("value", "string")]),
    message(
        "Struct",
        "map(string, dyn)",
        &[("fields", "map(string, dyn)")],
    ),
    message("ListValue", "list(dyn)", &[("values", "list(dyn)")]),
    message(
        "Value",
        "dyn",
        &[
            ("null_value", "int"),
            ("number_value", "double"),
            ("string_value", "string"),
            ("bool_value", "bool"),
            ("struct_value", "map(string, dyn)"),
            ("list_value", "list(dyn)"),
        ],
    ),
    message("Any", "any", &[("type_url", "string"), ("value", "bytes")]),
    message("Empty", "google.protobuf.Empty", &[]),
];

impl Message {
    /// Finds a message by its full name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let short = name.strip_prefix("google.protobuf.")?;
        MESSAGES.iter().find(|message| message.name == short)
    }

    /// Returns the type of the message in an expression.
    pub(crate) fn result_type(&self) -> Type {
        Type::read(self.result)
    }

    /// Returns the type of a field.
    pub(crate) fn field_type(&self, field: &str) -> Option<Type> {
        let (_, t) = self.fields.iter().find(|(name, _)| *name == field)?;
        Some(Type::read(t))
    }

    /// Makes the value of the message from those of its fields, none of which is an error.
    pub(crate) fn make(&self, fields: &[(String, Val)]) -> Called {
        if fields.iter().any(|(_, value)| value.depends_on_order()) {
            return Ok(Val::random());
        }
        // cel-go converts these to the field's type by methods of their own: an optional to its
        // value, an IP address to a string, a list of uints to bytes.
        let has_members = matches!(self.name, "Struct" | "ListValue" | "Value");
        if !has_members && !fields.iter().all(|(_, value)| is_scalar(value)) {
            return Err(self.undecided());
        }
        let field = |name: &str| {
            fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value)
        };
        Ok(match self.name {
            "Duration" | "Timestamp" => {
                let (Some(seconds), Some(nanos)) = (int(field("seconds")), int(field("nanos")))
                else {
                    return Ok(self.conversion_fault());
                };
                match i32::try_from(nanos) {
                    Ok(nanos) if self.name == "Duration" => Val::Duration(duration(seconds, nanos)),
                    Ok(nanos) => timestamp(seconds, nanos)?,
                    Err(_) => self.conversion_fault(),
                }
            }
            "Struct" => match field("fields") {
                None => Val::Map(Map::json(Vec::new())),
                Some(value @ Val::Map(_)) => json(value)?,
                Some(_) => return Err(self.undecided()),
            },
            "ListValue" => match field("values") {
                None => return Err(list_in_json()),
                Some(value @ Val::List(_)) => json(value)?,
                Some(_) => return Err(self.undecided()),
            },
            "Value" => self.any_json(fields)?,
            "Any" | "Empty" => return Err(self.undecided()),
            _ => self.wrapped(field("value")),
        })
    }

    /// Makes the value of a wrapper. A field that is not set is zero or empty.
    fn wrapped(&self, value: Option<&Val>) -> Val {
        match self.name {
            "BoolValue" => match value {
                None => Val::Bool(false),
                Some(value @ Val::Bool(_)) => value.clone(),
                Some(_) => self.conversion_fault(),
            },
            "BytesValue" => match value {
                None => Val::Bytes([].into()),
                Some(value @ Val::Bytes(_)) => value.clone(),
                Some(_) => self.conversion_fault(),
            },
            "StringValue" => match value {
                None => Val::from(""),
                Some(value @ Val::Str(_)) => value.clone(),
                Some(_) => self.conversion_fault(),
            },
            "DoubleValue" | "FloatValue" => match value {
                None => Val::Double(0.0),
                Some(Val::Double(value)) if self.name == "FloatValue" => {
                    Val::Double(f64::from(*value as f32))
                }
                Some(value @ Val::Double(_)) => value.clone(),
                Some(_) => self.conversion_fault(),
            },
            "Int32Value" | "Int64Value" => match int(value) {
                Some(value) if self.name == "Int64Value" || i32::try_from(value).is_ok() => {
                    Val::Int(value)
                }
                _ => self.conversion_fault(),
            },
            "UInt32Value" | "UInt64Value" => match value {
                None => Val::Uint(0),
                Some(Val::Uint(value))
                    if self.name == "UInt64Value" || u32::try_from(*value).is_ok() =>
                {
                    Val::Uint(*value)
                }
                Some(_) => self.conversion_fault(),
            },
            _ => self.conversion_fault(),
        }
    }

    /// Makes a `Value`, of whose fields one is set.
    fn any_json(&self, fields: &[(String, Val)]) -> Called {
        match fields {
            [] => Ok(Val::Null),
            [(name, value)] => match (name.as_str(), value) {
                ("null_value", Val::Int(0)) => Ok(Val::Null),
                ("number_value", Val::Double(_))
                | ("string_value", Val::Str(_))
                | ("bool_value", Val::Bool(_)) => Ok(value.clone()),
                ("struct_value", Val::Map(_)) | ("list_value", Val::List(_)) => json(value),
                ("number_value" | "string_value" | "bool_value", value) if is_scalar(value) => {
                    Ok(self.conversion_fault())
                }
                _ => Err(self.undecided()),
            },
            // The fields are set in the order of a Go map, and the last one counts.
            _ => Err(self.undecided()),
        }
    }

    fn conversion_fault(&self) -> Val {
        Val::error(format!(
            "field type conversion error for a field of google.protobuf.{}",
            self.name
        ))
    }

    fn undecided(&self) -> String {
        format!("a message \"google.protobuf.{}\" is made", self.name)
    }
}

/// Whether it is decided to which fields the value converts.
fn is_scalar(value: &Val) -> bool {
    matches!(
        value,
        Val::Null
            | Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Str(_)
            | Val::Bytes(_)
    )
}

/// Returns the number of a field, which is 0 if the field is not set. `None` if it is no int.
fn int(value: Option<&Val>) -> Option<i64> {
    match value {
        None => Some(0),
        Some(Val::Int(value)) => Some(*value),
        Some(_) => None,
    }
}

/// Go's `AsDuration`: the closest duration that Go can hold.
fn duration(seconds: i64, nanos: i32) -> i64 {
    let whole = i128::from(seconds) * i128::from(NANOS_PER_SECOND);
    let sum = whole + i128::from(nanos);
    let held = i64::try_from(whole).is_ok();
    match (held, i64::try_from(sum)) {
        (true, Ok(sum)) => sum,
        // Only an overflow away from zero is noticed; the other wraps around.
        _ if seconds < 0 => i64::MIN,
        _ => i64::MAX,
    }
}

fn timestamp(seconds: i64, nanos: i32) -> Called {
    let nanos = i64::from(nanos);
    seconds
        .checked_add(nanos.div_euclid(NANOS_PER_SECOND))
        .and_then(Timestamp::of_seconds)
        .map(|time| {
            Val::Timestamp(Timestamp {
                nanos: nanos.rem_euclid(NANOS_PER_SECOND),
                ..time
            })
        })
        .ok_or_else(|| "a timestamp outside the years 1 to 9999".to_owned())
}

/// Converts a value to JSON and back, as a field of the type `Value` does.
fn json(value: &Val) -> Called {
    const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;
    Ok(match value {
        Val::Null | Val::Bool(_) | Val::Double(_) | Val::Str(_) => value.clone(),
        Val::Int(n) if n.unsigned_abs() <= MAX_EXACT_INTEGER => Val::Double(*n as f64),
        Val::Uint(n) if *n <= MAX_EXACT_INTEGER => Val::Double(*n as f64),
        Val::List(_) => return Err(list_in_json()),
        Val::Map(map) => {
            let entry = |(key, value): &(Val, Val)| match key {
                Val::Str(_) => Ok((key.clone(), json(value)?)),
                _ => Err(unusual_json()),
            };
            let entries = map.entries().iter().map(entry).collect::<Result<_, _>>()?;
            Val::Map(Map::json(entries))
        }
        _ => return Err(unusual_json()),
    })
}

/// Such a list equals another one, but is a message to kube-apiserver, which refuses it as groups.
fn list_in_json() -> String {
    "a list in a message".to_owned()
}

fn unusual_json() -> String {
    "a value that is unusual in JSON, in a message".to_owned()
}
