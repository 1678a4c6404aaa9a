//! Conditions of objects, as their controllers state them.

use serde::Deserialize;

use crate::lenient::or_default;

/// A condition (metav1.Condition), reduced to what is read of it. A missing text is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatedCondition {
    /// Its name, such as Ready.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// True, False or Unknown.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    /// The reason code.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// The text for readers of the object.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// When its status last changed.
    #[serde(deserialize_with = "or_default")]
    pub last_transition_time: String,
}

impl StatedCondition {
    /// Finds the condition of this name.
    #[must_use]
    pub fn find<'a>(conditions: &'a [Self], kind: &str) -> Option<&'a Self> {
        conditions.iter().find(|condition| condition.kind == kind)
    }
}
