//! Reads JSON as Go's `encoding/json` does: order and duplicates are kept, numbers stay text, and
//! broken UTF-8 is replaced.

mod scan;

use crate::quote::quote;

/// The deepest level of a document that is kept, so that no recursion exhausts a stack. Deeper
/// parts are checked but not kept: see [`Json::Deep`].
pub const MAX_DEPTH: usize = 150;

/// The deepest nesting that Go accepts.
const MAX_DEPTH_OF_GO: usize = 10_000;

/// A JSON value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as the digits of the text.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object, with its members in order; duplicates are kept.
    Object(Vec<(String, Self)>),
    /// An array or an object below [`MAX_DEPTH`]: well formed, but not kept.
    Deep(Box<Deep>),
}

/// What is known about a part that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deep {
    /// Go's name of its kind.
    pub kind: &'static str,
    /// A name that one of its objects has twice.
    pub duplicate_name: Option<String>,
    /// Whether it contains a number beyond a float64.
    pub has_huge_number: bool,
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonFault {
    /// The text is not JSON; contains Go's error message.
    Syntax(String),
}

impl Json {
    /// Reads one value; nothing may follow it.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonFault> {
        scan::parse_json(bytes)
    }

    /// Reads one value that may nest to any depth, as go-jose's copy of `encoding/json` does.
    pub fn parse_at_any_depth(bytes: &[u8]) -> Result<Self, JsonFault> {
        scan::parse_at_any_depth(bytes)
    }

    /// Whether it is a number beyond a float64.
    pub fn is_huge_number(&self) -> bool {
        match self {
            Self::Number(digits) => digits.parse::<f64>().is_ok_and(f64::is_infinite),
            _ => false,
        }
    }

    /// Returns the last member of that exact name, as a Go map or a case-sensitive struct keeps it.
    pub fn member(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// Returns the members of an object; of any other value, none.
    pub fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns Go's name for this kind of value in a type error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
            Self::Deep(deep) => deep.kind,
        }
    }

    /// Whether a part of it lies more than `levels` levels below it.
    pub fn nests_below(&self, levels: usize) -> bool {
        let next = levels.checked_sub(1);
        let deeper = |inner: &Self| next.is_none_or(|next| inner.nests_below(next));
        match self {
            Self::Deep(_) => true,
            Self::List(items) => items.iter().any(deeper),
            Self::Object(members) => members.iter().any(|(_, value)| deeper(value)),
            _ => false,
        }
    }

    /// Converts as `json.Unmarshal` into a `string`: null leaves it empty.
    pub fn to_text(&self) -> Result<String, String> {
        match self {
            Self::Null => Ok(String::new()),
            Self::Text(text) => Ok(text.clone()),
            other => Err(other.mismatch("string")),
        }
    }

    /// Converts as `json.Unmarshal` into a `bool`: null leaves it false.
    pub fn to_bool(&self) -> Result<bool, String> {
        match self {
            Self::Null => Ok(false),
            Self::Bool(value) => Ok(*value),
            other => Err(other.mismatch("bool")),
        }
    }

    /// Converts as `json.Unmarshal` into a `[]string`: null gives no list, and a null item is
    /// empty.
    pub fn to_texts(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Null => Ok(Vec::new()),
            Self::List(items) => items.iter().map(Self::to_text).collect(),
            other => Err(other.mismatch("[]string")),
        }
    }

    /// Returns Go's error message for a value that does not fit a type.
    pub fn mismatch(&self, target: &str) -> String {
        format!(
            "json: cannot unmarshal {} into Go value of type {target}",
            self.kind()
        )
    }
}

/// Whether Go's `encoding/json` matches a key with a struct field of that ASCII name: the case does
/// not matter, by simple folding.
pub fn folds_to(key: &str, name: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key == name || key.chars().map(fold).eq(name.chars().map(fold))
}

/// Prints a byte as Go's JSON errors do.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        other => {
            let quoted = quote(&char::from(other).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

#[cfg(test)]
mod tests;
