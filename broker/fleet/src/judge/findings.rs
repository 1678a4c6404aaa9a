//! What is wrong with a target or an access, each with its short cause and the next command.

use jiff::Timestamp;
use keyferry_api::condition;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::reason::Reason;
use keyferry_api::status;
use keyferry_api::summary::{self, TargetAnswers};

use crate::facts::{Answer, Finding, Health};
use crate::stated_condition::StatedCondition;

/// A finding, with what one row says of it.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) finding: Finding,
    /// In about ten words.
    pub(super) cause: String,
    /// The command that is next.
    pub(super) next: Option<String>,
}

impl Judged {
    /// A finding whose message is its cause.
    pub(super) fn new(
        health: Health,
        condition: &str,
        reason: &str,
        cause: impl Into<String>,
    ) -> Self {
        let cause = cause.into();
        Self {
            finding: Finding {
                health,
                condition: ForeignText::new(condition),
                reason: ForeignText::new(reason),
                message: ForeignText::new(&cause),
            },
            cause,
            next: None,
        }
    }

    /// A finding about a condition, whose message is the controller's.
    pub(super) fn of_condition(
        health: Health,
        stated: &Stated<'_>,
        cause: impl Into<String>,
    ) -> Self {
        Self {
            finding: Finding {
                health,
                condition: ForeignText::new(stated.kind),
                reason: ForeignText::new(stated.reason),
                message: ForeignText::new(stated.message),
            },
            cause: cause.into(),
            next: None,
        }
    }

    /// Sets the command that is next.
    #[must_use]
    pub(super) fn with_next(self, command: impl Into<String>) -> Self {
        Self {
            next: Some(command.into()),
            ..self
        }
    }
}

/// The findings of one object, worst first; equally bad ones stay in their order.
pub(super) fn sorted(mut findings: Vec<Judged>) -> Vec<Judged> {
    findings.sort_by_key(|judged| judged.finding.health);
    findings
}

/// A condition as its object states it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

impl<'a> Stated<'a> {
    /// Finds a condition of a TargetAccess.
    pub(super) fn of_access(conditions: &'a [StatedCondition], kind: &str) -> Option<Self> {
        StatedCondition::find(conditions, kind).map(|it| Self {
            kind: &it.kind,
            status: &it.status,
            reason: &it.reason,
            message: &it.message,
        })
    }

    /// Finds a condition of a TargetCluster.
    pub(super) fn of_target(status: &'a status::TargetClusterStatus, kind: &str) -> Option<Self> {
        let condition = status.conditions.iter().find(|it| it.kind == kind)?;
        Some(Self {
            kind: &condition.kind,
            status: &condition.status,
            reason: &condition.reason,
            message: &condition.message,
        })
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.status == "False"
    }

    pub(super) fn has_reason(&self, reason: Reason) -> bool {
        self.reason == reason.as_str()
    }

    /// The answer "no", with this condition's reason and message.
    pub(super) fn denial(&self) -> Answer {
        Answer::No {
            reason: ForeignText::new(self.reason),
            message: ForeignText::new(self.message),
        }
    }

    /// Why an object is not ready, in the words of its column STATUS.
    pub(super) fn hindrance(&self) -> String {
        short_cause(self.reason)
    }

    /// What is unsafe about a target that is ready, in the words of its column STATUS.
    pub(super) fn warning(&self) -> Option<String> {
        let problem = condition::Finding::problem(reason_of(self.reason)?, "");
        let ready = condition::Finding::ok("");
        let line =
            summary::summarize_target(&ready, &[(self.kind, &problem)], &TargetAnswers::default());
        let warning = line
            .strip_prefix("ready, but ")
            .or(line.strip_prefix("ready; "));
        warning.map(str::to_owned)
    }
}

/// What a reason code means for an object, in the words of the column STATUS.
pub(crate) fn short_cause(reason: &str) -> String {
    match reason_of(reason) {
        Some(reason) => {
            summary::summarize_access(&condition::Finding::failed(reason, ""), None, None)
        }
        None => "see its conditions".to_owned(),
    }
}

/// The code of this name, if this version knows it.
fn reason_of(text: &str) -> Option<Reason> {
    Reason::ALL
        .iter()
        .find(|reason| reason.as_str() == text)
        .copied()
}

/// Reads a time of a status.
pub(super) fn time(text: Option<&String>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

/// The answer "not known".
pub(super) fn unknown(why: impl AsRef<str>) -> Answer {
    Answer::Unknown {
        why: ForeignText::new(why.as_ref()),
    }
}

/// A time as a row says it: to the minute, in UTC.
pub(super) fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
