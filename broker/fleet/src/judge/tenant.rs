//! The namespaces with accesses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};

use super::next_delivered_end;
use crate::facts::{AccessFacts, Health, TenantFacts};

/// Sums up the accesses of each namespace.
pub(super) fn tenants(accesses: &[AccessFacts], now: Timestamp) -> Vec<TenantFacts> {
    let mut by_namespace: BTreeMap<&Namespace, Vec<&AccessFacts>> = BTreeMap::new();
    for access in accesses {
        by_namespace
            .entry(&access.name.namespace)
            .or_default()
            .push(access);
    }
    let tenant = |(namespace, accesses): (&Namespace, Vec<&AccessFacts>)| {
        let names = |name: fn(&AccessFacts) -> &ObjectName| {
            let names: BTreeSet<&ObjectName> = accesses.iter().map(|it| name(it)).collect();
            names.into_iter().cloned().collect()
        };
        TenantFacts {
            namespace: namespace.clone(),
            health: accesses
                .iter()
                .map(|access| access.health)
                .min()
                .unwrap_or(Health::Unknown),
            targets: names(|access| &access.target),
            service_accounts: names(|access| &access.service_account),
            accesses: accesses.len(),
            next_ending: accesses
                .iter()
                .filter_map(|access| next_delivered_end(access, now))
                .min(),
        }
    };
    by_namespace.into_iter().map(tenant).collect()
}
