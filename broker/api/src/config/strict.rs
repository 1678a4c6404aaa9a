//! A JSON deserialiser that is stricter than serde in one point: it does not accept a list as an
//! object.
//!
//! Serde's derived types would read a list's items as an object's fields in their order. Then
//! `targetClusterRef: [prod]` would have a meaning here that it does not have in the API.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// A value to deserialise strictly.
pub(super) struct Strict<'a>(pub(super) &'a Value);

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(Strict)))
            }
            Value::Object(members) => visitor.visit_map(MapDeserializer::new(
                members
                    .iter()
                    .map(|(key, value)| (key.as_str(), Strict(value))),
            )),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if self.0.is_array() {
            Err(Error::invalid_type(Unexpected::Seq, &visitor))
        } else {
            self.deserialize_any(visitor)
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
