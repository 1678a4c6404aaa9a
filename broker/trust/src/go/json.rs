//! JSON as Go's `encoding/json` reads it: order and duplicates are kept, numbers stay text, broken
//! UTF-8 is replaced.

mod scan;

use super::quote::quote;

/// How deep a document is kept, so that no stack runs out. What lies deeper is checked and not
/// kept: see [`Json::Deep`].
pub(crate) const MAX_DEPTH: usize = 150;

/// How deep Go reads.
const MAX_DEPTH_OF_GO: usize = 10_000;

/// A JSON value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number's own digits.
    Number(String),
    /// A string, unescaped.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object, with its members in their order and duplicates kept.
    Object(Vec<(String, Self)>),
    /// An array or an object below [`MAX_DEPTH`]: well formed, but not kept. Holds what Go calls
    /// its kind.
    Deep(&'static str),
}

/// Why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonFault {
    /// No JSON, in the words of Go.
    Syntax(String),
}

impl Json {
    /// Reads one value; nothing may follow it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, JsonFault> {
        scan::parse(bytes)
    }

    /// The last member of that exact name, as a map or a case-sensitive struct holds it.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        self.members()
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The members of an object; of anything else, none.
    pub(crate) fn members(&self) -> &[(String, Self)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// What Go calls this kind of value in a type error.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
            Self::Deep(kind) => kind,
        }
    }

    /// Whether a part of it nests more levels below it than that.
    pub(crate) fn nests_below(&self, levels: usize) -> bool {
        let next = levels.checked_sub(1);
        let deeper = |inner: &Self| next.is_none_or(|next| inner.nests_below(next));
        match self {
            Self::Deep(_) => true,
            Self::List(items) => items.iter().any(deeper),
            Self::Object(members) => members.iter().any(|(_, value)| deeper(value)),
            _ => false,
        }
    }

    /// `json.Unmarshal` into a `string`: null leaves it empty.
    pub(crate) fn to_text(&self) -> Result<String, String> {
        match self {
            Self::Null => Ok(String::new()),
            Self::Text(text) => Ok(text.clone()),
            other => Err(other.mismatch("string")),
        }
    }

    /// `json.Unmarshal` into a `bool`: null leaves it false.
    pub(crate) fn to_bool(&self) -> Result<bool, String> {
        match self {
            Self::Null => Ok(false),
            Self::Bool(value) => Ok(*value),
            other => Err(other.mismatch("bool")),
        }
    }

    /// `json.Unmarshal` into a `[]string`: null is no list, and a null item is empty.
    pub(crate) fn to_texts(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Null => Ok(Vec::new()),
            Self::List(items) => items.iter().map(Self::to_text).collect(),
            other => Err(other.mismatch("[]string")),
        }
    }

    /// Go's words for a value that does not fit a type.
    pub(crate) fn mismatch(&self, target: &str) -> String {
        format!(
            "json: cannot unmarshal {} into Go value of type {target}",
            self.kind()
        )
    }
}

/// Whether Go's `encoding/json` takes a key for a struct field of that ASCII name: without regard
/// to case, by simple folding.
pub(crate) fn folds_to(key: &str, name: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key == name || key.chars().map(fold).eq(name.chars().map(fold))
}

/// A byte as Go's JSON errors name it.
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
