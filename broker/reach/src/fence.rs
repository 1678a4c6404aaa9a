//! The admission policies that stand in the way, as far as they are the shipped ones.

use std::collections::BTreeSet;

use keyferry_core::admission_policy::{
    AUDIENCE_POLICY, AUTHOR_POLICY, AdmissionPolicy, AdmissionPolicyGap, HubSite, KEPT_POLICY,
    LABELS_POLICY, OWN_ACCOUNT, PAIRING_CLOSED, PAIRING_POLICY, RETARGET_POLICY,
};
use serde_json::Value;

use crate::doubt::Doubt;
use crate::list::ListKind;
use crate::world::Hub;

const CLOSED_LABEL: &str = "access.keyferry.dev/closed";

/// Whether an admission policy is on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FenceState {
    AsShipped,
    /// It, or its binding, does not exist, so that it refuses nothing.
    Absent,
    Unknown(Doubt),
}

/// The policies that answers depend on.
#[derive(Debug)]
pub(crate) struct Fences<'w> {
    hub: &'w Hub,
    pairing: FenceState,
    closed: FenceState,
    pub(crate) author: FenceState,
    pub(crate) labels: FenceState,
    pub(crate) audience: FenceState,
    pub(crate) retarget: FenceState,
    pub(crate) kept: FenceState,
    pub(crate) own_account: FenceState,
    /// The audiences of the hub itself, as the policy lists them.
    pub(crate) hub_audiences: BTreeSet<String>,
}

/// What the hub does with a TokenRequest for an audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Issue {
    Passes,
    Refused(String),
    Unknown(Doubt),
}

impl<'w> Fences<'w> {
    pub(crate) fn new(hub: &'w Hub) -> Self {
        let state = |policy: &AdmissionPolicy| state_of(hub, policy);
        let pairing = object_of(
            hub,
            ListKind::AdmissionPolicies,
            PAIRING_POLICY.policy_name(),
        );
        Self {
            hub,
            pairing: state(&PAIRING_POLICY),
            closed: state(&PAIRING_CLOSED),
            author: state(&AUTHOR_POLICY),
            labels: state(&LABELS_POLICY),
            audience: state(&AUDIENCE_POLICY),
            retarget: state(&RETARGET_POLICY),
            kept: state(&KEPT_POLICY),
            own_account: state(&OWN_ACCOUNT),
            hub_audiences: PAIRING_POLICY
                .listed_hub_audiences(pairing)
                .unwrap_or_default(),
        }
    }

    /// Whether the account may get a token for the audience, by any caller.
    pub(crate) fn issue(&self, namespace: &str, account: &str, audience: &str) -> Issue {
        let pairs = self.hub.pairs.as_ref();
        let name = format!("{namespace}/{account}");
        let listed = pairs.and_then(|pairs| pairs.get(audience));
        if listed.is_some_and(|accounts| accounts.contains(&name)) {
            return Issue::Passes;
        }
        match (&self.pairing, pairs) {
            (FenceState::Absent, Some(_)) if self.closed == FenceState::Absent => Issue::Passes,
            (FenceState::Absent, _) => self.issue_in_closed(namespace, listed.is_some(), &name),
            (FenceState::Unknown(doubt), _) => Issue::Unknown(doubt.clone()),
            (FenceState::AsShipped, Some(_)) => {
                let is_free =
                    self.hub_audiences.contains(audience) || audience == self.hub.caller_audience;
                match listed {
                    Some(_) if !is_free => Issue::Refused(format!(
                        "admission policy keyferry-pairing: the AudiencePairing does not list \
                         {name} for this audience"
                    )),
                    _ => Issue::Passes,
                }
            }
            (FenceState::AsShipped, None) => self.issue_in_closed(namespace, false, &name),
        }
    }

    /// The accounts, as NAMESPACE/NAME, that alone may get a token for the audience; `None` if each
    /// account has to be asked about.
    pub(crate) fn listed(&self, audience: &str) -> Option<&'w BTreeSet<String>> {
        let is_free = self.hub_audiences.contains(audience) || audience == self.hub.caller_audience;
        if self.pairing != FenceState::AsShipped || is_free {
            return None;
        }
        self.hub.pairs.as_ref()?.get(audience)
    }

    /// Without the object, or with the binding of closed namespaces alone.
    fn issue_in_closed(&self, namespace: &str, is_listed: bool, name: &str) -> Issue {
        if self.hub.pairs.is_none() && !self.hub.lists.is_whole(ListKind::AudiencePairings) {
            return match self.pairing == FenceState::Absent && self.closed == FenceState::Absent {
                true => Issue::Passes,
                false => Issue::Unknown(Doubt::list(ListKind::AudiencePairings)),
            };
        }
        if self.closed == FenceState::Absent {
            return Issue::Passes;
        }
        let labels = self.hub.namespaces.get(namespace);
        let is_closed = match labels {
            Some(labels) => labels
                .get(CLOSED_LABEL)
                .is_some_and(|value| value == "true"),
            None if self.hub.lists.is_whole(ListKind::Namespaces) => false,
            None => return Issue::Unknown(Doubt::list(ListKind::Namespaces)),
        };
        match &self.closed {
            _ if !is_closed => Issue::Passes,
            FenceState::Unknown(doubt) => Issue::Unknown(doubt.clone()),
            _ if self.hub.pairs.is_some() && !is_listed => Issue::Passes,
            _ => Issue::Refused(format!(
                "admission policy keyferry-pairing-closed: nothing lists {name} for this audience"
            )),
        }
    }
}

fn state_of(hub: &Hub, policy: &AdmissionPolicy) -> FenceState {
    if hub.taken_policies.contains(policy.name()) {
        return FenceState::Absent;
    }
    let kinds = [
        (ListKind::AdmissionPolicies, policy.policy_name()),
        (ListKind::AdmissionPolicyBindings, policy.name()),
    ];
    for (kind, name) in kinds {
        let is_there = !object_of(hub, kind, name).is_null();
        if !is_there && hub.lists.is_whole(kind) {
            return FenceState::Absent;
        }
    }
    for (kind, name) in kinds {
        if object_of(hub, kind, name).is_null() {
            return FenceState::Unknown(Doubt::list(kind));
        }
    }
    let site = HubSite {
        namespace: hub.namespace.to_string(),
        username: hub.account.clone(),
        caller_audience: hub.caller_audience.clone(),
        ..HubSite::of_shipped_manifests()
    };
    let [(policies, policy_name), (bindings, binding_name)] = kinds;
    let found = policy.compare_with_shipped(
        object_of(hub, policies, policy_name),
        object_of(hub, bindings, binding_name),
        &site,
    );
    match found {
        Ok(()) => FenceState::AsShipped,
        Err(gap) => FenceState::Unknown(doubt_of(&gap)),
    }
}

fn doubt_of(gap: &AdmissionPolicyGap) -> Doubt {
    Doubt::fact(
        gap.to_string(),
        "apply what keyferry admission-policies prints",
    )
}

fn object_of<'w>(hub: &'w Hub, kind: ListKind, name: &str) -> &'w Value {
    const NONE: &Value = &Value::Null;
    hub.admission.get(&(kind, name.to_owned())).unwrap_or(NONE)
}
