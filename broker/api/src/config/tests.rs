#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::{any, prop, prop_assert, proptest};

use super::{
    CertificateSource, ConfigError, DeliveryType, MAX_CONFIG_BYTES, ManagedIssuers, Mistake,
    NamespaceRule, Overrides, Policy, TargetAccess, TargetCluster, TokenIssuer, read, read_with,
};
use crate::name::{AccessName, Namespace, ObjectName};

mod mistakes;
mod yaml;

/// A minimal file without mistakes; only `staging` also sets optional fields.
pub(crate) const GOOD: &str = "\
apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.com
discovery:
  tls:
    certFile: /tls/tls.crt
    keyFile: /tls/tls.key
api:
  tls:
    certFile: /tls/api.crt
    keyFile: /tls/api.key
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata:
  name: prod
spec:
  address: https://prod.example.com:6443
  audience: https://prod.example.com
  allow:
    - namespaces: [tenant-a, kube-system]
      serviceAccounts: [reconciler, deployer]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata:
  name: staging
  labels: {team: platform}
  annotations: {note: a}
spec:
  address: https://staging.example.com/k8s/clusters/c-1/
  tlsServerName: kubernetes.default.svc
  proxyURL: socks5://proxy.example.com:1080
  certSecretRef:
    name: staging-ca
  audience: staging
  issuer: Hub
  targetIssuer: https://issuer.staging.example.com
  tokenLifetime:
    default: 30m
    max: 2h
  suspend: true
  allow:
    - namespaceSelector:
        matchLabels:
          access.keyferry.dev/staging: allowed
        matchExpressions:
          - key: kubernetes.io/metadata.name
            operator: NotIn
            values: [tenant-z]
      serviceAccounts: [reconciler]
      deliveries: [HTTP, ArgoCDSecret]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata:
  name: prod
  namespace: tenant-a
spec:
  targetClusterRef:
    name: prod
  serviceAccountName: reconciler
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata:
  name: staging
  namespace: tenant-a
spec:
  targetClusterRef:
    name: staging
  serviceAccountName: reconciler
  callers: [notifier]
  deliveries:
    - name: on-request
      type: HTTP
  deletionPolicy: Drain
  probe: Report
  suspend: true
";

pub(super) fn mistakes_of(text: &str) -> Vec<Mistake> {
    match read(text) {
        Ok(_) => panic!("no mistake was found in\n{text}"),
        Err(ConfigError { mistakes }) => mistakes,
    }
}

fn target(policy: &Policy, name: &str) -> TargetCluster {
    policy
        .targets
        .get(&ObjectName::new(name).unwrap())
        .unwrap()
        .clone()
}

fn access(policy: &Policy, name: &str) -> TargetAccess {
    policy
        .accesses
        .get(&AccessName::parse(name).unwrap())
        .unwrap()
        .clone()
}

fn names(names: &[&str]) -> BTreeSet<ObjectName> {
    names
        .iter()
        .map(|name| ObjectName::new(*name).unwrap())
        .collect()
}

#[test]
fn the_server_has_its_defaults() {
    let server = read(GOOD).unwrap().server;
    assert_eq!(server.hub_name, "hub");
    assert_eq!(
        server.public_url.to_string(),
        "https://keyferry.example.com"
    );
    assert_eq!(server.caller_audience.as_str(), "keyferry.dev");
    assert_eq!(
        server.cluster_resource_namespace.as_str(),
        "keyferry-system"
    );
    assert_eq!(server.canary_service_account.as_str(), "keyferry-canary");
    assert_eq!(server.hub_issuer, None);
    assert_eq!(server.discovery.address.to_string(), "0.0.0.0:8443");
    assert_eq!(server.api.address.to_string(), "0.0.0.0:9443");
    assert_eq!(server.health_address.to_string(), "127.0.0.1:8080");
    assert_eq!(
        server.discovery.tls.certificate.to_str(),
        Some("/tls/tls.crt")
    );
    assert_eq!(server.api.tls.key.to_str(), Some("/tls/api.key"));
    assert_eq!(
        (server.max_age, server.max_stale_authorization),
        (Duration::from_secs(60), Duration::from_secs(300))
    );
    assert!(!server.require_pod_bound);
    assert_eq!(server.audit_file, None);
    assert_eq!(
        server.managed_issuers,
        ManagedIssuers {
            enabled: false,
            rotate_every: Duration::from_secs(720 * 3600)
        }
    );
}

#[test]
fn managed_issuers_are_enabled_by_the_file_or_before_it() {
    let enabled = |setting: &str, overrides| {
        let text = GOOD
            .replace("hubName: hub\n", &format!("hubName: hub\n{setting}"))
            .replace("issuer: Hub", "issuer: Keyferry");
        read_with(
            &text,
            Overrides {
                enable_managed_issuers: overrides,
                ..Overrides::default()
            },
        )
    };
    let configuration =
        enabled("managedIssuers: {enabled: true, rotateEvery: 48h}\n", None).unwrap();
    assert_eq!(
        configuration.server.managed_issuers,
        ManagedIssuers {
            enabled: true,
            rotate_every: Duration::from_secs(48 * 3600)
        }
    );
    assert_eq!(
        target(&configuration.policy, "staging").issuer,
        TokenIssuer::Keyferry
    );
    assert_eq!(
        target(&configuration.policy, "prod").issuer,
        TokenIssuer::Hub
    );
    assert!(enabled("", Some(true)).is_ok());
    for (setting, overrides) in [
        ("", None),
        ("managedIssuers: {enabled: true}\n", Some(false)),
        ("managedIssuers: {}\n", None),
    ] {
        let ConfigError { mistakes } = enabled(setting, overrides).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{mistakes:?}")
        };
        assert_eq!(
            (mistake.object.as_str(), mistake.path.as_str()),
            ("TargetCluster/staging", "spec.issuer")
        );
    }
}

#[test]
fn an_managed_issuer_is_the_targets_and_nobody_elses() {
    let mistake = |from: &str, to: &str| {
        let text = GOOD
            .replace("issuer: Hub", "issuer: Keyferry")
            .replace(from, to);
        let ConfigError { mistakes } = read_with(&text, Overrides::of_a_reader()).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{mistakes:?}")
        };
        mistake.path.clone()
    };
    let own = "targetIssuer: https://keyferry.example.com/issuers/staging";
    assert_eq!(
        mistake("targetIssuer: https://issuer.staging.example.com", own),
        "spec.targetIssuer"
    );
    assert_eq!(
        mistake(
            "name: staging\n  labels",
            &format!("name: {}\n  labels", ["a"; 120].join("."))
        ),
        "metadata.name"
    );
    assert_eq!(
        mistake("audience: staging", "audience: keyferry.dev/inert"),
        "spec.audience"
    );
}

#[test]
fn the_server_takes_what_is_written() {
    let written = "hubName: hub\nmetadata: {name: keyferry}\ncallerAudience: keys\nclusterResourceNamespace: keys\ncanaryServiceAccount: bird\n\
        hub: {issuer: 'https://hub.example.com', endpoints: ['https://10.0.0.2:6443', 'https://[fd00::1]:6443/']}\nhealth: {address: '[::1]:1'}\nmaxStaleAuthorization: 0s\nrequirePodBound: yes\n\
        audit: {file: /audit.log}\n";
    let text = GOOD.replace("hubName: hub\n", written).replace(
        "discovery:\n",
        "discovery:\n  address: 10.0.0.1:1\n  maxAge: 2m\n",
    );
    let configuration = read(&text).unwrap();
    let server = configuration.server;
    assert_eq!(
        (
            server.caller_audience.as_str(),
            server.cluster_resource_namespace.as_str()
        ),
        ("keys", "keys")
    );
    assert_eq!(server.canary_service_account.as_str(), "bird");
    assert_eq!(
        server.hub_issuer.unwrap().as_str(),
        "https://hub.example.com"
    );
    let endpoints: Vec<&str> = server
        .hub_endpoints
        .iter()
        .map(super::HubEndpoint::as_str)
        .collect();
    assert_eq!(
        endpoints,
        ["https://10.0.0.2:6443", "https://[fd00::1]:6443"]
    );
    assert_eq!(server.discovery.address.to_string(), "10.0.0.1:1");
    assert_eq!(server.health_address.to_string(), "[::1]:1");
    assert_eq!(
        (server.max_age, server.max_stale_authorization),
        (Duration::from_secs(120), Duration::ZERO)
    );
    assert!(server.require_pod_bound);
    assert_eq!(server.audit_file.unwrap().to_str(), Some("/audit.log"));
    assert_eq!(
        configuration.policy.own_namespace,
        Some(Namespace::new("keys").unwrap())
    );
}

#[test]
fn a_long_max_age_needs_long_lifetimes() {
    let text = GOOD.replace("discovery:\n", "discovery:\n  maxAge: 1h\n");
    let mistakes = mistakes_of(&text);
    assert!(
        mistakes
            .iter()
            .all(|mistake| mistake.path == "spec.tokenLifetime.default" && mistake.line > 0),
        "{mistakes:?}"
    );
    let told: Vec<&str> = mistakes
        .iter()
        .map(|mistake| mistake.object.as_str())
        .collect();
    assert_eq!(told, ["TargetCluster/prod", "TargetCluster/staging"]);
    assert!(
        mistakes[0].problem.contains("1h1m") && mistakes[0].fix.contains("2h4m20s"),
        "{mistakes:?}"
    );
    let longer = text
        .replace("default: 30m", "default: 4h")
        .replace("max: 2h", "max: 12h");
    let longer = longer.replace(
        "  audience: https://prod.example.com\n",
        "  audience: https://prod.example.com\n  tokenLifetime: {default: 4h}\n",
    );
    assert!(read(&longer).is_ok(), "{:?}", read(&longer).err());
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

#[test]
fn a_generation_is_the_spec_without_its_layout() {
    let before = read(GOOD).unwrap().policy;
    let reformatted = GOOD
        .replace(
            "  tokenLifetime:\n    default: 30m\n    max: 2h\n",
            "  # how long\n  tokenLifetime: {\"max\": '2h', default: \"30m\"} # so\n",
        )
        .replace("  labels: {team: platform}\n", "")
        .replace(
            "  certSecretRef:\n    name: staging-ca\n  audience: staging\n",
            "  audience: staging\n\n  certSecretRef:\n        name: staging-ca\n",
        )
        .replace("  callers: [notifier]\n", "  callers:\n  - notifier\n");
    assert_ne!(reformatted, GOOD);
    let after = read(&reformatted).unwrap().policy;
    for name in ["prod", "staging"] {
        assert_eq!(
            target(&before, name).generation,
            target(&after, name).generation,
            "{name}"
        );
    }
    for name in ["tenant-a/prod", "tenant-a/staging"] {
        assert_eq!(
            access(&before, name).generation,
            access(&after, name).generation,
            "{name}"
        );
    }
    assert_ne!(
        target(&before, "prod").generation,
        target(&before, "staging").generation
    );
}

#[test]
fn a_generation_changes_with_every_field() {
    let before = read(GOOD).unwrap().policy;
    for (from, to) in [
        ("staging.example.com/k8s", "staging2.example.com/k8s"),
        (
            "tlsServerName: kubernetes.default.svc",
            "tlsServerName: kubernetes.default",
        ),
        ("proxyURL: socks5", "proxyURL: http"),
        ("  proxyURL: socks5://proxy.example.com:1080\n", ""),
        ("name: staging-ca", "name: staging-ca2"),
        ("audience: staging", "audience: staging2"),
        ("  issuer: Hub\n", ""),
        ("issuer.staging.example.com", "issuer.staging.example.org"),
        ("default: 30m", "default: 31m"),
        ("max: 2h", "max: 3h"),
        ("  suspend: true\n  allow:", "  suspend: false\n  allow:"),
        (
            "access.keyferry.dev/staging: allowed",
            "access.keyferry.dev/staging: denied",
        ),
        ("operator: NotIn", "operator: In"),
        ("values: [tenant-z]", "values: [tenant-y]"),
        (
            "serviceAccounts: [reconciler]\n      deliveries",
            "serviceAccounts: [reconciler2]\n      deliveries",
        ),
        ("[HTTP, ArgoCDSecret]", "[HTTP]"),
    ] {
        let after = read(&edited(from, to)).unwrap().policy;
        assert_ne!(
            target(&before, "staging").generation,
            target(&after, "staging").generation,
            "{from}"
        );
        assert_eq!(
            target(&before, "prod").generation,
            target(&after, "prod").generation,
            "{from}"
        );
        assert_eq!(
            access(&before, "tenant-a/staging").generation,
            access(&after, "tenant-a/staging").generation,
            "{from}"
        );
    }
    for (from, to) in [
        (
            "    name: staging\n  serviceAccountName",
            "    name: prod\n  serviceAccountName",
        ),
        (
            "serviceAccountName: reconciler\n  callers",
            "serviceAccountName: other\n  callers",
        ),
        ("callers: [notifier]", "callers: [other]"),
        ("name: on-request", "name: asked"),
        ("type: HTTP", "type: Exec"),
        ("deletionPolicy: Drain", "deletionPolicy: Immediate"),
        ("probe: Report", "probe: Off"),
        (
            "probe: Report\n  suspend: true",
            "probe: Report\n  suspend: false",
        ),
    ] {
        let from_text = from.replace("probe: Off", "probe: \"Off\"");
        let after = read(&edited(
            &from_text,
            &to.replace("probe: Off", "probe: \"Off\""),
        ))
        .unwrap()
        .policy;
        assert_ne!(
            access(&before, "tenant-a/staging").generation,
            access(&after, "tenant-a/staging").generation,
            "{from}"
        );
        assert_eq!(
            access(&before, "tenant-a/prod").generation,
            access(&after, "tenant-a/prod").generation,
            "{from}"
        );
    }
}

/// [`GOOD`] with its only occurrence of `from` replaced.
pub(super) fn edited(from: &str, to: &str) -> String {
    assert_eq!(
        GOOD.matches(from).count(),
        1,
        "{from:?} must stand once in the good file"
    );
    GOOD.replace(from, to)
}

#[test]
fn a_file_of_many_objects_is_read() {
    let mut text = GOOD.to_owned();
    for index in 0..5_000 {
        text += &format!(
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata:\n  name: a{index}\n  namespace: tenant-a\nspec:\n  \
            targetClusterRef:\n    name: prod\n  serviceAccountName: reconciler\n  callers: [b, c]\n"
        );
    }
    assert_eq!(read(&text).unwrap().policy.accesses.len(), 5_002);
}

#[test]
fn hostile_sizes_are_refused() {
    let levels: String = (1..30)
        .map(|level| {
            format!(
                "l{level}: &l{level} [{0}, {0}]\n",
                format_args!("*l{}", level - 1)
            )
        })
        .collect();
    let wide: String = (0..200).map(|_| "*a, ").collect();
    let cases = [
        (
            " ".repeat(MAX_CONFIG_BYTES + 1),
            "larger than 8388608 bytes",
        ),
        (
            format!("l0: &l0 [x, x]\n{levels}"),
            "alias replay limit exceeded",
        ),
        (format!("a: &a [x]\nb: [{wide}]\n"), "Aliases"),
        ("[".repeat(100_000), "recursion limit exceeded"),
        (
            (0..2_000)
                .map(|depth| format!("{}a:\n", " ".repeat(depth)))
                .collect(),
            "Depth",
        ),
        ("---\na\n".repeat(70_000), "Documents"),
        (format!("a: [{}]", "1,".repeat(1_100_000)), "Nodes"),
    ];
    for (text, limit) in cases {
        let mistakes = mistakes_of(&text);
        assert_eq!(mistakes.len(), 1, "{limit}: {:?}", mistakes.first());
        assert!(
            mistakes[0].problem.contains(limit),
            "{limit}: {}",
            mistakes[0]
        );
        assert!(mistakes[0].to_string().len() < 500, "{limit}");
    }
}

#[test]
fn a_message_repeats_no_long_text_and_forges_no_line() {
    let mistakes = mistakes_of(&edited(
        "audience: https://prod.example.com",
        &format!("audience: [\"{}\"]", "x".repeat(1 << 20)),
    ));
    assert!(
        mistakes
            .iter()
            .all(|mistake| mistake.to_string().len() < 1_000)
    );
    let mistakes = mistakes_of(&edited(
        "serviceAccounts: [reconciler, deployer]",
        &format!("serviceAccounts: [\"{}\"]", "X".repeat(1 << 20)),
    ));
    assert!(mistakes[0].to_string().len() < 1_000);
    let forged = edited(
        "  name: prod\nspec",
        "  name: \"prod\\nline 1: all is well\"\nspec",
    )
    .replace("kind: TargetCluster", "\"ki\\nnd\": x\nkind: TargetCluster");
    for mistake in mistakes_of(&forged) {
        assert!(!mistake.to_string().contains('\n'), "{mistake:?}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in any::<String>()) {
        if let Err(error) = read(&text) {
            prop_assert!(!error.mistakes.is_empty());
        }
    }

    #[test]
    fn no_yaml_makes_reading_panic(text in "([a-zA-Z:\\-\\[\\]{}&*!|>'\"#%@,? \n]|kind: \
        TargetCluster\n|spec:\n  |metadata: |apiVersion: keyferry.dev/v1alpha1\n|---\n){0,60}") {
        if let Err(error) = read(&text) {
            prop_assert!(!error.mistakes.is_empty());
        }
    }

    #[test]
    fn a_mutated_good_file_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, prop::sample::select(vec!["", "\t", "\n", ": ", "- ", "[", "{", "}", "\"", "5", "&a ", "*a", "null", "---\n", "!!int ", "\u{0}", "\u{feff}", "kind"])), 1..6)
    ) {
        let mut text = GOOD.to_owned();
        for (at, length, insert) in edits {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, insert);
            }
        }
        if let Err(error) = read(&text) {
            prop_assert!(!error.mistakes.is_empty());
            prop_assert!(error.mistakes.iter().all(|mistake| mistake.line <= 1 + text.lines().count() as u64));
        }
    }
}

#[test]
fn a_flag_goes_before_the_files_namespace() {
    let given = Namespace::new("elsewhere").unwrap();
    let overrides = Overrides {
        cluster_resource_namespace: Some(given.clone()),
        ..Overrides::default()
    };
    let configuration = read_with(GOOD, overrides).unwrap();
    assert_eq!(
        (
            &configuration.server.cluster_resource_namespace,
            &configuration.policy.own_namespace
        ),
        (&given, &Some(given.clone()))
    );
}
