//! What an event would cost: which calls are refused, when for certain and when possibly, and from
//! when the next step is safe.
//!
//! One pure function, [`rehearse`], predicts from [`Fleet`]. It knows how long the real parts take
//! ([`timing`]), but not when each of them acts: a target fetches keys in a phase of its own. So
//! each [`Refusal`] has two windows. In the certain one every call is refused. Outside the possible
//! one no call is refused because of the event. What the facts do not say is [`Undetermined`], and
//! has no time.
//!
//! ```
//! # use std::time::Duration;
//! # use keyferry_fleet::facts::Fleet;
//! # use keyferry_fleet::rehearsal::{Event, Parameters, Rehearsal, rehearse};
//! # fn example(fleet: &Fleet) -> Rehearsal {
//! let outage = Event::HubOutage { lasts: Some(Duration::from_secs(4 * 3600)) };
//! rehearse(fleet, &outage, &Parameters::default(), fleet.reading.judged_at)
//! # }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, ObjectName};
use serde::{Serialize, Serializer};

use crate::facts::Fleet;
use crate::gap::Gap;

mod authority_change;
mod delivered;
mod draft;
mod key_removal;
mod key_revocation;
mod key_rotation;
mod outage;
mod scene;
pub mod timing;
mod window;

pub use window::Window;

use scene::Scene;

/// The version of the JSON document: `schema` of [`Rehearsal`].
pub const SCHEMA: &str = "keyferry.dev/rehearsal/v1";

/// What is rehearsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "kind"
)]
pub enum Event {
    /// No apiserver of the hub answers.
    HubOutage {
        /// For how long; `None` if that is not known.
        #[serde(rename = "lastsSeconds", serialize_with = "as_optional_seconds")]
        lasts: Option<Duration>,
    },
    /// The hub gets a new signing key.
    KeyRotation {
        /// In which order it is published and signs.
        order: RotationOrder,
    },
    /// The hub's apiservers drop the public part of a key.
    RemoveKey {
        /// The key's kid.
        kid: ForeignText,
    },
    /// The discovery documents are served with a certificate of another CA.
    DiscoveryAuthorityChange,
    /// A target's apiserver gets a certificate of another CA.
    TargetAuthorityChange {
        /// The target.
        target: ObjectName,
    },
    /// `keyferry revoke`.
    RevokeKey {
        /// The key's kid.
        kid: ForeignText,
    },
    /// No replica of Keyferry runs.
    KeyferryOutage {
        /// For how long; `None` if that is not known.
        #[serde(rename = "lastsSeconds", serialize_with = "as_optional_seconds")]
        lasts: Option<Duration>,
    },
}

/// The order of a key rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RotationOrder {
    /// The public part is published, and signs once it is active.
    PublishFirst,
    /// The hub signs with a key that was never published.
    SignAtOnce,
}

/// What the facts do not say about an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    /// `discovery.maxAge`.
    #[serde(rename = "maxAgeSeconds", serialize_with = "as_seconds")]
    pub max_age: Duration,
    /// `maxStaleAuthorization`.
    #[serde(rename = "maxStaleAuthorizationSeconds", serialize_with = "as_seconds")]
    pub max_stale_authorization: Duration,
    /// Whether replicas have a `--state-dir`; `None` if that is not known.
    pub state_dir: Option<bool>,
    /// How many replicas run.
    pub replicas: u16,
    /// When each target last fetched the keys, where that was read.
    pub fetched_at: BTreeMap<ObjectName, Timestamp>,
}

impl Default for Parameters {
    /// The defaults of the configuration, and two replicas.
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(60),
            max_stale_authorization: Duration::from_secs(300),
            state_dir: None,
            replicas: 2,
            fetched_at: BTreeMap::new(),
        }
    }
}

/// What is predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was rehearsed.
    pub event: Event,
    /// When it begins.
    pub at: Timestamp,
    /// When the facts were judged.
    pub judged_at: Timestamp,
    /// What the facts do not say, as it was given.
    pub parameters: Parameters,
    /// The answer in one sentence.
    pub answer: String,
    /// Who is refused, the earliest first.
    pub refusals: Vec<Refusal>,
    /// What happens beside refusals, the earliest first.
    pub milestones: Vec<Milestone>,
    /// What happens only if something else does.
    pub branches: Vec<Branch>,
    /// From when something costs nothing; `None` if no moment is known.
    pub earliest_safe: Option<SafeMoment>,
    /// What the prediction takes for granted.
    pub assumptions: Vec<String>,
    /// What the facts do not decide.
    pub undetermined: Vec<Undetermined>,
    /// What to do, in order.
    pub runbook: Vec<Step>,
    /// What was not readable.
    pub gaps: Vec<Gap>,
}

impl Rehearsal {
    /// Whether the facts leave a part of the answer open.
    pub fn is_undetermined(&self) -> bool {
        !self.undetermined.is_empty()
    }
}

/// Calls that are refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Who calls.
    pub caller: CallerClass,
    /// The access; `None` for every access.
    #[serde(serialize_with = "as_optional_text")]
    pub access: Option<AccessName>,
    /// The target; `None` if Keyferry or the hub refuses, or every target does.
    pub target: Option<ObjectName>,
    /// The reason code, as in the answer or as `explain` knows it.
    pub reason: &'static str,
    /// Why, in one sentence.
    pub why: String,
    /// When every such call is refused; `None` if no moment is certain.
    pub certain: Option<Window>,
    /// When such a call may be refused. It contains `certain`.
    pub possible: Window,
}

/// Who calls, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CallerClass {
    /// A caller of the token API that the hub has not confirmed, or for another access.
    UnconfirmedCaller,
    /// A caller of the token API that has called at least every 10 s.
    ConfirmedCaller,
    /// A caller of the token API for which no token is cached.
    CallerWithoutToken,
    /// Every caller of the token API.
    AnyCaller,
    /// A reader of a delivered object, which uses the token or the CA in it.
    ObjectReader,
    /// A client that mints by the hub itself, such as Flux with `provider: generic`.
    OwnMinter,
    /// A client with a kubeconfig or token that it fetched before.
    KeptCopy,
}

/// Something that happens between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Milestone {
    /// What.
    pub event: String,
    /// The target that it concerns.
    pub target: Option<ObjectName>,
    /// The earliest moment.
    pub earliest: Timestamp,
    /// The latest moment; `None` if nothing bounds it.
    pub latest: Option<Timestamp>,
}

/// A consequence that depends on something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// The condition, without `if`.
    pub condition: String,
    /// What follows.
    pub consequence: String,
}

/// From when a step costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SafeMoment {
    /// The moment.
    pub at: Timestamp,
    /// The step that is safe then.
    pub step: String,
}

/// A question that the facts do not decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Undetermined {
    /// The question.
    pub question: String,
    /// Why it is open.
    pub why: String,
    /// What would decide it.
    pub fix: String,
}

/// One step of a runbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What to do.
    pub action: String,
    /// The command, if it is one.
    pub command: Option<String>,
    /// What is seen afterwards.
    pub expect: String,
}

/// Predicts what an event costs that begins at `at`.
pub fn rehearse(fleet: &Fleet, event: &Event, parameters: &Parameters, at: Timestamp) -> Rehearsal {
    let scene = Scene {
        fleet,
        parameters,
        at,
    };
    let draft = match event {
        Event::HubOutage { lasts } => outage::rehearse_hub_outage(&scene, *lasts),
        Event::KeyferryOutage { lasts } => outage::rehearse_keyferry_outage(&scene, *lasts),
        Event::KeyRotation {
            order: RotationOrder::PublishFirst,
        } => key_rotation::rehearse_publishing_first(&scene),
        Event::KeyRotation {
            order: RotationOrder::SignAtOnce,
        } => key_rotation::rehearse_signing_at_once(&scene),
        Event::RemoveKey { kid } => key_removal::rehearse_key_removal(&scene, kid),
        Event::RevokeKey { kid } => key_revocation::rehearse_key_revocation(&scene, kid),
        Event::DiscoveryAuthorityChange => authority_change::rehearse_discovery_change(&scene),
        Event::TargetAuthorityChange { target } => {
            authority_change::rehearse_target_change(&scene, target)
        }
    };
    draft.into_rehearsal(&scene, event)
}

fn as_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn as_optional_seconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.serialize_some(&duration.as_secs()),
        None => serializer.serialize_none(),
    }
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn as_optional_text<S: Serializer>(
    name: &Option<AccessName>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => serializer.collect_str(name),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests;
