//! The RBAC objects for the users that the target rules admit. Nothing is bound unless it is
//! requested.

use keyferry_api::service_account::ServiceAccount;
use keyferry_kube_authn::{Minor, impersonation};
use serde_json::{Value, json};

use super::binding::{Binding, BindingScope, RoleBinding};
use super::inputs::TrustInputs;
use super::target_rules::role_group;
use crate::command_error::CommandError;
use crate::yaml_document::{YamlError, yaml_document};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Objects that belong together, with comments that say when they are needed.
pub(super) struct RbacPart {
    about: Vec<String>,
    objects: Vec<Value>,
    /// Whether the objects are printed as comments, to be used instead of others.
    commented: bool,
}

impl RbacPart {
    fn new(objects: impl Into<Vec<Value>>) -> Self {
        Self {
            about: Vec::new(),
            objects: objects.into(),
            commented: false,
        }
    }

    fn about(self, lines: &[&str]) -> Self {
        Self {
            about: lines.iter().map(|line| (*line).to_owned()).collect(),
            ..self
        }
    }
}

/// Returns the objects that are to be applied; not those that are an alternative to others.
pub(super) fn applied(parts: &[RbacPart]) -> Vec<Value> {
    parts
        .iter()
        .filter(|part| !part.commented)
        .flat_map(|part| part.objects.iter().cloned())
        .collect()
}

/// Returns the objects in the order in which they can be applied; none if nothing is requested.
/// `minor` is the target's release, if it is known.
pub(super) fn parts(
    given: &TrustInputs,
    bind: Option<&Binding>,
    flux: Option<&ServiceAccount>,
    minor: Option<Minor>,
) -> Vec<RbacPart> {
    let users: Vec<Value> = given.users().iter().map(|it| subject("User", it)).collect();
    let name = name(&given.prefix);
    let mut parts = Vec::new();
    if let Some(flux) = flux {
        parts.extend(for_flux(&name, &users, flux, minor));
    }
    if let Some(binding) = bind {
        let subjects = flux.map_or(users, |account| vec![subject_account(account)]);
        let name = binding_name(&name, &binding.role);
        parts.push(RbacPart::new(bound(binding, &name, &subjects, flux)));
    }
    parts
}

/// Returns the bindings of ClusterRoles to the groups of roles.
///
/// # Errors
/// The TargetCluster has no such role.
pub(super) fn of_roles(
    given: &TrustInputs,
    bindings: &[RoleBinding],
) -> Result<Vec<RbacPart>, CommandError> {
    let bind = |bound: &RoleBinding| {
        let (prefix, role) = (&given.prefix, bound.role.as_str());
        if !given.roles().any(|known| known == role) {
            let known: Vec<&str> = given.roles().collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(CommandError::with_fix(
                format!("--bind-role names role {role}, and the roles in this file are {known}"),
                "create a TargetCluster with sameAs and this role, which allows a ServiceAccount",
            ));
        }
        // Neither a role nor what stands for the ClusterRole has a colon, so no two of them share a
        // name, nor one of them with a binding of --bind.
        let name = format!("{}:role:{role}:{}", name(prefix), slug(&bound.binding.role));
        let group = subject("Group", &role_group(prefix, role));
        Ok(RbacPart::new(self::bound(
            &bound.binding,
            &name,
            &[group],
            None,
        )))
    };
    bindings.iter().map(bind).collect()
}

/// Returns the bindings of a role, each namespace before its own.
fn bound(
    binding: &Binding,
    name: &str,
    subjects: &[Value],
    flux: Option<&ServiceAccount>,
) -> Vec<Value> {
    let BindingScope::Namespaces(namespaces) = &binding.scope else {
        return vec![cluster_role_binding(name, &binding.role, subjects)];
    };
    let mut objects = Vec::new();
    for namespace in namespaces {
        if flux.is_none_or(|account| account.namespace != *namespace) {
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": { "name": namespace.as_str() },
            }));
        }
        objects.push(json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": namespace.as_str() },
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": binding.role },
            "subjects": subjects,
        }));
    }
    objects
}

/// Returns the name of the binding of a role.
pub(super) fn binding_name(name: &str, role: &str) -> String {
    format!("{name}-{}", slug(role))
}

/// Renders the parts as one YAML stream.
///
/// # Errors
/// [`YamlError`].
pub(super) fn stream(parts: &[RbacPart]) -> Result<String, YamlError> {
    let mut text = String::new();
    for part in parts {
        let documents = part.objects.iter().map(yaml_document);
        let documents = documents.collect::<Result<Vec<_>, _>>()?.join("---\n");
        // Comments belong to the document before them, so that no document is empty.
        if !text.is_empty() && !part.commented {
            text += "---\n";
        }
        text.extend(part.about.iter().map(|line| format!("# {line}\n")));
        if part.commented {
            text.extend(documents.lines().map(|line| format!("# {line}\n")));
        } else {
            text += &documents;
        }
    }
    Ok(text)
}

/// The rights of a hub's Flux controller whose objects name a ServiceAccount to impersonate at the
/// target.
fn for_flux(
    name: &str,
    users: &[Value],
    flux: &ServiceAccount,
    minor: Option<Minor>,
) -> Vec<RbacPart> {
    let probe = format!("{name}-probe");
    let probing: Vec<Value> = users
        .iter()
        .cloned()
        .chain([subject_account(flux)])
        .collect();
    let account = RbacPart::new([
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": flux.namespace.as_str() },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": in_namespace(flux, flux.name.as_str()),
        }),
    ]);
    // Flux's client disables its own throttling only if it may call this.
    let probe = RbacPart::new([
        cluster_role(
            &probe,
            &json!([{ "nonResourceURLs": ["/livez/ping"], "verbs": ["head"] }]),
        ),
        cluster_role_binding(&probe, &probe, &probing),
    ]);
    let legacy = RbacPart::new(legacy(name, users, flux));
    let constrained = RbacPart::new(constrained(name, users, flux));
    let impersonation = match minor {
        Some(minor) if minor < impersonation::DEFAULT_SINCE => vec![legacy],
        Some(_) => vec![
            constrained.about(&CONSTRAINED),
            RbacPart {
                commented: true,
                ..legacy.about(&INSTEAD)
            },
        ],
        None => vec![
            constrained.about(&[&CONSTRAINED[..], &NO_EFFECT].concat()),
            legacy.about(&LEGACY),
        ],
    };
    [account]
        .into_iter()
        .chain(impersonation)
        .chain([probe])
        .collect()
}

const CONSTRAINED: [&str; 4] = [
    "Kubernetes 1.36 and newer: constrained impersonation (KEP-5284). These four objects suffice.",
    "The Role is for this one ServiceAccount. The ClusterRole says which requests may impersonate it;",
    "what the ServiceAccount itself may not do stays refused. Which resources Flux applies is not",
    "known here: write them instead of the stars.",
];

const NO_EFFECT: [&str; 1] = ["Before 1.36 these objects have no effect."];

const LEGACY: [&str; 3] = [
    "Kubernetes before 1.36: the legacy right to impersonate, for every request. From 1.36 on, leave",
    "out the next two objects, because they allow more than the objects above. Delete them where they",
    "were applied before. --kubernetes prints only what the target's release needs.",
];

const INSTEAD: [&str; 3] = [
    "Only where the feature gate ConstrainedImpersonation is off: the legacy right to impersonate, for",
    "every request, instead of the four objects above. Delete these two where they were applied before",
    "1.36.",
];

/// The right of before 1.36: every request may impersonate the ServiceAccount.
fn legacy(name: &str, users: &[Value], flux: &ServiceAccount) -> [Value; 2] {
    let name = format!("{name}-impersonate-{}", flux.name);
    let rules = json!([{
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": [flux.name.as_str()],
        "verbs": ["impersonate"],
    }]);
    [role(flux, &name, &rules), role_binding(flux, &name, users)]
}

/// The two rights of constrained impersonation. The second one is for the whole cluster, because
/// Flux also applies objects without a namespace, and reads which kinds there are.
fn constrained(name: &str, users: &[Value], flux: &ServiceAccount) -> [Value; 4] {
    let on = format!("{name}-impersonate-on");
    let name = format!("{name}-impersonate-{}-constrained", flux.name);
    let account_rules = json!([{
        "apiGroups": [impersonation::AUTHENTICATION_GROUP],
        "resources": ["serviceaccounts"],
        "resourceNames": [flux.name.as_str()],
        "verbs": [impersonation::IMPERSONATE_VERB],
    }]);
    let requests = impersonation::FLUX_VERBS.map(impersonation::on_verb);
    let request_rules = json!([
        { "apiGroups": ["*"], "resources": ["*"], "verbs": requests },
        {
            "nonResourceURLs": impersonation::DISCOVERY_PATHS,
            "verbs": [impersonation::on_verb("get")],
        },
        { "nonResourceURLs": ["/livez/ping"], "verbs": [impersonation::on_verb("head")] },
    ]);
    [
        role(flux, &name, &account_rules),
        role_binding(flux, &name, users),
        cluster_role(&on, &request_rules),
        cluster_role_binding(&on, &on, users),
    ]
}

fn in_namespace(account: &ServiceAccount, name: &str) -> Value {
    json!({ "name": name, "namespace": account.namespace.as_str() })
}

fn role(account: &ServiceAccount, name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Role",
        "metadata": in_namespace(account, name),
        "rules": rules,
    })
}

fn role_binding(account: &ServiceAccount, name: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "RoleBinding",
        "metadata": in_namespace(account, name),
        "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": name },
        "subjects": subjects,
    })
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": { "name": name },
        "rules": rules,
    })
}

fn cluster_role_binding(name: &str, role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
}

fn subject(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": kind, "name": name })
}

fn subject_account(account: &ServiceAccount) -> Value {
    json!({
        "kind": "ServiceAccount",
        "namespace": account.namespace.as_str(),
        "name": account.name.as_str(),
    })
}

/// Returns a name for the objects of the hub with this prefix.
pub(super) fn name(prefix: &str) -> String {
    format!("keyferry-{}", slug(prefix))
        .trim_end_matches('-')
        .to_owned()
}

fn slug(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    text.chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect::<String>()
        .trim_matches('-')
        .to_owned()
}
