//! The one order in which a target is removed, and the step that is next: Flux's objects, the
//! accesses, the entry at the target, the TargetCluster, and last what only it named.

use std::fmt::Display;

use keyferry_api::foreign_text::one_line;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::object_view::TargetView;

use crate::onboarding::users::TargetUse;

/// The longest value of an object that is shown.
const MAX_SHOWN_CHARS: usize = 512;

/// What has to be done next before a target is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemovalStep {
    /// These TargetClusters are roles at the target's cluster.
    Roles(Vec<String>),
    /// Flux's objects use what is delivered, or may.
    FluxObjects(Vec<String>),
    /// TargetAccesses lead to the target.
    Accesses(Vec<String>),
    /// Whether further TargetAccesses lead to the target is unknown, for this reason.
    UnreadAccesses(String),
    /// The target still accepts the hub's tokens.
    Entry,
    /// Nothing but the TargetCluster is left on the hub.
    TargetCluster,
}

impl RemovalStep {
    /// Returns the next step. `roles`: the TargetClusters that are roles of this one. `unknown`: why
    /// further accesses may lead to the target, unless the user ignores that. `entry_removed`: the
    /// user says that the target has no entry any more.
    pub(super) fn next(
        roles: &[String],
        live: &[&TargetUse],
        unknown: Option<&str>,
        orphan_flux: bool,
        entry_removed: bool,
    ) -> Self {
        if !roles.is_empty() {
            return Self::Roles(roles.to_vec());
        }
        if let Some(unknown) = unknown {
            return Self::UnreadAccesses(unknown.to_owned());
        }
        let flux: Vec<String> = live
            .iter()
            .filter(|_| !orphan_flux)
            .flat_map(|one| match &one.flux {
                Ok(objects) => objects
                    .iter()
                    .map(|object| format!("{object} in {}", one.access.namespace))
                    .collect(),
                Err(why) => vec![format!(
                    "those that use what {} delivers, which are unknown: {why}",
                    one.access
                )],
            })
            .collect();
        if !flux.is_empty() {
            return Self::FluxObjects(flux);
        }
        if !live.is_empty() {
            let names = live.iter().map(|one| one.access.to_string());
            return Self::Accesses(names.collect());
        }
        match entry_removed {
            false => Self::Entry,
            true => Self::TargetCluster,
        }
    }

    /// Describes the step as an instruction.
    pub(super) fn describe(&self, target: &TargetView, name: &ObjectName) -> String {
        match self {
            Self::Roles(roles) => format!(
                "next: offboard the roles of this cluster, because they end with it: {}",
                roles
                    .iter()
                    .map(|role| format!("keyferry offboard target {role}"))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
            Self::FluxObjects(objects) => format!(
                "next: delete the objects of Flux and wait until they are gone, so that Flux prunes \
                 at the target: {}",
                objects.join("; ")
            ),
            Self::Accesses(accesses) => format!(
                "next: delete the TargetAccesses ({}): keyferry offboard target {name} \
                 --with-accesses --remove",
                accesses.join(", ")
            ),
            Self::UnreadAccesses(unknown) => format!(
                "next: make the TargetAccesses smaller or delete them, or add \
                 --ignore-unread-accesses: {unknown}"
            ),
            Self::Entry => entry_step(target, name),
            Self::TargetCluster => {
                format!("next: keyferry offboard target {name} --entry-removed --remove")
            }
        }
    }
}

/// Warns that the target accepts tokens until the hub's entry there is removed. Without a
/// TargetCluster, the AudiencePairing no longer reserves the audience.
pub(super) const UNTIL_THEN: &str = "Until then it accepts tokens that were issued before, until \
     they expire. Once the TargetCluster is gone, it also accepts those that any user of the hub \
     with create serviceaccounts/token mints for a ServiceAccount that the target's rules name";

fn entry_step(target: &TargetView, name: &ObjectName) -> String {
    let shown = |text: &str| one_line(text, MAX_SHOWN_CHARS);
    let stated = target.status.as_ref().and_then(|it| it.issuer.as_deref());
    let issuer = match stated.map(shown).unwrap_or_default() {
        none if none.is_empty() => "of the hub".to_owned(),
        issuer => format!("issuer.url {issuer}"),
    };
    let role = target.spec.same_as.as_ref().zip(target.spec.role.as_ref());
    let what = match (role, target.spec.is_relying_party()) {
        (Some((base, role)), _) => format!(
            "remove the rules of allow of TargetCluster {name}; write the file that keyferry trust \
             {} prints, which is then without the role; and remove the RBAC of the group that ends \
             in :role:{}",
            shown(base),
            shown(role)
        ),
        (None, true) => format!(
            "at the relying party, remove the trust in {issuer} for the audience {}",
            shown(&target.spec.audience)
        ),
        (None, false) => format!(
            "at the target, remove the entry with {issuer} from its AuthenticationConfiguration, and \
             the RBAC of the hub's users"
        ),
    };
    format!(
        "next: {what}. {UNTIL_THEN}\nthen: keyferry offboard target {name} --entry-removed --remove"
    )
}

/// Names what is left on the hub once the TargetCluster is gone: only what no other one names.
/// `namespace`: Keyferry's, if it is known. It is not read from the target's status, because a
/// thief of Keyferry's account could then have an admin delete a Secret elsewhere.
/// `others`: all TargetClusters, or why they are unknown.
pub(super) fn left_over(
    target: &TargetView,
    name: &ObjectName,
    namespace: Option<&Namespace>,
    others: Result<&[TargetView], &dyn Display>,
) -> Vec<String> {
    let namespace = namespace.map_or("KEYFERRY_NAMESPACE", Namespace::as_str);
    let mut left = Vec::new();
    if let Ok(secret) = ObjectName::new(target.spec.cert_secret_ref.name.as_str()) {
        left.push(match others {
            Err(why) => format!(
                "Secret {secret} in {namespace} stays: which other TargetClusters name it is \
                 unknown: {why}"
            ),
            Ok(others) => {
                let named = users_of_secret(others, name, secret.as_str());
                match named.len() {
                    0 => format!("kubectl delete secret {secret} -n {namespace}"),
                    count => {
                        let some: Vec<&str> = named.iter().take(3).map(String::as_str).collect();
                        format!(
                            "Secret {secret} in {namespace} stays: {count} other TargetCluster(s) \
                             name it: {}",
                            some.join(", ")
                        )
                    }
                }
            }
        });
    }
    if target.spec.has_managed_issuer() {
        let secret = format!("keyferry-issuer-{name}");
        left.push(format!(
            "Secret {secret} in {namespace} holds the private keys of this target's managed issuer: \
             an account that reads it can sign for a target that still trusts them. Once the entry \
             is removed at the target: kubectl delete secret,role,rolebinding {secret} -n \
             {namespace}"
        ));
    }
    left
}

fn users_of_secret(targets: &[TargetView], name: &ObjectName, secret: &str) -> Vec<String> {
    targets
        .iter()
        .filter(|target| target.spec.cert_secret_ref.name == secret)
        .map(|target| target.metadata.name.clone())
        .filter(|other| other != name.as_str())
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;
    use keyferry_api::name::AccessName;
    use serde_json::json;

    use super::*;
    use crate::onboarding::users::UnknownFlux;

    fn target_use(flux: Result<Vec<String>, UnknownFlux>) -> TargetUse {
        TargetUse {
            access: AccessName::parse("tenant-a/prod").unwrap(),
            service_account: "reconciler".to_owned(),
            uid: "u".to_owned(),
            deleting: false,
            delivered: Vec::new(),
            exposure_until: None,
            flux,
        }
    }

    fn name(text: &str) -> ObjectName {
        ObjectName::new(text).unwrap()
    }

    #[test]
    fn the_order_is_flux_accesses_entry_and_target_cluster() {
        let used = target_use(Ok(vec!["Kustomization apps".to_owned()]));
        let unknown = target_use(Err(UnknownFlux::NotListed("forbidden".to_owned())));
        let free = target_use(Ok(Vec::new()));
        let next = |live: &[&TargetUse], entry| RemovalStep::next(&[], live, None, false, entry);
        assert!(matches!(
            next(&[&free, &used], true),
            RemovalStep::FluxObjects(_)
        ));
        assert!(matches!(
            next(&[&unknown], true),
            RemovalStep::FluxObjects(_)
        ));
        assert!(matches!(next(&[&free], true), RemovalStep::Accesses(_)));
        assert!(matches!(
            RemovalStep::next(&[], &[&used], None, true, true),
            RemovalStep::Accesses(_)
        ));
        assert_eq!(next(&[], false), RemovalStep::Entry);
        assert_eq!(next(&[], true), RemovalStep::TargetCluster);
        let unread = RemovalStep::next(&[], &[], Some("a/x is unread"), false, true);
        let text = unread.describe(&TargetView::default(), &name("prod"));
        assert!(!text.contains("--entry-removed --remove"), "{text}");
        assert_snapshot!("an-entry-and-an-unread-access", text);
    }

    #[test]
    fn a_secret_that_others_name_is_never_named_for_deletion() {
        let target = |name: &str, secret: &str| {
            TargetView::of(&json!({
                "metadata": { "name": name },
                "spec": { "certSecretRef": { "name": secret }, "issuer": "Hub" },
            }))
        };
        let (site, prod) = (target("site-01", "prod-ca"), target("prod", "prod-ca"));
        let namespace = Namespace::new("keyferry-system").unwrap();
        let left = |others: Result<&[TargetView], &dyn Display>| {
            left_over(&site, &name("site-01"), Some(&namespace), others)
        };
        let both = [site.clone(), prod];
        let shared = left(Ok(&both));
        assert!(!shared[0].contains("kubectl delete"), "{shared:?}");
        let alone = left(Ok(&both[..1]));
        let unread = left(Err(&"forbidden"));
        assert!(!unread[0].contains("kubectl delete"), "{unread:?}");
        let shown = [
            ("another target names it", shared),
            ("no other target names it", alone),
            ("the other targets are unread", unread),
        ]
        .map(|(case, left)| format!("{case}: {}\n", left.join("\n")));
        assert_snapshot!("what-is-left-of-a-secret", shown.concat());
    }

    #[test]
    fn the_private_keys_of_a_managed_issuer_are_named() {
        let target = json!({ "metadata": { "name": "prod" }, "spec": { "issuer": "Keyferry" } });
        let left = left_over(&TargetView::of(&target), &name("prod"), None, Ok(&[]));
        assert_snapshot!("what-is-left-of-a-managed-issuer", left.join("\n"));
    }

    #[test]
    fn a_status_names_no_namespace_to_delete_from() {
        let target = json!({
            "metadata": { "name": "prod" },
            "spec": { "certSecretRef": { "name": "prod-ca" }, "issuer": "Keyferry" },
            "status": { "clusterResourceNamespace": "kube-system" },
        });
        for line in left_over(&TargetView::of(&target), &name("prod"), None, Ok(&[])) {
            assert!(line.contains("-n KEYFERRY_NAMESPACE"), "{line}");
        }
    }

    #[test]
    fn a_relying_party_has_no_file_and_no_rbac() {
        let vault = json!({
            "metadata": { "name": "vault" },
            "spec": { "kind": "Audience", "audience": "https://vault" },
            "status": { "issuer": "https://hub" },
        });
        let step = RemovalStep::Entry.describe(&TargetView::of(&vault), &name("vault"));
        assert!(!step.contains("RBAC") && !step.contains("AuthenticationConfiguration"));
        assert_snapshot!("the-entry-of-a-relying-party", step);
    }
}
