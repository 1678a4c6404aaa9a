//! The user that a target names in a review, as far as it is compared. What `whoami` prints is the
//! target's own answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::lenient::{Lenient, or_default, readable_items};

/// The group that a target gives every user.
const AUTHENTICATED: &str = "system:authenticated";

/// The `userInfo` of a review.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct TargetUser {
    /// The name; empty if the target does not return it.
    #[serde(deserialize_with = "or_default")]
    pub(crate) username: String,
    /// The UID.
    #[serde(deserialize_with = "or_default")]
    pub(crate) uid: String,
    /// The groups.
    #[serde(deserialize_with = "readable_items")]
    pub(crate) groups: Vec<String>,
    /// The values of each further key.
    #[serde(deserialize_with = "or_default")]
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl TargetUser {
    /// Reads a `userInfo`.
    pub(crate) fn of(user_info: &Value) -> Self {
        Lenient::deserialize(user_info)
            .map(|Lenient(user)| user)
            .unwrap_or_default()
    }

    /// Returns the members in which two users differ, except the group that the target adds.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let groups = |user: &Self| -> Vec<String> {
            let own = user.groups.iter().filter(|group| *group != AUTHENTICATED);
            own.cloned().collect()
        };
        let differences = [
            ("username", self.username != other.username),
            ("uid", self.uid != other.uid),
            ("groups", groups(self) != groups(other)),
            ("extra", self.extra != other.extra),
        ];
        let differing = differences.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(member, _)| member).collect()
    }
}
