//! What a read of the hub gave: the object, nothing, or no right to know.

use keyferry_api::foreign_text::ForeignText;
use keyferry_hub::ports::HubError;

use super::{PathStep, StepState};

/// The result of a read. Only `Absent` says that there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observed<T> {
    /// It is there.
    Known(T),
    /// The hub has none.
    Absent,
    /// The user may not read it.
    Unreadable {
        /// The right that is missing, such as `get secrets in tenant-a`.
        right: String,
    },
    /// The hub did not answer, or its answer cannot be read.
    Failed(ForeignText),
}

impl<T> Observed<T> {
    /// Takes the result of a call that needs this right.
    pub(crate) fn of(result: Result<T, HubError>, right: impl Into<String>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(HubError::NotFound(_)) => Self::Absent,
            Err(HubError::Forbidden(_)) => Self::Unreadable {
                right: right.into(),
            },
            Err(error) => Self::Failed(ForeignText::new(&error.to_string())),
        }
    }

    /// Changes what is there; `None` becomes `Failed`.
    pub(crate) fn and_then<U>(self, change: impl FnOnce(T) -> Option<U>) -> Observed<U> {
        match self {
            Self::Known(value) => change(value).map_or_else(
                || Observed::Failed(ForeignText::new("the object cannot be read")),
                Observed::Known,
            ),
            Self::Absent => Observed::Absent,
            Self::Unreadable { right } => Observed::Unreadable { right },
            Self::Failed(message) => Observed::Failed(message),
        }
    }

    /// Returns the unknown step of something that could not be read; `None` if it is known whether
    /// it is there. `stated` is what another object states of it, or empty.
    pub(crate) fn unknown_step(
        &self,
        kind: &'static str,
        name: impl AsRef<str>,
        stated: &str,
    ) -> Option<PathStep> {
        let stated = match stated {
            "" => String::new(),
            stated => format!("{stated}; "),
        };
        let (detail, fix) = match self {
            Self::Known(_) | Self::Absent => return None,
            Self::Unreadable { right } => (
                format!("{stated}you may not read it: {right} is missing"),
                format!("ask the hub's admin for {right}"),
            ),
            Self::Failed(message) => (
                format!("{stated}it could not be read: {message}"),
                "try again, and if it lasts, check that the hub's apiserver answers".to_owned(),
            ),
        };
        Some(PathStep::new(kind, name, StepState::Unknown, detail).with_fix(fix))
    }
}
