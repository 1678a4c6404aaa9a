//! The result of keyferry-kube-authn in the form that is compared.

use std::collections::BTreeMap;

use super::class;

/// The result for a configuration and its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// The file is not loaded. If `exact`, the text must equal kube-apiserver's own.
    NotLoaded { text: String, exact: bool },
    /// The configuration is refused. If the judge knows of parts that it could not judge, these may
    /// not be all errors.
    NotValid {
        errors: Vec<FieldFault>,
        complete: bool,
    },
    /// For each token, one verdict of each jwt entry.
    Verdicts(Vec<Vec<Verdict>>),
    /// The judge cannot determine whether the configuration is accepted.
    Undetermined { why: String },
}

/// One validation error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldFault {
    pub(crate) field: String,
    /// The `field.ErrorType`, like `FieldValueInvalid`.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// Whether the text must equal kube-apiserver's own.
    pub(crate) exact: bool,
}

/// The result for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Skipped,
    /// The token is refused. If `exact`, the text must equal kube-apiserver's own.
    Rejected {
        text: String,
        exact: bool,
    },
    Accepted(User),
    Undetermined {
        why: String,
    },
    /// Any of these, because the authenticator's own order is random.
    OneOf(Vec<Self>),
}

/// The user of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Verdict {
    /// A short name. Two disagreements with the same names on both sides are of one kind.
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
