//! What could not be read, and what would change that.

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{Namespace, ObjectName};
use serde::Serialize;

/// A list that is missing from a reading, so that nothing may be concluded from its absence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The resource in the plural, as in a Role, such as `targetclusters.keyferry.dev`.
    pub resource: String,
    /// The namespace, if only its part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The target whose list it is; `None` for the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectName>,
    /// Why it is missing.
    pub cause: GapCause,
    /// The server's or the reader's message.
    pub message: ForeignText,
    /// What a reader of the facts cannot see because of it, such as "when delivered tokens end".
    pub hides: String,
    /// What to do, such as the Role that would allow the list.
    pub fix: String,
}

/// Why a list is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum GapCause {
    /// The apiserver refused it to this user.
    Refused,
    /// The folder has no file with it.
    Absent,
    /// The file or the answer ended before its end, or has more than the limit.
    Cut,
    /// The server did not answer, or answered something that cannot be read.
    Failed,
}
