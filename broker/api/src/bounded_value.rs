//! A JSON value of an object that others wrote, parsed within a limit of memory.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What a value takes besides its text.
const VALUE_COST: usize = 32;

/// How many bytes may still be kept.
#[derive(Debug)]
pub struct ValueBudget {
    left: usize,
    is_exceeded: bool,
}

impl ValueBudget {
    /// A budget of this many bytes.
    pub fn of(bytes: usize) -> Self {
        Self {
            left: bytes,
            is_exceeded: false,
        }
    }

    /// The bytes that are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Whether more was to be kept than it allows. What was kept is then not the whole value.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Takes a value with this much text; `false` if nothing more is kept.
    pub fn take(&mut self, text: usize) -> bool {
        match self.left.checked_sub(text.saturating_add(VALUE_COST)) {
            Some(left) if !self.is_exceeded => self.left = left,
            _ => self.is_exceeded = true,
        }
        !self.is_exceeded
    }
}

/// Parses a value within a budget. What exceeds it is skipped, not stored.
#[derive(Debug)]
pub struct BoundedValue<'a>(pub &'a mut ValueBudget);

impl BoundedValue<'_> {
    fn scalar<E>(self, value: impl Into<Value>) -> Result<Value, E> {
        Ok(if self.0.take(0) {
            value.into()
        } else {
            Value::Null
        })
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        self.scalar(number.ok_or_else(|| E::custom("a number without a value"))?)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let is_kept = self.0.take(text.len());
        Ok(if is_kept { text.into() } else { Value::Null })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let mut is_kept = self.0.take(0);
        while is_kept {
            match all.next_element_seed(BoundedValue(self.0))? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
            is_kept = !self.0.is_exceeded;
        }
        while all.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        let mut is_kept = self.0.take(0);
        while is_kept {
            let Some(key) = all.next_key::<String>()? else {
                return Ok(Value::Object(members));
            };
            if self.0.take(key.len()) {
                let value = all.next_value_seed(BoundedValue(self.0))?;
                members.insert(key, value);
            } else {
                all.next_value::<IgnoredAny>()?;
            }
            is_kept = !self.0.is_exceeded;
        }
        while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }
}
