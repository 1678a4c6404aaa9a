//! The audit log of a control plane.

use std::path::Path;

use serde_json::Value;

use super::{ControlPlane, ControlPlaneError, ControlPlaneSpec};
use crate::apiserver::AuditFiles;

impl ControlPlane {
    /// The path of the audit log, if it writes one.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit.as_ref().map(|audit| audit.log.as_path())
    }

    /// Every audit event so far (audit.k8s.io/v1 Event), oldest first. kube-apiserver writes the
    /// log before it responds, so every request that a client saw answered is in it.
    pub fn audit_events(&self) -> Result<Vec<Value>, ControlPlaneError> {
        let Some(audit) = &self.audit else {
            return Err(ControlPlaneError::NoAuditLog {
                name: self.spec.name.clone(),
            });
        };
        let text = match std::fs::read_to_string(&audit.log) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ControlPlaneError::file(&audit.log, source)),
        };
        // A last line without a newline is still being written.
        let complete = text.rfind('\n').map_or("", |end| text.split_at(end).0);
        complete
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| ControlPlaneError::file(&audit.log, error.into()))
    }
}

pub(super) fn write_policy(
    spec: &ControlPlaneSpec,
    folder: &Path,
) -> Result<Option<AuditFiles>, ControlPlaneError> {
    if !spec.audit_log {
        return Ok(None);
    }
    let files = AuditFiles {
        log: folder.join("audit.jsonl"),
        policy: folder.join("audit-policy.yaml"),
    };
    std::fs::write(&files.policy, AuditFiles::POLICY)
        .map_err(|source| ControlPlaneError::file(&files.policy, source))?;
    Ok(Some(files))
}
