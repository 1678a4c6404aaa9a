//! One error about one field, as `field.Error` prints it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Code;

/// The kind of a field error, by the names of Kubernetes' API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    /// A value is missing.
    Required,
    /// A value is wrong.
    Invalid,
    /// A value is given twice.
    Duplicate,
    /// A list is too long.
    TooMany,
    /// A field is not allowed here.
    Forbidden,
    /// The apiserver fails at a value; it shows none.
    Internal,
}

impl ErrorType {
    /// The cause type of Kubernetes' API, like `FieldValueRequired`.
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

/// One error about one field; prints as the apiserver prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Which rule.
    pub code: Code,
    /// The kind.
    pub kind: ErrorType,
    /// The field, like `jwt[0].issuer.url`.
    pub path: String,
    /// The value, as it is printed; none for missing, forbidden and internal ones.
    pub value: Option<String>,
    /// What is wrong; may be empty.
    pub detail: String,
}

impl FieldError {
    /// Whether it prints exactly what the apiserver prints. What CEL's compiler says of an
    /// expression is only near.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.code != Code::ExpressionNotCompiled
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
