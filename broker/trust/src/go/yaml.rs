//! YAML as `sigs.k8s.io/yaml` turns it into JSON, which is how every apiserver from 1.30 to 1.37
//! reads a configuration file.
//!
//! That library stands on version 2 of `go-yaml`: YAML 1.1, and a scanner that takes and refuses
//! other texts than the specification does (a comment needs no space before it, quoted text may
//! stand left of its key, what follows a finished root node is not read). A parser that follows the
//! specification gives another verdict for such files, so this one follows the library. It was
//! written from the library's behaviour and is held against it, texts of errors included:
//! `tests.rs` reads what the library said, and the differential test of `integration/` asks it
//! about random texts.
//!
//! One difference is wanted: a file that is too large or too deep to be judged cheaply is
//! [`Fault::Undetermined`].

mod convert;
mod decode;
mod parser;
mod resolve;
mod scalars;
mod scanner;
mod source;
mod tags;
mod value;

use std::collections::BTreeMap;

use super::json::Json;

/// The first document of a file, as the library hands it on.
#[derive(Debug)]
pub(crate) struct Document {
    /// The JSON that it becomes. An empty file is `null`.
    pub(crate) value: Json,
    /// The line of every field, by its path, like `jwt[0].issuer.url`. Long paths, which name no
    /// field, are left out.
    pub(crate) lines: BTreeMap<String, u64>,
    /// The strict reader's text, where a key is set twice in one map.
    pub(crate) duplicates: Option<String>,
    /// Whether anything follows the first document. The library does not read it.
    pub(crate) more: bool,
}

/// Why there is no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The library refuses the text.
    Refused {
        /// What it says.
        message: String,
        /// Whether the message is the library's to the letter.
        exact: bool,
        /// The line that it is about, from 1, where one is known. The library's own count is off by
        /// one in some messages.
        line: Option<u64>,
    },
    /// It is not decided here.
    Undetermined(Limit),
}

/// What keeps a text from being judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// It nests too deep.
    Depth,
    /// It has too many nodes, or aliases repeat too much text.
    Size,
    /// What the library does depends on chance, or is a crash.
    Unusual(&'static str),
}

impl Fault {
    /// A refusal without a line.
    fn refused(problem: impl AsRef<str>) -> Self {
        Self::Refused {
            message: format!("yaml: {}", problem.as_ref()),
            exact: true,
            line: None,
        }
    }
}

/// Reads the first document.
///
/// # Errors
/// [`Fault::Refused`] in the library's words, or [`Fault::Undetermined`].
pub(crate) fn read(bytes: &[u8]) -> Result<Document, Fault> {
    let mut parser = parser::Parser::new(bytes);
    let tree = parser.document()?;
    let decoded = decode::decode(&tree)?;
    let (value, lines) = convert::convert(&decoded.value)?;
    Ok(Document {
        value,
        lines,
        duplicates: decoded.duplicates,
        more: parser.has_more(),
    })
}

#[cfg(test)]
mod tests;
