//! Why a file is not loaded.

use crate::Code;

/// Why a file is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFault {
    /// The apiserver refuses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be said here what the apiserver does.
    #[error(transparent)]
    Undetermined(#[from] Undetermined),
}

/// A refusal of the apiserver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which one.
    pub code: Code,
    /// Its text.
    pub message: String,
    /// Whether the text is the apiserver's own, word by word.
    pub exact: bool,
    /// The line, where one is known.
    pub line: Option<u64>,
}

/// What is not decided here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("undetermined: {reason}")]
pub struct Undetermined {
    /// Why not.
    pub code: Code,
    /// Why not, about this case.
    pub reason: String,
}

impl Refusal {
    /// In the apiserver's own words.
    pub(crate) fn exact(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            exact: true,
            line: None,
        }
    }

    /// In words near to the apiserver's.
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
    /// Of that kind, for that reason.
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}
