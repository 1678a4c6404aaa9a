//! Reads `deliveries[].secret`: under which key, with which type, labels and annotations a
//! kubeconfig's Secret is written, for consumers that look for more than its name.

use std::collections::BTreeMap;

use super::super::access_spec::{DeliveryType, SecretSpec};
use super::super::check::Check;
use crate::name::{ObjectName, check_label_value};

/// The key of a kubeconfig, if none is written.
const DEFAULT_KEY: &str = "value";
/// The type of a Secret, if none is written.
const DEFAULT_TYPE: &str = "Opaque";
/// Labels, and annotations, of one Secret.
pub(in super::super) const MAX_ENTRIES: usize = 16;
/// The characters of an annotation's value. They count in every reading of the Secret.
pub(in super::super) const MAX_VALUE_CHARS: usize = 1024;
/// Domains whose labels, annotations and types have a meaning for Keyferry, the apiserver, or a
/// controller that acts on what it finds there. Their subdomains too.
const GUARDED_DOMAINS: [&str; 4] = [
    "keyferry.dev",
    "argocd.argoproj.io",
    "cluster.x-k8s.io",
    "kubectl.kubernetes.io",
];
/// As [`GUARDED_DOMAINS`], without subdomains: `kubernetes.io/service-account.name` names an
/// account.
const GUARDED_DOMAIN_ALONE: &str = "kubernetes.io";
/// Says whose object it is.
const GUARDED_KEY: &str = "app.kubernetes.io/managed-by";

/// The field `secret` of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretShape {
    /// The key of the kubeconfig.
    pub key: String,
    /// Its type.
    pub secret_type: String,
    /// Labels beside Keyferry's own.
    pub labels: BTreeMap<String, String>,
    /// Annotations beside Keyferry's own.
    pub annotations: BTreeMap<String, String>,
}

impl Default for SecretShape {
    fn default() -> Self {
        Self {
            key: DEFAULT_KEY.to_owned(),
            secret_type: DEFAULT_TYPE.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// Reads the field; `None` if it is absent or does not belong there.
pub(super) fn read_secret_shape(
    spec: Option<SecretSpec>,
    delivery_type: DeliveryType,
    path: &str,
    check: &mut Check<'_>,
) -> Option<SecretShape> {
    let spec = spec?;
    let path = format!("{path}.secret");
    if delivery_type != DeliveryType::KubeConfigSecret {
        let problem = "is set on a delivery whose consumer fixes the Secret's form";
        check.wrong(&path, problem, "remove secret, or use KubeConfigSecret");
        return None;
    }
    let labels = spec.labels.unwrap_or_default();
    check_entries(&labels, &format!("{path}.labels"), check, |value| {
        check_label_value(value)
            .err()
            .map(|error| error.to_string())
    });
    let annotations = spec.annotations.unwrap_or_default();
    check_entries(
        &annotations,
        &format!("{path}.annotations"),
        check,
        |value| {
            (value.chars().count() > MAX_VALUE_CHARS)
                .then(|| format!("is longer than {MAX_VALUE_CHARS} characters"))
        },
    );
    let default = SecretShape::default();
    Some(SecretShape {
        key: read_key(spec.key, &path, check).unwrap_or(default.key),
        secret_type: read_type(spec.secret_type, &path, check).unwrap_or(default.secret_type),
        labels,
        annotations,
    })
}

fn read_key(key: Option<String>, path: &str, check: &mut Check<'_>) -> Option<String> {
    let key = key?;
    // By ValidateConfigMapKey of kubernetes apimachinery.
    let is_valid = (1..=253).contains(&key.len())
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && key != "."
        && !key.starts_with("..");
    if !is_valid {
        check.wrong(
            &format!("{path}.key"),
            "is not the key of a Secret",
            "use letters, digits, -, _ and .",
        );
    }
    is_valid.then_some(key)
}

fn read_type(secret_type: Option<String>, path: &str, check: &mut Check<'_>) -> Option<String> {
    let secret_type = secret_type?;
    let path = format!("{path}.type");
    let domain = secret_type.split('/').next().unwrap_or_default();
    let is_of_kubernetes = domain == GUARDED_DOMAIN_ALONE
        || domain
            .strip_suffix(GUARDED_DOMAIN_ALONE)
            .is_some_and(|rest| rest.ends_with('.'));
    if is_of_kubernetes || is_guarded_domain(domain) {
        check.wrong(
            &path,
            format!("{secret_type:?} is a type that Kubernetes or another controller acts on"),
            "use Opaque, or the type that your consumer looks for",
        );
        return None;
    }
    let is_valid = (1..=253).contains(&secret_type.len())
        && secret_type
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte));
    if !is_valid {
        check.wrong(
            &path,
            "is not the type of a Secret",
            "use letters, digits, -, _, . and /",
        );
    }
    is_valid.then_some(secret_type)
}

/// Checks the number of labels or annotations, their keys, and their values by `value_problem`.
fn check_entries(
    entries: &BTreeMap<String, String>,
    path: &str,
    check: &mut Check<'_>,
    value_problem: impl Fn(&str) -> Option<String>,
) {
    if entries.len() > MAX_ENTRIES {
        check.wrong(
            path,
            format!("has {} entries", entries.len()),
            format!("write at most {MAX_ENTRIES}"),
        );
    }
    for (key, value) in entries {
        let path = format!("{path}[{key}]");
        if is_guarded_key(key) {
            check.wrong(
                &path,
                "is a name by which Keyferry, Kubernetes or another controller acts",
                "remove it",
            );
        } else if !is_qualified_name(key) {
            check.wrong(
                &path,
                "is not a qualified name",
                "write [<domain>/]<name> with at most 63 characters in the name",
            );
        } else if let Some(problem) = value_problem(value) {
            check.wrong(&path, problem, "shorten it, or write a valid value");
        }
    }
}

fn is_guarded_key(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key == GUARDED_KEY || domain == GUARDED_DOMAIN_ALONE || is_guarded_domain(domain)
}

fn is_guarded_domain(domain: &str) -> bool {
    GUARDED_DOMAINS.iter().any(|guarded| {
        domain
            .strip_suffix(guarded)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// By `IsQualifiedName` of kubernetes apimachinery.
fn is_qualified_name(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(|domain| ObjectName::new(domain).is_ok())
        && !name.is_empty()
        && check_label_value(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_which_others_act_are_guarded() {
        for (key, guarded) in [
            ("istio/multiCluster", false),
            ("sigs.k8s.io/multicluster-runtime-kubeconfig", false),
            ("app.kubernetes.io/name", false),
            ("team", false),
            ("not-keyferry.dev/team", false),
            ("app.kubernetes.io/managed-by", true),
            ("keyferry.dev/digest", true),
            ("access.keyferry.dev/tenant", true),
            ("argocd.argoproj.io/secret-type", true),
            ("cluster.x-k8s.io/cluster-name", true),
            ("addons.cluster.x-k8s.io/type", true),
            ("kubernetes.io/service-account.name", true),
            ("kubectl.kubernetes.io/last-applied-configuration", true),
        ] {
            assert_eq!(is_guarded_key(key), guarded, "{key}");
        }
    }

    #[test]
    fn a_qualified_name_is_as_in_kubernetes() {
        for (key, valid) in [
            ("a", true),
            ("a.b/c_D", true),
            ("", false),
            ("a/", false),
            ("/a", false),
            ("a/b/c", false),
            ("A.b/c", false),
            ("-a", false),
            ("a\n", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_qualified_name(key), valid, "{key:?}");
        }
    }
}
