//! Asks a target whether the user may impersonate a ServiceAccount: by the legacy right, or by
//! constrained impersonation (KEP-5284).

use keyferry_kube_authn::{Minor, impersonation, rights};

use crate::doctor::diagnosis::{Asked, Identity};
use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::resource_attributes::ResourceAttributes;
use crate::doctor::target_calls::TargetCalls;

/// What is asked about.
pub(crate) struct ImpersonationQuestion<'a> {
    /// The ServiceAccount's namespace at the target.
    pub(crate) namespace: &'a str,
    /// The ServiceAccount's name.
    pub(crate) name: &'a str,
    /// The target's release, if it is known.
    pub(crate) minor: Option<Minor>,
    /// The rights that the ServiceAccount needs. Empty means that none were named.
    pub(crate) needs: &'a [ResourceAttributes],
    /// The namespace in which rights are checked.
    pub(crate) target_namespace: Option<&'a str>,
}

/// The target's answer.
pub(crate) struct ImpersonationAnswer {
    /// Whether the user may impersonate the ServiceAccount.
    pub(crate) asked: Asked,
    /// Why the ServiceAccount's own rights cannot be asked about, if they cannot.
    pub(crate) rights_unknown: Option<String>,
}

impl From<Asked> for ImpersonationAnswer {
    fn from(asked: Asked) -> Self {
        Self {
            asked,
            rights_unknown: None,
        }
    }
}

impl ImpersonationQuestion<'_> {
    /// Asks for the legacy right first: with it, every request may impersonate.
    pub(crate) async fn ask(&self, calls: &TargetCalls) -> ImpersonationAnswer {
        let legacy = calls.allowed(&self.account("impersonate", ""), None).await;
        // 1.35 has the constrained right behind a feature gate that is off, and 1.34 has none.
        if matches!(legacy, Asked::Yes(_)) || self.minor.is_some_and(|minor| minor < Minor::V1_35) {
            return legacy.into();
        }
        let constrained = self.account(
            impersonation::IMPERSONATE_VERB,
            impersonation::AUTHENTICATION_GROUP,
        );
        match (calls.allowed(&constrained, None).await, legacy) {
            (Asked::Yes(granted), _) => self.constrained(calls, &granted).await,
            (Asked::No(also), Asked::No(first)) => Asked::No(format!("{first}, and {also}")).into(),
            (Asked::Unknown(why), _) | (_, Asked::Unknown(why)) => Asked::Unknown(why).into(),
            (_, legacy) => legacy.into(),
        }
    }

    /// Asks which requests may impersonate, now that the user may impersonate the ServiceAccount.
    async fn constrained(&self, calls: &TargetCalls, granted: &str) -> ImpersonationAnswer {
        // RBAC answers yes for any verb that a rule has, also where no release code asks for it.
        let counts = self
            .minor
            .is_some_and(|minor| minor >= impersonation::DEFAULT_SINCE);
        if !counts && !self.is_impersonated(calls).await {
            return Asked::Unknown(format!(
                "{granted}: a target counts this right from Kubernetes 1.36 on, or with the feature \
                 gate ConstrainedImpersonation; --kubernetes states the target's release"
            ))
            .into();
        }
        let mut checks = RequestChecks::default();
        for attributes in self.requests() {
            checks.add(calls.allowed(&attributes, None).await);
        }
        checks.discovery = calls
            .allowed_path(&impersonation::on_verb("get"), "/apis")
            .await;
        ImpersonationAnswer {
            asked: checks.conclude(granted, !self.needs.is_empty()),
            rights_unknown: self.rights_unknown(calls).await,
        }
    }

    /// Whether the target answers a review as the ServiceAccount, which proves that the right
    /// counts.
    async fn is_impersonated(&self, calls: &TargetCalls) -> bool {
        let user = ImpersonatedUser::service_account(self.namespace, self.name);
        calls.who(Some(&user)).await == Identity::Known(user.name)
    }

    /// The attributes of the second check: for the needed rights, or else for what Flux does, on
    /// every resource.
    fn requests(&self) -> Vec<ResourceAttributes> {
        if !self.needs.is_empty() {
            let on = |need: &ResourceAttributes| ResourceAttributes {
                verb: impersonation::on_verb(&need.verb),
                ..need.clone()
            };
            return self.needs.iter().map(on).collect();
        }
        let namespace = self.target_namespace.unwrap_or_default();
        rights::OBJECT_VERBS
            .map(|verb| ResourceAttributes {
                verb: impersonation::on_verb(verb),
                group: "*".to_owned(),
                resource: "*".to_owned(),
                namespace: namespace.to_owned(),
                ..ResourceAttributes::default()
            })
            .to_vec()
    }

    /// The ServiceAccount's own rights are asked about by a review that impersonates it, which
    /// needs the second right too.
    async fn rights_unknown(&self, calls: &TargetCalls) -> Option<String> {
        let resource = if self.needs.is_empty() {
            "selfsubjectrulesreviews"
        } else {
            "selfsubjectaccessreviews"
        };
        let attributes = ResourceAttributes {
            verb: impersonation::on_verb("create"),
            group: "authorization.k8s.io".to_owned(),
            resource: resource.to_owned(),
            ..ResourceAttributes::default()
        };
        match calls.allowed(&attributes, None).await {
            Asked::Yes(_) => None,
            _ => Some(format!(
                "the ServiceAccount's own rights were not checked: the user may not impersonate it \
                 for {resource}.authorization.k8s.io"
            )),
        }
    }

    fn account(&self, verb: &str, group: &str) -> ResourceAttributes {
        ResourceAttributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: "serviceaccounts".to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            ..ResourceAttributes::default()
        }
    }
}

/// The answers about the requests that may impersonate.
#[derive(Default)]
struct RequestChecks {
    granted: Vec<String>,
    denied: Vec<String>,
    unknown: Vec<String>,
    /// Whether a client may read which kinds there are. It is no needed right: a client may know
    /// its kinds without it.
    discovery: Asked,
}

impl RequestChecks {
    fn add(&mut self, asked: Asked) {
        match asked {
            Asked::Yes(what) => self.granted.push(what),
            Asked::No(what) | Asked::NothingYet(what) => self.denied.push(what),
            Asked::Unknown(why) => self.unknown.push(why),
            Asked::NotAsked => {}
        }
    }

    /// Concludes from the answers. `named` says whether they are about rights that are needed. If
    /// not, a no may concern resources that nothing uses, so it is only a warning.
    fn conclude(mut self, account: &str, named: bool) -> Asked {
        if named && !self.denied.is_empty() {
            let denied = self.denied.join(", ");
            return Asked::No(format!("{account} is granted, but {denied}"));
        }
        let resources_denied = !self.denied.is_empty();
        let discovery = std::mem::take(&mut self.discovery);
        self.add(discovery);
        if !self.unknown.is_empty() {
            let unknown = self.unknown.join(", ");
            return Asked::Unknown(format!("{account} is granted; {unknown}"));
        }
        if !self.denied.is_empty() {
            let denied = self.denied.join(", ");
            let rest = if resources_denied {
                "whether single resources are granted was not checked; --needs names them"
            } else {
                "without it, clients like Flux cannot learn which kinds there are"
            };
            return Asked::NothingYet(format!("{account} is granted, but {denied}; {rest}"));
        }
        Asked::Yes(format!(
            "{account}; also checked: {}; other requests were not checked",
            self.granted.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = "impersonate:serviceaccount serviceaccounts a in b";
    const GET: &str = "impersonate-on:serviceaccount:get pods";
    const APIS: &str = "impersonate-on:serviceaccount:get /apis";

    fn conclude(get: Asked, apis: Asked, named: bool) -> Asked {
        let mut checks = RequestChecks {
            discovery: apis,
            ..RequestChecks::default()
        };
        checks.add(get);
        checks.conclude(ACCOUNT, named)
    }

    #[test]
    fn only_a_needed_request_that_is_denied_is_a_no() {
        let yes = |what: &str| Asked::Yes(what.to_owned());
        let no = |what: &str| Asked::No(format!("{what} is not allowed"));
        for named in [true, false] {
            let all = conclude(yes(GET), yes(APIS), named);
            assert!(
                matches!(&all, Asked::Yes(text) if text.contains(GET) && text.contains(APIS)
                    && text.ends_with("other requests were not checked")),
                "{all:?}"
            );
            let apis = conclude(yes(GET), no(APIS), named);
            assert!(
                matches!(&apis, Asked::NothingYet(text) if text.contains(APIS)),
                "{apis:?}"
            );
        }
        let needed = conclude(no(GET), yes(APIS), true);
        assert!(
            matches!(&needed, Asked::No(text) if text.contains(GET)),
            "{needed:?}"
        );
        let wide = conclude(no(GET), yes(APIS), false);
        assert!(
            matches!(&wide, Asked::NothingYet(text) if text.contains("--needs")),
            "{wide:?}"
        );
        let open = conclude(yes(GET), Asked::Unknown("status 500".to_owned()), true);
        assert!(
            matches!(&open, Asked::Unknown(text) if text.contains("500")),
            "{open:?}"
        );
    }

    #[test]
    fn what_is_needed_is_asked_in_the_words_of_the_second_check() {
        let on_deployments = |verb: &str| ResourceAttributes {
            verb: verb.to_owned(),
            resource: "deployments".to_owned(),
            group: "apps".to_owned(),
            ..ResourceAttributes::default()
        };
        let needs = [on_deployments("patch")];
        let question = |needs| ImpersonationQuestion {
            namespace: "apps",
            name: "deployer",
            minor: None,
            needs,
            target_namespace: Some("apps"),
        };
        assert_eq!(
            question(&needs[..]).requests(),
            [on_deployments("impersonate-on:serviceaccount:patch")]
        );
        let without = question(&[]).requests();
        assert_eq!(without.len(), rights::OBJECT_VERBS.len());
        assert!(
            without
                .iter()
                .all(|one| one.resource == "*" && one.namespace == "apps")
        );
    }
}
