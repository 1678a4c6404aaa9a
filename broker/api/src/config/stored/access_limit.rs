//! How many accesses of one namespace to one target count.
//!
//! All accesses to a target are in one list of fleet inputs, which has a limit. Without a limit for
//! each namespace, a single tenant could fill the list for all others.
//!
//! A configuration file has no such limit. One platform admin writes all accesses in it, and a file
//! with more of them would be refused as a whole, also for the tenants that have few.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

use super::{ObjectFault, Record, StoredAccess};
use crate::name::{AccessName, Namespace, ObjectName};
use crate::reason::Reason;

/// The most accesses of one namespace to one target that count.
pub const MAX_ACCESSES: usize = 256;

/// Finds the accesses above the limit. The oldest count (by creation time, then name), so that a
/// new one never displaces one in use. One that is being deleted does not count.
pub(super) fn surplus(accesses: &BTreeMap<AccessName, StoredAccess>) -> HashSet<AccessName> {
    let mut of_target: HashMap<(&Namespace, &ObjectName), Vec<(Timestamp, &AccessName)>> =
        HashMap::new();
    for (name, stored) in accesses {
        if let (Ok(access), None) = (&stored.read, stored.record.deleting) {
            of_target
                .entry((&name.namespace, &access.target))
                .or_default()
                .push((stored.record.created, name));
        }
    }
    let mut surplus = HashSet::new();
    for mut group in of_target.into_values() {
        if group.len() > MAX_ACCESSES {
            group.sort_unstable();
            surplus.extend(
                group
                    .into_iter()
                    .skip(MAX_ACCESSES)
                    .map(|(_, name)| name.clone()),
            );
        }
    }
    surplus
}

/// The fault of an access above the limit.
pub(super) fn fault(target: &ObjectName, record: &Record) -> ObjectFault {
    ObjectFault {
        reason: Reason::TooManyAccesses,
        message: format!(
            "the namespace has {MAX_ACCESSES} older accesses to TargetCluster {target}, and no \
             more count; delete some of them"
        ),
        generation: record.spec(),
    }
}
