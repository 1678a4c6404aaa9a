//! The errors of loading a file.

use keyferry_go_formats::yaml::Position;

use crate::Code;

/// Why the apiserver does not load a file, or why that is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFault {
    /// The apiserver refuses the file.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What the apiserver does cannot be decided here.
    #[error(transparent)]
    Undetermined(#[from] Undetermined),
}

/// An error with which the apiserver refuses a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The stable name of the error.
    pub code: Code,
    /// The text of the error.
    pub message: String,
    /// Whether the text is exactly the apiserver's.
    pub exact: bool,
    /// The line of the error, if known.
    pub line: Option<u64>,
    /// The fields that a strict decoding error is about, in the order of its text.
    pub fields: Vec<FieldFault>,
}

/// A field that the strict decoder does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// The stable name of the error.
    pub code: Code,
    /// Its part of the apiserver's text.
    pub message: String,
    /// The field, like `jwt[0].prefix`; empty for the keys that YAML has twice, which are one
    /// error.
    pub path: String,
    /// Where the field is, if known.
    pub position: Option<Position>,
    /// Where the field belongs, or which name it should have, if that can be guessed.
    pub fix: Option<String>,
}

impl FieldFault {
    pub(crate) fn new(code: Code, path: String, message: String) -> Self {
        Self {
            code,
            message,
            path,
            position: None,
            fix: None,
        }
    }
}

/// Something that cannot be decided offline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("undetermined: {reason}")]
pub struct Undetermined {
    /// The stable name of the reason.
    pub code: Code,
    /// The reason, for this case.
    pub reason: String,
}

impl Refusal {
    /// Creates a refusal with the apiserver's exact text.
    pub(crate) fn exact(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            exact: true,
            line: None,
            fields: Vec::new(),
        }
    }

    /// Creates a refusal whose text is close to the apiserver's.
    pub(crate) fn near(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            exact: false,
            line: None,
            fields: Vec::new(),
        }
    }
}

impl Undetermined {
    /// Creates an undetermined result with its code and reason.
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}
