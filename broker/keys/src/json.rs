//! Strict reading of untrusted JSON: bounded in size and depth, and with only one meaning.
//!
//! RFC 8259 section 4 leaves the meaning of duplicate member names open, so two readers can
//! understand one document differently. This reader refuses a name that appears twice in an object,
//! at every level and however it is escaped.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Limits on the size and depth of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Maximum size of the text in bytes.
    pub bytes: usize,
    /// Maximum nesting depth of objects and arrays, including the outermost.
    pub depth: usize,
}

/// Maximum nesting depth for documents of OpenID Connect and Kubernetes tokens, which stay far
/// below it.
pub const MAX_JSON_DEPTH: usize = 32;

/// Why a JSON text is refused. No part of the text is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// More bytes than allowed.
    #[error("JSON text is {found} bytes, more than the {limit} allowed")]
    TooLarge {
        /// The text's length.
        found: usize,
        /// The maximum size.
        limit: usize,
    },
    /// Begins with a byte order mark, which RFC 8259 section 8.1 forbids.
    #[error("JSON text begins with a byte order mark")]
    ByteOrderMark,
    /// Bytes that are not UTF-8.
    #[error("JSON text is not UTF-8")]
    NotUtf8,
    /// The outermost value is not an object.
    #[error("JSON text is not an object")]
    NotAnObject,
    /// Objects and arrays nested too deeply.
    #[error("JSON text is nested more than {0} levels deep")]
    TooDeep(usize),
    /// An object contains a member name twice.
    #[error("JSON object holds one member name twice, at line {line} column {column}")]
    DuplicateMember {
        /// Line, from 1.
        line: usize,
        /// Column in bytes.
        column: usize,
    },
    /// Something follows the object.
    #[error("something follows the JSON object")]
    TrailingBytes,
    /// Not JSON.
    #[error("text is not JSON, at line {line} column {column}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column in bytes.
        column: usize,
    },
}

/// Reads one JSON object and nothing after it but white space.
///
/// # Errors
/// [`JsonError`] names the first rule that the text breaks.
pub fn read_object(bytes: &[u8], limits: JsonLimits) -> Result<Map<String, Value>, JsonError> {
    if bytes.len() > limits.bytes {
        return Err(JsonError::TooLarge {
            found: bytes.len(),
            limit: limits.bytes,
        });
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::ByteOrderMark);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
    let fault = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = StrictValue {
        levels_left: limits.depth,
        fault: &fault,
    }
    .deserialize(&mut reader);
    let value = read.map_err(|error| match fault.get() {
        Some(JsonFault::TooDeep) => JsonError::TooDeep(limits.depth),
        Some(JsonFault::DuplicateMember) => JsonError::DuplicateMember {
            line: error.line(),
            column: error.column(),
        },
        None => JsonError::Syntax {
            line: error.line(),
            column: error.column(),
        },
    })?;
    reader.end().map_err(|_| JsonError::TrailingBytes)?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError::NotAnObject),
    }
}

#[derive(Clone, Copy)]
enum JsonFault {
    TooDeep,
    DuplicateMember,
}

/// Reads any JSON value. serde's own error carries only text, so `fault` records what went wrong.
#[derive(Clone, Copy)]
struct StrictValue<'a> {
    levels_left: usize,
    fault: &'a Cell<Option<JsonFault>>,
}

impl StrictValue<'_> {
    fn one_level_down<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.levels_left.checked_sub(1) {
            Some(levels_left) => Ok(StrictValue {
                levels_left,
                ..self
            }),
            None => Err(self.refuse(JsonFault::TooDeep)),
        }
    }

    fn refuse<E: serde::de::Error>(self, fault: JsonFault) -> E {
        self.fault.set(Some(fault));
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.one_level_down()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.one_level_down()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(self.refuse(JsonFault::DuplicateMember));
            }
            object.insert(name, members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
