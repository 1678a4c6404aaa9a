//! Impersonation in its modes. The embedded target also answers a matrix that real apiservers
//! answered, through the same code.

use super::{policy_of, request, user};
use crate::{Impersonation, ImpersonationModes, WantedUser};

const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: legacy}
rules:
- {apiGroups: [''], resources: [users], resourceNames: [jane], verbs: [impersonate]}
- {apiGroups: [''], resources: [groups], resourceNames: [crew], verbs: [impersonate]}
- {apiGroups: [''], resources: [serviceaccounts], resourceNames: [app], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: [uids], resourceNames: ['7'], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: [userextras/scopes], resourceNames: [read], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: legacy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: legacy}
subjects: [{kind: User, name: proxy}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: constrained}
rules:
- {apiGroups: [authentication.k8s.io], resources: [serviceaccounts], resourceNames: [app], verbs: ['impersonate:serviceaccount']}
- {apiGroups: [''], resources: [pods], verbs: ['impersonate-on:serviceaccount:list']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: constrained}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: constrained}
subjects: [{kind: User, name: agent}]
";

/// `NAME[+GROUP]…[#UID][?KEY=VALUE]`
fn wanted(text: &str) -> WantedUser {
    let (text, extra) = text.split_once('?').unwrap_or((text, ""));
    let (text, uid) = text.split_once('#').unwrap_or((text, ""));
    let crate::User { name, groups, .. } = crate::User { ..user(text) };
    let extra = extra.split_once('=').into_iter();
    WantedUser {
        name,
        uid: uid.to_owned(),
        groups,
        extra: extra
            .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]))
            .collect(),
    }
}

#[test]
fn each_part_of_the_wanted_user_needs_its_own_right() {
    let policy = policy_of(RIGHTS);
    let rows = [
        ("proxy", "jane", "list pods"),
        ("proxy", "joe", "list pods"),
        ("proxy", "jane+crew", "list pods"),
        ("proxy", "jane+crew+system:masters", "list pods"),
        ("proxy", "jane#7", "list pods"),
        ("proxy", "jane#8", "list pods"),
        ("proxy", "jane?scopes=read", "list pods"),
        ("proxy", "jane?scopes=write", "list pods"),
        ("proxy", "system:serviceaccount:shop:app", "list pods"),
        ("proxy", "system:serviceaccount:shop:ci", "list pods"),
        ("agent", "system:serviceaccount:shop:app", "list pods"),
        ("agent", "system:serviceaccount:shop:app", "delete pods"),
        ("agent", "system:serviceaccount:shop:app+crew", "list pods"),
        ("agent", "jane", "list pods"),
        ("root+system:masters", "joe+system:masters", "list pods"),
        ("root+system:masters", "system:anonymous", "list pods"),
        ("jim", "system:node:n1", "list pods"),
    ];
    let outcomes: String = rows
        .iter()
        .map(|&(requestor, name, asked)| {
            let decide = |modes| {
                let decided = Impersonation {
                    policy: &policy,
                    modes,
                    requestor: &user(requestor),
                    requestor_node: None,
                    wanted: &wanted(name),
                    request: &request(asked),
                }
                .decide();
                match decided {
                    Ok(by) => format!(
                        "{} with {} by {} ways",
                        by.mode.name(),
                        by.user.groups.join(","),
                        by.ways.len()
                    ),
                    Err(refusal) => format!("needs {}", refusal.attributes),
                }
            };
            let legacy = decide(ImpersonationModes::Legacy);
            let constrained = decide(ImpersonationModes::Constrained);
            format!("{requestor} as {name}, {asked}\n  1.35: {legacy}\n  1.36: {constrained}\n")
        })
        .collect();
    insta::assert_snapshot!(outcomes);
}
