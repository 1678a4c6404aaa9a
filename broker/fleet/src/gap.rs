//! What could not be read, and what would change that.

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{Namespace, ObjectName};
use serde::Serialize;

/// A list that is missing from a reading, so that nothing may be concluded from its absence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The resource in the plural, as in a Role, such as `targetclusters.keyferry.dev`.
    pub resource: String,
    /// The namespace, if only its part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The target whose list it is; `None` for the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectName>,
    /// Why it is missing.
    pub cause: GapCause,
    /// The server's or the reader's message.
    pub message: ForeignText,
    /// What a reader of the facts cannot see because of it, such as "when delivered tokens end".
    pub hides: String,
    /// What to do, such as the Role that would allow the list.
    pub fix: String,
}

/// Why a list is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum GapCause {
    /// The apiserver refused it to this user.
    Refused,
    /// The folder has no file with it.
    Absent,
    /// The file or the answer ended before its end, or has more than the limit.
    Cut,
    /// The server did not answer, or answered something that cannot be read.
    Failed,
}

/// The resource of TargetClusters in a [`Gap`].
pub const TARGETS: &str = "targetclusters.keyferry.dev";
/// The resource of TargetAccesses in a [`Gap`].
pub const ACCESSES: &str = "targetaccesses.keyferry.dev";
/// The resource of the key journal in a [`Gap`].
pub const KEY_JOURNAL: &str = "secrets";
/// The resource of the audit log in a [`Gap`].
pub const AUDIT_LOG: &str = "pods/log";
/// The resource of what a target shows of its trust, in a [`Gap`].
const TARGET_TRUST: &str = "target";

impl Gap {
    /// A list of TargetClusters that is missing, or not whole.
    pub fn of_targets(cause: GapCause, message: &str) -> Self {
        Self {
            resource: TARGETS.to_owned(),
            namespace: None,
            target: None,
            cause,
            message: ForeignText::new(message),
            hides: "targets without an access, and addresses, CAs and rules of the others".to_owned(),
            fix: match cause {
                GapCause::Refused => "ask for list on targetclusters.keyferry.dev, which ClusterRole \
                                      keyferry-platform-admin has, or show your own namespace with -n"
                    .to_owned(),
                _ => fix_of_list(cause, "targetclusters"),
            },
        }
    }

    /// A list of TargetAccesses that is missing, or not whole.
    pub fn of_accesses(cause: GapCause, namespace: Option<Namespace>, message: &str) -> Self {
        let fix = match (cause, &namespace) {
            (GapCause::Refused, Some(namespace)) => format!(
                "ask for list on targetaccesses.keyferry.dev in {namespace}, which ClusterRole \
                 keyferry-view has"
            ),
            (GapCause::Refused, None) => "ask for list on targetaccesses.keyferry.dev, which \
                                          ClusterRole keyferry-platform-admin has, or show your own \
                                          namespace with -n"
                .to_owned(),
            _ => fix_of_list(cause, "targetaccesses -A"),
        };
        Self {
            resource: ACCESSES.to_owned(),
            namespace,
            target: None,
            cause,
            message: ForeignText::new(message),
            hides: "accesses, tenants and when delivered tokens end".to_owned(),
            fix,
        }
    }

    /// The key journal, which was not read.
    pub fn of_keys(cause: GapCause, message: &str) -> Self {
        Self {
            resource: KEY_JOURNAL.to_owned(),
            namespace: None,
            target: None,
            cause,
            message: ForeignText::new(message),
            hides: "when keys were published and may be removed".to_owned(),
            fix: "give --keys FILE with what keyferry keys -o json prints; that needs get on Secrets \
                  keyferry-keys and keyferry-seal in Keyferry's namespace"
                .to_owned(),
        }
    }

    /// The audit log, which was not read.
    pub fn of_audit(cause: GapCause, message: &str) -> Self {
        Self {
            resource: AUDIT_LOG.to_owned(),
            namespace: None,
            target: None,
            cause,
            message: ForeignText::new(message),
            hides: "requests that were refused".to_owned(),
            fix: "give --audit FILE with Keyferry's audit log".to_owned(),
        }
    }

    /// The trust of a target that was asked for it, and did not show it. `hides` names what it did not
    /// show.
    pub fn of_asked_target(target: &ObjectName, hides: &str, message: &str, fix: &str) -> Self {
        Self {
            resource: TARGET_TRUST.to_owned(),
            namespace: None,
            target: Some(target.clone()),
            cause: GapCause::Failed,
            message: ForeignText::new(message),
            hides: format!("{hides} of target {target}"),
            fix: fix.to_owned(),
        }
    }

    /// Whether a target was asked for its trust and did not show it.
    pub fn is_of_asked_target(&self) -> bool {
        self.resource == TARGET_TRUST
    }

    /// Whether conclusions about targets and accesses depend on it.
    pub fn is_of_objects(&self) -> bool {
        self.resource == TARGETS || self.resource == ACCESSES
    }
}

fn fix_of_list(cause: GapCause, list: &str) -> String {
    match cause {
        GapCause::Refused | GapCause::Failed => {
            "try again, and if it lasts, look at the hub's apiserver".to_owned()
        }
        GapCause::Absent => format!(
            "add hub/{}.yaml: kubectl get {list} -o yaml",
            list.split(' ').next().unwrap_or(list)
        ),
        GapCause::Cut => format!("list again: kubectl get {list} -o yaml"),
    }
}
