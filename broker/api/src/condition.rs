//! Conditions of Kubernetes objects (metav1.Condition), by kstatus conventions: `Reconciling` and
//! `Stalled` are present only while they are true.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foreign_text;
use crate::reason::Reason;
use crate::schema;

/// The most characters of a message, well below the API's limit.
const MAX_MESSAGE: usize = 4096;

/// The result of one check, ready to become a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The condition's status.
    pub status: Truth,
    /// The stable reason code.
    pub reason: Reason,
    /// The text for readers of the object.
    pub message: String,
}

/// The `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// The condition could not be determined.
    Unknown,
}

impl Finding {
    /// A true condition with the reason `Ready`.
    pub fn ok(message: impl Into<String>) -> Self {
        Self {
            status: Truth::True,
            reason: Reason::Ready,
            message: message.into(),
        }
    }

    /// A true condition with this reason, for conditions that report a problem.
    pub fn problem(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::True,
            reason,
            message: message.into(),
        }
    }

    /// A false condition with this reason.
    pub fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::False,
            reason,
            message: message.into(),
        }
    }

    /// An unknown condition with this reason.
    pub fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::Unknown,
            reason,
            message: message.into(),
        }
    }

    /// Whether the condition is true.
    pub fn is_true(&self) -> bool {
        self.status == Truth::True
    }
}

impl Truth {
    /// The names of all statuses.
    const CONDITION_STATUS_NAMES: [&'static str; 3] = ["True", "False", "Unknown"];

    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition of an object (metav1.Condition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its name, such as Ready.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub kind: String,
    /// Whether it holds.
    #[schemars(extend("enum" = Truth::CONDITION_STATUS_NAMES))]
    pub status: String,
    /// The stable reason code.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// The text for readers of the object.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The generation of the spec that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When its status last changed.
    #[schemars(transform = schema::time)]
    pub last_transition_time: String,
}

/// Renders the conditions of an object, one for each finding in this order. `lastTransitionTime`
/// changes only with the status.
pub fn conditions(
    before: &Value,
    generation: i64,
    now: Timestamp,
    findings: &[(&str, &Finding)],
) -> Vec<Condition> {
    let known: Vec<Condition> = before
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect();
    let written = findings.iter().map(|(kind, finding)| {
        let status = finding.status.as_str();
        let earlier = known
            .iter()
            .find(|condition| condition.kind == *kind && condition.status == status);
        Condition {
            kind: (*kind).to_owned(),
            status: status.to_owned(),
            reason: finding.reason.as_str().to_owned(),
            message: foreign_text::one_line(&finding.message, MAX_MESSAGE),
            observed_generation: Some(generation),
            last_transition_time: earlier.map_or_else(
                || format_seconds(now),
                |condition| condition.last_transition_time.clone(),
            ),
        }
    });
    written.collect()
}

/// Returns the status and the reason of a condition in an object's status.
pub fn condition_state<'a>(status: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = status.get("conditions")?.as_array()?;
    let condition = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some((condition["status"].as_str()?, condition["reason"].as_str()?))
}

/// Formats a time like `metav1.Time`: in whole seconds.
pub fn format_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::{Finding, condition_state, conditions};
    use crate::reason::Reason;

    #[test]
    fn a_transition_is_a_change_of_status_alone() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let refused = Finding::failed(Reason::TargetNotGranted, "no");
        let first =
            json!({ "conditions": conditions(&json!({}), 1, at(10), &[("Ready", &refused)]) });
        let other = Finding::failed(Reason::MintForbidden, "no");
        let second = json!({ "conditions": conditions(&first, 2, at(20), &[("Ready", &other)]) });
        assert_eq!(
            second["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
        assert_eq!(
            (
                condition_state(&second, "Ready"),
                condition_state(&second, "Stalled")
            ),
            (Some(("False", "MintForbidden")), None)
        );
        let well = json!({ "conditions": conditions(&second, 2, at(30), &[("Ready", &Finding::ok("yes"))]) });
        assert_eq!(
            well["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }
}
