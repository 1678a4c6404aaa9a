//! Conditions as Kubernetes objects carry them (metav1.Condition), by kstatus conventions:
//! `Reconciling` and `Stalled` stand there only while they are true.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::foreign_text;
use crate::reason::Reason;

/// Characters of a message at most, well below what the API takes.
const MAX_MESSAGE: usize = 4096;

/// What is found of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it is so.
    pub status: Truth,
    /// The stable code.
    pub reason: Reason,
    /// For whoever reads the object.
    pub message: String,
}

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It is so.
    True,
    /// It is not.
    False,
    /// It cannot be told.
    Unknown,
}

impl Finding {
    /// All is well.
    pub fn well(message: impl Into<String>) -> Self {
        Self {
            status: Truth::True,
            reason: Reason::Ready,
            message: message.into(),
        }
    }

    /// It is so, by this code: for conditions that are no good news.
    pub fn so(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::True,
            reason,
            message: message.into(),
        }
    }

    /// It is not so.
    pub fn not(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::False,
            reason,
            message: message.into(),
        }
    }

    /// It cannot be told.
    pub fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status: Truth::Unknown,
            reason,
            message: message.into(),
        }
    }

    /// Whether it is so.
    pub fn holds(&self) -> bool {
        self.status == Truth::True
    }
}

impl Truth {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The conditions of an object: of each type, in this order, what was found. A transition is noted
/// only where the status changes.
pub fn conditions(
    before: &Value,
    generation: i64,
    now: Timestamp,
    findings: &[(&str, &Finding)],
) -> Value {
    let known = before
        .get("conditions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let now = seconds(now);
    let written = findings.iter().map(|(kind, finding)| {
        let earlier = known.iter().find(|condition| condition["type"] == *kind && condition["status"] == finding.status.as_str());
        let since = earlier.and_then(|condition| condition["lastTransitionTime"].as_str()).unwrap_or(&now);
        json!({
            "type": kind, "status": finding.status.as_str(), "reason": finding.reason.as_str(), "message": foreign_text::lines(&finding.message, MAX_MESSAGE),
            "observedGeneration": generation, "lastTransitionTime": since,
        })
    });
    Value::Array(written.collect())
}

/// What stands at an object of this condition: its status and its reason.
pub fn standing<'a>(status: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = status.get("conditions")?.as_array()?;
    let condition = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some((condition["status"].as_str()?, condition["reason"].as_str()?))
}

/// A time as `metav1.Time` has it: whole seconds.
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::{Finding, conditions, standing};
    use crate::reason::Reason;

    #[test]
    fn a_transition_is_a_change_of_status_alone() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let refused = Finding::not(Reason::TargetNotGranted, "no");
        let first =
            json!({ "conditions": conditions(&json!({}), 1, at(10), &[("Ready", &refused)]) });
        let other = Finding::not(Reason::MintForbidden, "no");
        let second = json!({ "conditions": conditions(&first, 2, at(20), &[("Ready", &other)]) });
        assert_eq!(
            second["conditions"][0]["lastTransitionTime"],
            first["conditions"][0]["lastTransitionTime"]
        );
        assert_eq!(
            (standing(&second, "Ready"), standing(&second, "Stalled")),
            (Some(("False", "MintForbidden")), None)
        );
        let well = json!({ "conditions": conditions(&second, 2, at(30), &[("Ready", &Finding::well("yes"))]) });
        assert_eq!(
            well["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:30Z"
        );
    }
}
