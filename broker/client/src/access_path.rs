//! The path of one access, from what uses its delivered objects to the user at the target, as the
//! objects of the hub state it. No target is contacted.
//!
//! What the user may not read is an unknown step with the right that is missing, and never a broken
//! one.

mod flux_consumers;
mod observed;
mod read_hub;
mod steps;

use jiff::Timestamp;
use keyferry_api::config::Policy;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::AccessName;
use keyferry_hub::client::HubClient;
use serde::Serialize;

/// The version of the document.
const SCHEMA: &str = "keyferry.dev/tree/v1";

/// The path of one access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessPath {
    /// Always `keyferry.dev/tree/v1`.
    pub schema: &'static str,
    /// `<namespace>/<name>` of the TargetAccess.
    pub access: String,
    /// The worst of its steps.
    pub verdict: PathVerdict,
    /// When it was judged what has ended.
    pub judged_at: Timestamp,
    /// The TargetAccess, with the other steps below it.
    pub root: PathStep,
}

/// Whether an access works, as far as its steps show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PathVerdict {
    /// Every step that was asked about holds.
    Well,
    /// A step is broken.
    Broken,
    /// No step is known to be broken, and some are not known to hold.
    Undetermined,
}

/// One step of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathStep {
    /// What it is, such as `TargetCluster`.
    pub kind: &'static str,
    /// Its name; empty if it has none.
    pub name: ForeignText,
    /// How it is.
    pub state: StepState,
    /// Why, on one line.
    pub detail: ForeignText,
    /// What to do, for a step that is broken or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The next steps.
    pub below: Vec<Self>,
}

/// How a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StepState {
    /// It holds.
    Holds,
    /// It does not hold.
    Broken,
    /// Nothing that could be read proves either.
    Unknown,
    /// It is not part of what was asked.
    NotAsked,
}

impl AccessPath {
    /// Reads the path from the hub, with the user's own rights.
    pub async fn read_from_hub(client: &HubClient, access: &AccessName, now: Timestamp) -> Self {
        let reading = read_hub::read_access(client, access).await;
        Self::with_root(access, now, steps::root_step(access, &reading, now))
    }

    /// Judges the path by policy alone, such as a configuration file. What only the hub and the
    /// target know is unknown.
    pub fn of_policy(policy: &Policy, access: &AccessName, hub_name: &str, now: Timestamp) -> Self {
        Self::with_root(access, now, steps::root_of_policy(policy, access, hub_name))
    }

    fn with_root(access: &AccessName, now: Timestamp, root: PathStep) -> Self {
        let has = |state| root.any(&|step: &PathStep| step.state == state);
        let verdict = if has(StepState::Broken) {
            PathVerdict::Broken
        } else if has(StepState::Unknown) {
            PathVerdict::Undetermined
        } else {
            PathVerdict::Well
        };
        Self {
            schema: SCHEMA,
            access: access.to_string(),
            verdict,
            judged_at: now,
            root,
        }
    }
}

impl PathStep {
    /// Creates a step without others below it.
    pub(crate) fn new(
        kind: &'static str,
        name: impl AsRef<str>,
        state: StepState,
        detail: impl AsRef<str>,
    ) -> Self {
        Self {
            kind,
            name: ForeignText::new(name.as_ref()),
            state,
            detail: ForeignText::new(detail.as_ref()),
            fix: None,
            below: Vec::new(),
        }
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn with_fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }

    /// Adds the next steps.
    #[must_use]
    pub(crate) fn with_below(self, below: Vec<Self>) -> Self {
        Self { below, ..self }
    }

    /// Whether this step, or one below it, is such a step.
    fn any(&self, is_such: &dyn Fn(&Self) -> bool) -> bool {
        is_such(self) || self.below.iter().any(|step| step.any(is_such))
    }

    /// Returns the first step in this state: this one, else the first below it.
    #[must_use]
    pub fn first_in(&self, state: StepState) -> Option<&Self> {
        if self.state == state {
            return Some(self);
        }
        self.below.iter().find_map(|step| step.first_in(state))
    }
}

#[cfg(test)]
mod tests;
