//! An error about one field, printed as `field.Error` prints it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Code;

/// The kind of a field error, named as in the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// A value is missing.
    Required,
    /// A value is not valid.
    Invalid,
    /// A value is given twice.
    Duplicate,
    /// A list is too long.
    TooMany,
    /// A field is not allowed here.
    Forbidden,
    /// The apiserver fails on a value; the error shows no value.
    Internal,
}

impl ErrorType {
    /// Returns the cause type of the Kubernetes API, like `FieldValueRequired`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::Duplicate => "Duplicate value",
            Self::TooMany => "Too many",
            Self::Forbidden => "Forbidden",
            Self::Internal => "Internal error",
        }
    }
}

impl Serialize for ErrorType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// An error about one field; it prints as the apiserver prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The stable name of the broken rule.
    pub code: Code,
    /// The kind of the error.
    pub kind: ErrorType,
    /// The field, like `jwt[0].issuer.url`.
    pub path: String,
    /// The value as it is printed; `None` for missing, forbidden and internal errors.
    pub value: Option<String>,
    /// What is wrong; may be empty.
    pub detail: String,
    /// Whether the detail is the same in every build of the release.
    pub exact: bool,
}

impl FieldError {
    /// Whether it prints exactly what the apiserver prints. Messages of CEL's compiler are only
    /// close.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact && self.code != Code::ExpressionNotCompiled
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind.words())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}
