//! The decision of the configuration alone, before the hub's live objects are checked.

use keyferry_api::config::{DeliveryType, NamespaceRule, Policy, TargetAccess, TargetCluster};

use crate::authorise;

/// Whether the configuration files allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticVerdict {
    /// An allow rule names its namespace and its ServiceAccount.
    Allowed,
    /// An allow rule names its ServiceAccount, and selects namespaces by labels that only the hub
    /// knows.
    ByNamespaceLabels,
    /// No allow rule matches.
    NotAllowed,
    /// Its target, or the access itself, is suspended.
    Suspended,
    /// Its target does not exist.
    NoSuchTarget,
}

impl StaticVerdict {
    /// Evaluates `policy` for `access`, delivered on request.
    pub fn of(policy: &Policy, access: &TargetAccess) -> Self {
        let Some(target) = policy.targets.get(&access.target) else {
            return Self::NoSuchTarget;
        };
        if policy.own_namespace.as_ref() == Some(&access.name.namespace) {
            return Self::NotAllowed;
        }
        match fitting_rule(target, access) {
            Some(_) if target.suspend || access.suspend => Self::Suspended,
            Some(verdict) => verdict,
            None => Self::NotAllowed,
        }
    }

    /// The text that is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "yes",
            Self::ByNamespaceLabels => "by namespace labels",
            Self::NotAllowed => "no",
            Self::Suspended => "suspended",
            Self::NoSuchTarget => "no such target",
        }
    }
}

fn fitting_rule(target: &TargetCluster, access: &TargetAccess) -> Option<StaticVerdict> {
    let on_request = [DeliveryType::HTTP, DeliveryType::Exec]
        .into_iter()
        .filter(|delivery| access.offers(*delivery));
    let verdicts = on_request.flat_map(|delivery| {
        target.allow.iter().filter_map(move |rule| {
            if !rule.service_accounts.contains(&access.service_account)
                || !rule.deliveries.contains(&delivery)
            {
                return None;
            }
            match &rule.namespaces {
                NamespaceRule::Named(names) => names
                    .contains(&access.name.namespace)
                    .then_some(StaticVerdict::Allowed),
                NamespaceRule::Selected(_) if authorise::is_system(&access.name.namespace) => None,
                NamespaceRule::Selected(_) => Some(StaticVerdict::ByNamespaceLabels),
            }
        })
    });
    verdicts.min_by_key(|verdict| *verdict != StaticVerdict::Allowed)
}
