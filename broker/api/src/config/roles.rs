//! Resolves the roles of a policy: each takes its cluster from its base.

use std::collections::BTreeSet;

use super::document::Document;
use super::mistake::Mistake;
use super::target::{RoleFault, TargetRole, check_base};
use super::{Policy, TargetCluster};
use crate::name::ObjectName;
use crate::reason::Reason;

impl Policy {
    /// Replaces each role by what it is at its base, and removes those that cannot be used.
    /// `draining_base` finds a base that is no longer in the policy but still drains.
    pub(super) fn resolve_roles(
        &mut self,
        draining_base: impl Fn(&ObjectName) -> Option<TargetCluster>,
    ) -> Vec<(ObjectName, RoleFault)> {
        let resolve = |target: &TargetCluster| {
            let role = target.role.as_ref()?;
            let listed_base = self.targets.get(&role.same_as).cloned();
            let base = listed_base.or_else(|| draining_base(&role.same_as));
            Some((target.name.clone(), resolve_role(target, role, base)))
        };
        // All before the first is replaced: a role of a role is refused in any order.
        let resolved: Vec<_> = self.targets.values().filter_map(resolve).collect();
        let mut faults = Vec::new();
        for (name, outcome) in resolved {
            match outcome {
                Ok(target) => drop(self.targets.insert(name, target)),
                Err(fault) => {
                    self.targets.remove(&name);
                    faults.push((name, fault));
                }
            }
        }
        faults
    }
}

fn resolve_role(
    target: &TargetCluster,
    role: &TargetRole,
    base: Option<TargetCluster>,
) -> Result<TargetCluster, RoleFault> {
    let base = base.ok_or_else(|| RoleFault {
        reason: Reason::BaseTargetMissing,
        path: "spec.sameAs",
        problem: format!(
            "TargetCluster/{} does not exist, is being deleted, or cannot be used itself",
            role.same_as
        ),
        fix: "create or correct it, or delete this role".to_owned(),
    })?;
    check_base(target, role, &base)?;
    Ok(target.at_base(&base))
}

/// Resolves the roles of a file. A base with mistakes of its own is not missing.
pub(super) fn resolve_roles_in_file(
    policy: &mut Policy,
    documents: &[Document],
    mistakes: &mut Vec<Mistake>,
) {
    let written: BTreeSet<&str> = documents
        .iter()
        .filter(|document| document.kind() == "TargetCluster")
        .map(|document| document.text("/metadata/name"))
        .collect();
    let faults = policy.resolve_roles(|_| None);
    for document in documents {
        let name = document.text("/metadata/name");
        let fault = faults.iter().find(|(role, _)| role.as_str() == name);
        let Some((_, fault)) = fault.filter(|_| document.kind() == "TargetCluster") else {
            continue;
        };
        let is_written = written.contains(document.text("/spec/sameAs"));
        if fault.reason == Reason::BaseTargetMissing && is_written {
            continue;
        }
        mistakes.push(document.mistake(fault.path, fault.problem.as_str(), fault.fix.as_str()));
    }
}
