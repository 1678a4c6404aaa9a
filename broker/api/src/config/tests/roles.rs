//! Roles in a file: what they take from their bases, and which are refused.

use std::time::Duration;

use super::{GOOD, mistakes_of, read, target};
use crate::config::{CertificateSource, TargetRole};
use crate::name::{ObjectName, RoleName};

const ROLE: &str = "sameAs: staging, role: view, audience: staging-view, tokenLifetime: {max: 1h}";

/// The good file with further targets, each by its name and spec.
fn file(further: &[(&str, &str)]) -> String {
    let target = |(name, spec): &(&str, &str)| {
        format!(
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\n\
             metadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
    };
    GOOD.to_owned() + &further.iter().map(target).collect::<String>()
}

#[test]
fn a_role_takes_its_cluster_from_its_base_and_its_limits_from_itself() {
    let rules = "allow: [{namespaces: [tenant-b], serviceAccounts: [agent]}]";
    let text = file(&[("staging-view", &format!("{ROLE}, {rules}"))])
        .replace("  suspend: true\n  allow", "  probe: \"Off\"\n  allow");
    let policy = read(&text).unwrap().policy;
    let (base, role) = (target(&policy, "staging"), target(&policy, "staging-view"));
    assert_eq!(
        role.role,
        Some(TargetRole {
            same_as: ObjectName::new("staging").unwrap(),
            role: RoleName::new("view").unwrap(),
        })
    );
    assert_eq!(role.audience.as_str(), "staging-view");
    assert_eq!(role.lifetime.max, Duration::from_secs(3600));
    assert_eq!((role.allow.len(), role.suspend), (1, false));
    assert_ne!(role.allow, base.allow);
    assert_eq!(
        role.certificate,
        CertificateSource::Secret(ObjectName::new("staging-ca").unwrap())
    );
    let mut as_base = role.clone();
    as_base.name = base.name.clone();
    as_base.role = None;
    as_base.audience = base.audience.clone();
    as_base.allow = base.allow.clone();
    as_base.lifetime = base.lifetime;
    as_base.generation = base.generation;
    as_base.spec_generation = base.spec_generation;
    assert_eq!(as_base, base, "everything else is the base's");
    assert_eq!(role.username_prefix("hub"), "hub:view:");
    assert_eq!(base.username_prefix("hub"), "hub:");
}

#[test]
fn a_change_of_the_base_is_a_change_of_its_roles() {
    let text = file(&[("staging-view", ROLE)]);
    let role = |text: &str| target(&read(text).unwrap().policy, "staging-view");
    let changed = role(&text.replace("/k8s/clusters/c-1/", "/k8s/clusters/c-2/"));
    assert_eq!(
        changed.address,
        "https://staging.example.com/k8s/clusters/c-2"
    );
    assert_ne!(changed.generation, role(&text).generation);
    assert_eq!(changed.spec_generation, role(&text).spec_generation);
}

#[test]
fn a_suspended_base_suspends_its_roles() {
    let policy = read(&file(&[("staging-view", ROLE)])).unwrap().policy;
    assert!(target(&policy, "staging").suspend && target(&policy, "staging-view").suspend);
}

#[test]
fn a_role_that_contradicts_itself_or_its_base_is_refused() {
    let with = |further: &str| format!("{ROLE}, {further}");
    let own = "is set beside sameAs";
    let relying_party = ("registry", "kind: Audience, audience: registry");
    for (further, path, problem) in [
        (
            vec![(
                "view",
                "role: view, audience: v, address: \"https://a.example.com\"",
            )],
            "spec.sameAs",
            "missing beside role",
        ),
        (
            vec![("view", "sameAs: prod, audience: v")],
            "spec.role",
            "missing beside sameAs",
        ),
        (
            vec![("view", "sameAs: prod, role: system, audience: v")],
            "spec.role",
            "reserved",
        ),
        (
            vec![("view", "sameAs: prod, role: View, audience: v")],
            "spec.role",
            "may hold only",
        ),
        (
            vec![("view", "sameAs: a_b, role: view, audience: v")],
            "spec.sameAs",
            "may hold only",
        ),
        (
            vec![("view", "sameAs: view, role: view, audience: v")],
            "spec.sameAs",
            "itself",
        ),
        (
            vec![("view", "sameAs: nowhere, role: view, audience: v")],
            "spec.sameAs",
            "does not exist",
        ),
        (
            vec![
                ("view", ROLE),
                (
                    "again",
                    "sameAs: view, role: edit, audience: v, tokenLifetime: {max: 1h}",
                ),
            ],
            "spec.sameAs",
            "is a role itself",
        ),
        (
            vec![
                relying_party,
                ("view", "sameAs: registry, role: view, audience: v"),
            ],
            "spec.sameAs",
            "is no cluster",
        ),
        (
            vec![
                (
                    "own",
                    "hub: true, address: \"https://hub.example.com\", audience: own",
                ),
                ("view", "sameAs: own, role: view, audience: v"),
            ],
            "spec.sameAs",
            "is no cluster",
        ),
        (
            vec![("view", "sameAs: staging, role: view, audience: v")],
            "spec.tokenLifetime.max",
            "12h is longer than that of TargetCluster/staging, 2h",
        ),
        (
            vec![
                ("view", ROLE),
                ("view-2", &ROLE.replace("staging-view", "v2")),
            ],
            "spec.role",
            "is also the role of TargetCluster/view at staging",
        ),
        (
            vec![("view", &ROLE.replace("staging-view", "staging"))],
            "spec.audience",
            "is also the audience of TargetCluster/staging",
        ),
        (
            vec![("view", &with("address: \"https://a.example.com\""))],
            "spec.address",
            own,
        ),
        (
            vec![("view", &with("tlsServerName: a.example.com"))],
            "spec.tlsServerName",
            own,
        ),
        (
            vec![("view", &with("proxyURL: \"http://a.example.com\""))],
            "spec.proxyURL",
            own,
        ),
        (
            vec![("view", &with("certSecretRef: {name: a}"))],
            "spec.certSecretRef",
            own,
        ),
        (
            vec![("view", &with("clusterTrustBundleRef: {name: a}"))],
            "spec.clusterTrustBundleRef",
            own,
        ),
        (
            vec![("view", &with("caBundle: \"-----BEGIN CERTIFICATE-----\""))],
            "spec.caBundle",
            own,
        ),
        (
            vec![("view", &with("targetIssuer: \"https://a.example.com\""))],
            "spec.targetIssuer",
            own,
        ),
        (vec![("view", &with("probe: Report"))], "spec.probe", own),
        (
            vec![(
                "view",
                &with("identity: {clusterName: a, clusterDNS: a.example.com, environment: a}"),
            )],
            "spec.identity",
            own,
        ),
    ] {
        let found = mistakes_of(&file(&further));
        let right = matches!(found.as_slice(), [mistake]
            if mistake.path == path && mistake.problem.contains(problem) && mistake.line > 0);
        assert!(
            right,
            "{further:?} should say {path} {problem}, but says {found:#?}"
        );
    }
}

#[test]
fn a_base_with_mistakes_of_its_own_is_not_called_missing() {
    let text = file(&[("staging-view", ROLE)]).replace("https://staging.example.com/", "http://x/");
    let found = mistakes_of(&text);
    let paths: Vec<_> = found.iter().map(|mistake| mistake.path.as_str()).collect();
    assert_eq!(paths, ["spec.address"]);
}
