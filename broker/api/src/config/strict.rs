//! A deserialiser of JSON values whose errors are data, and which is stricter than serde in one
//! point: it does not accept a list as an object.
//!
//! Serde's derived types would read a list's items as an object's fields in their order. Then
//! `targetClusterRef: [prod]` would have a meaning here that it does not have in the API.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Number, Value};

/// A value to deserialise strictly.
pub(super) struct Strict<'a>(pub(super) &'a Value);

/// Why a value does not fit its type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StructureError {
    /// The mapping has no such field.
    #[error("the field {0} is missing")]
    MissingField(&'static str),
    /// The mapping has a field that its type does not have.
    #[error("unknown field `{name}`")]
    UnknownField {
        /// As written.
        name: String,
        /// The fields of the type.
        known: &'static [&'static str],
    },
    /// The value is of another kind.
    #[error("{0} is expected")]
    WrongKind(ValueKind),
    /// What no type of the configuration reports.
    #[error("{0}")]
    Other(String),
}

/// The kinds of values that fields have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    Boolean,
    WholeNumber,
    /// A whole number that a `u32` can hold.
    U32,
    List,
    Mapping,
}

impl ValueKind {
    /// An empty value of this kind, which replaces a value of another kind.
    pub(super) fn placeholder(self) -> Value {
        match self {
            Self::Text => Value::from(""),
            Self::Boolean => Value::Bool(false),
            Self::WholeNumber | Self::U32 => Value::from(0),
            Self::List => Value::Array(Vec::new()),
            Self::Mapping => Value::Object(serde_json::Map::new()),
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Boolean => f.write_str("true or false"),
            Self::WholeNumber => f.write_str("a whole number"),
            Self::U32 => write!(f, "a whole number from 0 to {}", u32::MAX),
            Self::List => f.write_str("a list"),
            Self::Mapping => f.write_str("a mapping"),
        }
    }
}

impl Error for StructureError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingField(field)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownField {
            name: field.to_owned(),
            known,
        }
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = StructureError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => visit_number(number, visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(Strict)))
            }
            Value::Object(members) => visitor.visit_map(MapDeserializer::new(
                members
                    .iter()
                    .map(|(key, value)| (key.as_str(), Strict(value))),
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.of_kind(ValueKind::Boolean, Value::is_boolean, visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let fits = |value: &Value| value.as_u64().is_some_and(|it| u32::try_from(it).is_ok());
        let kind = if self.0.is_i64() || self.0.is_u64() {
            ValueKind::U32
        } else {
            ValueKind::WholeNumber
        };
        self.of_kind(kind, fits, visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.of_kind(ValueKind::Text, Value::is_string, visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.of_kind(ValueKind::List, Value::is_array, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.of_kind(ValueKind::Mapping, Value::is_object, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de> Strict<'de> {
    /// Reads a value that must be of this kind. Serde's visitors would name the kind only in a
    /// sentence.
    fn of_kind<V: Visitor<'de>>(
        self,
        kind: ValueKind,
        is_of_kind: impl Fn(&Value) -> bool,
        visitor: V,
    ) -> Result<V::Value, StructureError> {
        if is_of_kind(self.0) {
            self.deserialize_any(visitor)
        } else {
            Err(StructureError::WrongKind(kind))
        }
    }
}

fn visit_number<'de, V: Visitor<'de>>(
    number: &Number,
    visitor: V,
) -> Result<V::Value, StructureError> {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => visitor.visit_u64(number),
        (None, Some(number), _) => visitor.visit_i64(number),
        (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
    }
}

impl<'de> IntoDeserializer<'de, StructureError> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
