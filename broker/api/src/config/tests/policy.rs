//! What a TargetCluster and a TargetAccess read to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{GOOD, access, read, target};
use crate::config::{CertificateSource, DeliveryType, NamespaceRule};
use crate::name::{AccessName, Namespace, ObjectName};

fn names(names: &[&str]) -> BTreeSet<ObjectName> {
    names
        .iter()
        .map(|name| ObjectName::new(*name).unwrap())
        .collect()
}

#[test]
fn a_target_has_its_defaults() {
    let policy = read(GOOD).unwrap().policy;
    let prod = target(&policy, "prod");
    assert_eq!(prod.address, "https://prod.example.com:6443");
    assert_eq!(prod.certificate, CertificateSource::System);
    assert_eq!(
        (prod.tls_server_name, prod.proxy_url, prod.target_issuer),
        (None, None, None)
    );
    assert_eq!(
        (prod.lifetime.default, prod.lifetime.max),
        (Duration::from_secs(3600), Duration::from_secs(12 * 3600))
    );
    assert!(!prod.suspend);
    let [rule] = &*prod.allow else {
        panic!("{:?}", prod.allow)
    };
    let namespaces = ["kube-system", "tenant-a"].map(|name| Namespace::new(name).unwrap());
    assert_eq!(rule.namespaces, NamespaceRule::Named(namespaces.into()));
    assert_eq!(rule.service_accounts, names(&["deployer", "reconciler"]));
    assert_eq!(
        rule.deliveries,
        [
            DeliveryType::HTTP,
            DeliveryType::Exec,
            DeliveryType::FluxConfigMap
        ]
        .into()
    );
    assert_eq!(
        policy.own_namespace,
        Some(Namespace::new("keyferry-system").unwrap())
    );
}

#[test]
fn a_target_takes_what_is_written() {
    let staging = target(&read(GOOD).unwrap().policy, "staging");
    assert_eq!(
        staging.address,
        "https://staging.example.com/k8s/clusters/c-1"
    );
    assert_eq!(
        staging.tls_server_name.as_deref(),
        Some("kubernetes.default.svc")
    );
    assert_eq!(
        staging.proxy_url.as_deref(),
        Some("socks5://proxy.example.com:1080")
    );
    assert_eq!(
        staging.certificate,
        CertificateSource::Secret(ObjectName::new("staging-ca").unwrap())
    );
    assert_eq!(staging.audience.as_str(), "staging");
    assert_eq!(
        staging.target_issuer.unwrap().as_str(),
        "https://issuer.staging.example.com"
    );
    assert_eq!(
        (staging.lifetime.default, staging.lifetime.max),
        (Duration::from_secs(1800), Duration::from_secs(7200))
    );
    assert!(staging.suspend);
    assert_eq!(
        staging.allow[0].deliveries,
        [DeliveryType::HTTP, DeliveryType::ArgoCDSecret].into()
    );
    let pem = "-----BEGIN CERTIFICATE-----\\nAA==\\n-----END CERTIFICATE-----\\n";
    let text = GOOD.replace(
        "certSecretRef:\n    name: staging-ca",
        &format!("caBundle: \"{pem}\""),
    );
    let CertificateSource::Inline(inline) =
        target(&read(&text).unwrap().policy, "staging").certificate
    else {
        panic!("not inline")
    };
    assert_eq!(inline, pem.replace("\\n", "\n"));
    let text = GOOD.replace(
        "certSecretRef:\n    name: staging-ca",
        "clusterTrustBundleRef: {name: 'example.com:serving:ca'}",
    );
    let CertificateSource::TrustBundle(bundle) =
        target(&read(&text).unwrap().policy, "staging").certificate
    else {
        panic!("no bundle")
    };
    assert_eq!(bundle.as_str(), "example.com:serving:ca");
}

#[test]
fn a_default_lifetime_is_no_longer_than_the_greatest() {
    let prod = target(
        &read(&GOOD.replace(
            "  allow:\n    - namespaces",
            "  tokenLifetime: {max: 30m}\n  allow:\n    - namespaces",
        ))
        .unwrap()
        .policy,
        "prod",
    );
    assert_eq!(
        (prod.lifetime.default, prod.lifetime.max),
        (Duration::from_secs(1800), Duration::from_secs(1800))
    );
}

#[test]
fn no_allow_is_nobody() {
    let text = GOOD.replace(
        "  allow:\n    - namespaces: [tenant-a, \
        kube-system]\n      serviceAccounts: [reconciler, deployer]\n",
        "",
    );
    assert_eq!(
        target(&read(&text).unwrap().policy, "prod").allow.as_ref(),
        []
    );
    assert_eq!(
        target(
            &read(&text.replace("audience: https", "allow: []\n  audience: https"))
                .unwrap()
                .policy,
            "prod"
        )
        .allow
        .as_ref(),
        []
    );
}

#[test]
fn a_selector_needs_all_its_terms() {
    let staging = target(&read(GOOD).unwrap().policy, "staging");
    let NamespaceRule::Selected(selector) = &staging.allow[0].namespaces else {
        panic!("no selector")
    };
    let labels = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    assert!(selector.matches(&labels(&[
        ("access.keyferry.dev/staging", "allowed"),
        ("kubernetes.io/metadata.name", "tenant-a")
    ])));
    assert!(!selector.matches(&labels(&[
        ("access.keyferry.dev/staging", "allowed"),
        ("kubernetes.io/metadata.name", "tenant-z")
    ])));
    assert!(!selector.matches(&labels(&[
        ("access.keyferry.dev/staging", "no"),
        ("kubernetes.io/metadata.name", "tenant-a")
    ])));
    assert!(!selector.matches(&labels(&[("kubernetes.io/metadata.name", "tenant-a")])));
    assert!(!selector.matches(&labels(&[])));
}

#[test]
fn a_selector_term_means_what_kubernetes_means() {
    let holds = |requirement: &str, label: Option<&str>| {
        let text = GOOD.replace(
            "- key: kubernetes.io/metadata.name\n            operator: \
                NotIn\n            values: [tenant-z]",
            requirement,
        );
        let staging = target(&read(&text).unwrap().policy, "staging");
        let mut labels = BTreeMap::from([(
            "access.keyferry.dev/staging".to_owned(),
            "allowed".to_owned(),
        )]);
        labels.extend(label.map(|value| ("access.keyferry.dev/x".to_owned(), value.to_owned())));
        matches!(&staging.allow[0].namespaces, NamespaceRule::Selected(selector) if selector.matches(&labels))
    };
    for (operator, a, b, none) in [
        ("In, values: [a, c]", true, false, false),
        ("NotIn, values: [a, c]", false, true, true),
        ("Exists", true, true, false),
        ("DoesNotExist", false, false, true),
    ] {
        let requirement = format!("- {{key: access.keyferry.dev/x, operator: {operator}}}");
        assert_eq!(
            [Some("a"), Some("b"), None].map(|label| holds(&requirement, label)),
            [a, b, none],
            "{operator}"
        );
    }
}

#[test]
fn an_access_reads_to_what_it_says() {
    let policy = read(GOOD).unwrap().policy;
    let prod = access(&policy, "tenant-a/prod");
    assert_eq!(
        (prod.target.as_str(), prod.service_account.as_str()),
        ("prod", "reconciler")
    );
    assert_eq!(
        (prod.callers.len(), prod.deliveries.len(), prod.suspend),
        (0, 0, false)
    );
    assert!(
        prod.offers(DeliveryType::HTTP)
            && prod.offers(DeliveryType::Exec)
            && !prod.offers(DeliveryType::FluxConfigMap)
    );
    let staging = access(&policy, "tenant-a/staging");
    assert_eq!(staging.callers, names(&["notifier"]));
    assert!(staging.offers(DeliveryType::HTTP) && !staging.offers(DeliveryType::Exec));
    assert!(staging.suspend);
}

#[test]
fn an_access_may_come_before_its_target() {
    let policy = read(GOOD).unwrap().policy;
    assert_eq!(policy.dangling(), []);
    let text = GOOD.replace(
        "targetClusterRef:\n    name: prod",
        "targetClusterRef:\n    name: elsewhere",
    );
    let dangling = read(&text).unwrap().policy.dangling();
    assert_eq!(
        dangling,
        [(
            AccessName::parse("tenant-a/prod").unwrap(),
            ObjectName::new("elsewhere").unwrap()
        )]
    );
}
