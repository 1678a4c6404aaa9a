//! Reads YAML as `sigs.k8s.io/yaml` converts it to JSON. Every apiserver from 1.30 to 1.37 reads a
//! configuration file that way.
//!
//! That library uses version 2 of `go-yaml`: YAML 1.1, with a scanner that differs from the
//! specification. For example, a comment needs no space before it, quoted text may be indented less
//! than its key, and what follows a finished root node is not read. A parser that follows the
//! specification would judge such files differently, so this one follows the library. It was
//! written from the library's behaviour and is tested against it, error texts included. `tests.rs`
//! contains recorded results of the library, and the differential test of `integration/` compares
//! both on random texts.
//!
//! One difference is intended: a file that is too large or too deep to be judged cheaply is
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

use crate::json::Json;

/// The first document of a file, as the library returns it.
#[derive(Debug)]
pub struct Document {
    /// The document as JSON. An empty file is `null`.
    pub value: Json,
    /// The position of every field, by its path, like `jwt[0].issuer.url`. Long paths are left out,
    /// because they name no field.
    pub positions: BTreeMap<String, Position>,
    /// The strict reader's error message, if a key is set twice in one map.
    pub duplicates: Option<String>,
    /// Whether anything follows the first document. The library does not read that.
    pub more: bool,
}

/// Where a field of a file starts: at its key, or at the item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The character within the line, from 1.
    pub column: u64,
}

/// Why a file is not converted to JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The library refuses the text.
    Refused {
        /// The library's error message.
        message: String,
        /// Whether the message is exactly the library's.
        exact: bool,
        /// The line of the error, from 1, if known. The library's own count is off by one in some
        /// messages.
        line: Option<u64>,
    },
    /// What the library does cannot be decided here.
    Undetermined(Limit),
}

/// Why a text cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It nests too deep.
    Depth,
    /// It has too many nodes, or aliases repeat too much text.
    Size,
    /// The library's behaviour is random here, or it crashes.
    Unusual(&'static str),
}

impl Fault {
    /// Creates a refusal without a line.
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
pub fn read(bytes: &[u8]) -> Result<Document, Fault> {
    let mut parser = parser::Parser::new(bytes);
    let tree = parser.parse_document()?;
    let decoded = decode::decode_tree(&tree)?;
    let (value, positions) = convert::convert_document(&decoded.value)?;
    Ok(Document {
        value,
        positions,
        duplicates: decoded.duplicates,
        more: parser.has_more(),
    })
}

#[cfg(test)]
mod tests;
