//! What the configuration reads to, which mistakes it reports, and which sizes it refuses.

#![allow(clippy::unwrap_used)]

mod audience_targets;
mod external_issuers;
mod file_schema;
mod generation;
mod inputs;
mod mistakes;
mod policy;
mod roles;
mod server;
mod yaml;

use proptest::prelude::{any, prop, prop_assert, proptest};

use super::{
    ConfigError, Configuration, MAX_CONFIG_BYTES, Mistake, Overrides, Policy, TargetAccess,
    TargetCluster,
};
use crate::name::{AccessName, ObjectName};

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

/// As [`super::read`]. What is accepted must also fit the schema of the file.
fn read(text: &str) -> Result<Configuration, ConfigError> {
    read_with(text, Overrides::default())
}

/// As [`super::read_with`]. What is accepted must also fit the schema of the file.
fn read_with(text: &str, overrides: Overrides) -> Result<Configuration, ConfigError> {
    let configuration = super::read_with(text, overrides)?;
    file_schema::assert_fits(text);
    Ok(configuration)
}

pub(super) fn mistakes_of(text: &str) -> Vec<Mistake> {
    match read(text) {
        Ok(_) => panic!("no mistake was found in\n{text}"),
        Err(ConfigError { mistakes }) => mistakes,
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
        if let Err(error) = super::read(&text) {
            prop_assert!(!error.mistakes.is_empty());
        }
    }

    #[test]
    fn no_yaml_makes_reading_panic(text in "([a-zA-Z:\\-\\[\\]{}&*!|>'\"#%@,? \n]|kind: \
        TargetCluster\n|spec:\n  |metadata: |apiVersion: keyferry.dev/v1alpha1\n|---\n){0,60}") {
        if let Err(error) = super::read(&text) {
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
        if let Err(error) = super::read(&text) {
            prop_assert!(!error.mistakes.is_empty());
            prop_assert!(error.mistakes.iter().all(|mistake| mistake.line <= 1 + text.lines().count() as u64));
        }
    }
}
