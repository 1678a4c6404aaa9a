//! Prefixes that let an issuer name the target's own users or groups.

use keyferry_cel_kubernetes::{Input, UserInfo};

use super::{Finding, Severity, make_finding};
use crate::Code;
use crate::config::PrefixedClaimOrExpression;
use crate::validate::Authenticator;

/// Users that have rights in every cluster, or in most.
const PRIVILEGED_USERS: [&str; 3] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:default",
    "kubernetes-admin",
];
/// Groups that have rights in every cluster, or in most.
const PRIVILEGED_GROUPS: [&str; 3] = ["system:masters", "system:nodes", "kubeadm:cluster-admins"];

/// The mapping that a prefix belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Users,
    Groups,
}

/// Finds an empty prefix and one of the target's own names. `authenticator` is the compiled entry,
/// if the file is valid.
pub(super) fn find_prefixes(
    mapping: &PrefixedClaimOrExpression,
    names: Names,
    authenticator: Option<&Authenticator>,
    path: &str,
    findings: &mut Vec<Finding>,
) {
    if !mapping.claim.is_empty() && mapping.expression.is_empty() {
        let path = format!("{path}.prefix");
        match mapping.prefix.as_deref() {
            Some("") => findings.push(empty_prefix_finding(names, authenticator, &path)),
            Some(prefix) if prefix.starts_with("system:") => findings.push(system_finding(&path)),
            _ => {}
        }
        return;
    }
    let path = format!("{path}.expression");
    let expression = mapping.expression.trim();
    if expression.starts_with("'system:") || expression.starts_with("\"system:") {
        findings.push(system_finding(&path));
    }
    // A bare claim has no prefix.
    let bare = expression.strip_prefix("claims.").is_some_and(|name| {
        !name.is_empty()
            && name
                .chars()
                .all(|character| character.is_alphanumeric() || character == '_')
    });
    if bare {
        findings.push(empty_prefix_finding(names, authenticator, &path));
    }
}

fn system_finding(path: &str) -> Finding {
    let code = Code::SystemPrefix;
    make_finding(code, Severity::Error, path, code.cause())
}

/// Says which names of the target the issuer can give, as far as the user rules let them through.
fn empty_prefix_finding(
    names: Names,
    authenticator: Option<&Authenticator>,
    path: &str,
) -> Finding {
    let (kind, known) = match names {
        Names::Users => ("users", PRIVILEGED_USERS),
        Names::Groups => ("groups", PRIVILEGED_GROUPS),
    };
    let open: Vec<&str> = known
        .into_iter()
        .filter(|name| authenticator.is_none_or(|one| !is_excluded(one, names, name)))
        .collect();
    let (severity, message) = if open.is_empty() {
        (
            Severity::Warning,
            format!(
                "A prefix is empty. The user rules exclude the {kind} that clusters have by \
                 default, but not those of this cluster's own RBAC."
            ),
        )
    } else if open.len() == known.len() {
        (
            Severity::Error,
            format!(
                "A prefix is empty, so the issuer can name any of the target's {kind}, including \
                 system ones like {}.",
                known[0]
            ),
        )
    } else {
        (
            Severity::Error,
            format!(
                "A prefix is empty, so the issuer can name {kind} of the target that the user \
                 rules let through, like {}.",
                open.join(", ")
            ),
        )
    };
    make_finding(Code::EmptyPrefix, severity, path, message)
}

/// Whether a user rule surely refuses a user with this name or group.
fn is_excluded(authenticator: &Authenticator, names: Names, name: &str) -> bool {
    let user = |username: &str, groups: &[&str]| UserInfo {
        username: username.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    authenticator.user_rules.iter().any(|(rule, _)| {
        let says = |info: &UserInfo| match rule.evaluate(Input::User(info)) {
            Ok(value) => value.as_bool(),
            Err(_) => None,
        };
        match names {
            // A rule about something else too may only be false because of that.
            Names::Users => {
                let others = ["user.groups", "user.extra", "user.uid"];
                !others.iter().any(|other| rule.text().contains(other))
                    && says(&user(name, &[])) == Some(false)
            }
            // The issuer gives as many groups as it likes, so only a rule that one group more makes
            // false excludes that group.
            Names::Groups => {
                says(&user("someone", &["a"])) == Some(true)
                    && says(&user("someone", &["a", name])) == Some(false)
            }
        }
    })
}
