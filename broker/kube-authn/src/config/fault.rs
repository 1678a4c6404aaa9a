//! The errors of loading a file.

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
        }
    }

    /// Creates a refusal whose text is close to the apiserver's.
    pub(crate) fn near(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            exact: false,
            line: None,
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
