//! Finds a policy's targets by their DNS names, and the accesses of each target. A policy has one
//! index, so that a request does not search 10,000 targets.

use std::collections::HashMap;

use keyferry_api::config::Policy;
use keyferry_api::name::{AccessName, ClusterDns, ObjectName};

use super::error::InputsError;

/// The index of one policy.
#[derive(Debug, Default)]
pub struct FleetIndex {
    by_dns: HashMap<ClusterDns, Vec<ObjectName>>,
    accesses: HashMap<ObjectName, Vec<AccessName>>,
}

impl FleetIndex {
    /// Makes the index of a policy.
    pub fn of(policy: &Policy) -> Self {
        let mut index = Self::default();
        for target in policy.targets.values() {
            if let Some(identity) = &target.identity {
                let owners = index
                    .by_dns
                    .entry(identity.cluster_dns.clone())
                    .or_default();
                owners.push(target.name.clone());
            }
        }
        for access in policy.accesses.values() {
            let of_target = index.accesses.entry(access.target.clone()).or_default();
            of_target.push(access.name.clone());
        }
        index
    }

    /// The target with this DNS name, or `None`.
    ///
    /// # Errors
    /// [`InputsError::IdentityConflict`]: several targets have it. None of them is preferred:
    /// nothing proves which one the name belongs to, and the wrong inputs would configure a cluster
    /// as another.
    pub fn target(&self, dns: &ClusterDns) -> Result<Option<&ObjectName>, InputsError> {
        match self.by_dns.get(dns).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([target]) => Ok(Some(target)),
            Some(_) => Err(InputsError::IdentityConflict),
        }
    }

    /// Whether several targets have this DNS name.
    pub fn conflicts(&self, dns: &ClusterDns) -> bool {
        self.target(dns).is_err()
    }

    /// The accesses that name a target, whether it allows them or not.
    pub fn accesses(&self, target: &ObjectName) -> &[AccessName] {
        self.accesses.get(target).map_or(&[], Vec::as_slice)
    }
}
