//! What a prediction starts from, and what it asks of the facts.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::lifetime;
use keyferry_api::name::ObjectName;

use super::Parameters;
use super::timing::replica_lag;
use super::window::after;
use crate::facts::{AccessFacts, Fleet, KeyLife, KeyState, TargetFacts};
use crate::gap::Gap;

/// The facts, the parameters and the begin of an event.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) parameters: &'a Parameters,
    pub(super) at: Timestamp,
}

impl<'a> Scene<'a> {
    /// The moment `later` after the begin.
    pub(super) fn after(&self, later: Duration) -> Timestamp {
        after(self.at, later)
    }

    /// How long a key must have been published before it signs.
    pub(super) fn activation_delay(&self) -> Duration {
        lifetime::activation_delay(self.parameters.max_age)
    }

    /// How long the other replicas may lag behind the first.
    pub(super) fn replica_lag(&self) -> Duration {
        replica_lag(self.parameters.replicas)
    }

    /// The key with this kid.
    pub(super) fn key(&self, kid: &ForeignText) -> Option<&'a KeyLife> {
        self.fleet.keys.keys.iter().find(|key| key.kid == *kid)
    }

    /// The newest key that was seen to sign.
    pub(super) fn signing_key(&self) -> Option<&'a KeyLife> {
        self.fleet
            .keys
            .keys
            .iter()
            .find(|key| key.state == KeyState::Signs)
    }

    /// A published key that was not seen to sign. The hub may sign with it already.
    pub(super) fn unseen_key(&self) -> Option<&'a KeyLife> {
        let is_unseen = |key: &&KeyLife| {
            let is_published = matches!(key.state, KeyState::Activating | KeyState::Active);
            is_published && key.withdrawn_at.is_none()
        };
        self.fleet.keys.keys.iter().find(is_unseen)
    }

    /// The target with this name.
    pub(super) fn target(&self, name: &ObjectName) -> Option<&'a TargetFacts> {
        self.fleet
            .targets
            .iter()
            .find(|target| target.name == *name)
    }

    /// The targets that fetch keys from Keyferry and take tokens.
    pub(super) fn trusting_targets(&self) -> impl Iterator<Item = &'a TargetFacts> {
        self.fleet
            .targets
            .iter()
            .filter(|target| !target.hub && !target.relying_party)
    }

    /// Whether a target trusts the hub's issuer, and not one that Keyferry manages. A target whose
    /// issuer is not known counts as one that does.
    pub(super) fn trusts_hub_keys(&self, target: &TargetFacts) -> bool {
        match (&target.issuer, &self.fleet.keys.issuer) {
            (Some(issuer), Some(of_hub)) => issuer == of_hub,
            _ => true,
        }
    }

    /// The accesses whose tokens a client mints by itself, by a delivered `FluxConfigMap`.
    pub(super) fn own_minters(&self) -> impl Iterator<Item = &'a AccessFacts> {
        self.fleet.accesses.iter().filter(|access| {
            !access.suspended
                && access
                    .deliveries
                    .iter()
                    .any(|delivery| delivery.delivery_type == *"FluxConfigMap")
        })
    }

    /// The gaps in one list of the hub, such as `targetaccesses`.
    pub(super) fn gaps_in(&self, resource: &'static str) -> impl Iterator<Item = &'a Gap> {
        self.fleet.gaps.iter().filter(move |gap| {
            gap.target.is_none() && gap.resource.split('.').next() == Some(resource)
        })
    }
}
