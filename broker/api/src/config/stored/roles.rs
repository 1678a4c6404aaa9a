//! Roles of the hub: what they take from their bases, and which of them cannot be used.

use super::{Assembled, ObjectFault, Record, StoredObjects, TargetCluster};
use crate::config::document::Document;
use crate::name::ObjectName;
use crate::reason::Reason;

/// Returns `sameAs` and `role` as written, if both are.
pub(super) fn written_role(document: &Document) -> Option<(String, String)> {
    let text = |pointer| Some(document.text(pointer).to_owned()).filter(|text| !text.is_empty());
    Some((text("/spec/sameAs")?, text("/spec/role")?))
}

/// Returns the fault of a role whose name an older one has at the same cluster. Their tokens would
/// be the same user there, so one of them could use what the other was granted.
pub(super) fn conflict(record: &Record) -> ObjectFault {
    ObjectFault {
        reason: Reason::RoleConflict,
        message: "an older TargetCluster is this role of the target that sameAs names; nothing is \
                  minted for this one until the older one is deleted, or this one is created again \
                  with another role"
            .to_owned(),
        generation: record.spec(),
    }
}

impl StoredObjects {
    /// Replaces each role by what it is at its base, and excludes those that cannot be used.
    pub(super) fn assemble_roles(&self, assembled: &mut Assembled) {
        for (name, fault) in assembled
            .policy
            .resolve_roles(|base| self.draining_base(base))
        {
            let Some(stored) = self.targets.get(&name) else {
                continue;
            };
            let fault = ObjectFault {
                reason: fault.reason,
                message: format!("{}: {}; {}", fault.path, fault.problem, fault.fix),
                generation: stored.record.spec(),
            };
            assembled.targets.insert(name, fault);
        }
    }

    /// A base that drains suspends its roles: nothing is minted for them any more, and what was
    /// delivered for them stays, as it does for the base.
    fn draining_base(&self, name: &ObjectName) -> Option<TargetCluster> {
        let mut base = self.draining(name)?.target;
        base.suspend = true;
        Some(base)
    }
}
