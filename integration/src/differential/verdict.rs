//! What the judge under test says, in the words that are compared.

use std::collections::BTreeMap;

use super::class;

/// What becomes of a configuration and its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// The file is not loaded; the text is meant to be kube-apiserver's own when it is exact.
    NotLoaded { text: String, exact: bool },
    /// The configuration is not taken. The judge may know of parts that it could not judge: then
    /// these are not all errors.
    NotValid {
        errors: Vec<FieldFault>,
        complete: bool,
    },
    /// For each token one verdict of each jwt entry.
    Verdicts(Vec<Vec<Verdict>>),
    /// The judge does not know whether the configuration is taken.
    Undetermined { why: String },
}

/// One validation error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldFault {
    pub(crate) field: String,
    /// The `field.ErrorType`, like `FieldValueInvalid`.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// Whether the text is meant to be kube-apiserver's own.
    pub(crate) exact: bool,
}

/// What becomes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Skipped,
    /// The text is meant to be kube-apiserver's own when it is exact.
    Rejected {
        text: String,
        exact: bool,
    },
    Accepted(User),
    Undetermined {
        why: String,
    },
    /// The authenticator's own order is random: any of these.
    OneOf(Vec<Self>),
}

/// Whom a token is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Verdict {
    /// A short name: two disagreements with the same names on both sides are of one kind.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Skipped => "skipped".to_owned(),
            Self::Rejected { text, .. } => format!("rejected: {}", class::of_rejection(text)),
            Self::Accepted(_) => "accepted".to_owned(),
            Self::Undetermined { .. } => "undetermined".to_owned(),
            Self::OneOf(possible) => possible
                .iter()
                .map(Self::name)
                .collect::<Vec<_>>()
                .join(" or "),
        }
    }
}
