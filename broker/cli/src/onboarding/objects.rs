//! The objects of a target and of a tenant on the hub. Pure: values in, values out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::DeliveryType;
use keyferry_api::managed_issuer;
use keyferry_api::name::{AccessName, NameError, Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use serde_json::{Value, json};

const KEYFERRY: &str = "keyferry.dev/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The ClusterRole that lets Keyferry mint and deliver in a namespace where it is bound, and the
/// name of that binding.
const MINTER: &str = "keyferry-minter";
/// Keyferry's own ServiceAccount, whatever the release is called.
pub(crate) const KEYFERRY_ACCOUNT: &str = "keyferry";

/// A tenant that is to use a target.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// The ServiceAccount that acts at the target.
    pub(crate) account: ServiceAccount,
    /// The TargetCluster.
    pub(crate) target: ObjectName,
    /// The TargetAccess, in the ServiceAccount's namespace.
    pub(crate) access: ObjectName,
    /// What the TargetAccess delivers. None means on request only.
    pub(crate) deliveries: Vec<DeliveryType>,
    /// The user who writes the TargetAccess, if that is to be allowed by a Role.
    pub(crate) author: Option<Author>,
}

/// Who is to write a TargetAccess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// A user, by name.
    User(String),
    /// A group, by name.
    Group(String),
    /// A ServiceAccount of the hub.
    Account(ServiceAccount),
}

impl Author {
    /// Reads `group:NAME`, `system:serviceaccount:NAMESPACE:NAME`, or the name of a user. `None` if
    /// the name is empty or not that of a ServiceAccount.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(group) = text.strip_prefix("group:") {
            return (!group.is_empty()).then(|| Self::Group(group.to_owned()));
        }
        if let Some(account) = text.strip_prefix("system:serviceaccount:") {
            let (namespace, name) = account.split_once(':')?;
            return Some(Self::Account(ServiceAccount {
                namespace: Namespace::new(namespace).ok()?,
                name: ObjectName::new(name).ok()?,
            }));
        }
        (!text.is_empty()).then(|| Self::User(text.to_owned()))
    }

    fn subject(&self) -> Value {
        match self {
            Self::User(name) => json!({ "apiGroup": RBAC, "kind": "User", "name": name }),
            Self::Group(name) => json!({ "apiGroup": RBAC, "kind": "Group", "name": name }),
            Self::Account(account) => {
                subject_account(account.namespace.as_str(), account.name.as_str())
            }
        }
    }
}

impl Tenant {
    /// Returns the name of the TargetAccess.
    pub(crate) fn access_name(&self) -> AccessName {
        AccessName {
            namespace: self.account.namespace.clone(),
            name: self.access.clone(),
        }
    }

    /// Returns the objects of the tenant in the order in which they can be applied. `keyferry` is
    /// Keyferry's own namespace.
    pub(crate) fn objects(&self, keyferry: &Namespace) -> Vec<Value> {
        let namespace = self.account.namespace.as_str();
        let mut objects = vec![
            json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": { "name": namespace },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": { "name": self.account.name.as_str(), "namespace": namespace },
            }),
            binding(
                namespace,
                MINTER,
                "ClusterRole",
                MINTER,
                &subject_account(keyferry.as_str(), KEYFERRY_ACCOUNT),
            ),
        ];
        if let Some(author) = &self.author {
            objects.extend(self.authoring(author));
        }
        objects.push(self.target_access());
        objects
    }

    /// The rights that the admission policy `keyferry-author` demands of who writes the access.
    fn authoring(&self, author: &Author) -> [Value; 2] {
        let namespace = self.account.namespace.as_str();
        let name = format!("keyferry-author-{}", self.account.name);
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "Role",
            "metadata": { "name": name, "namespace": namespace },
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["serviceaccounts/token"],
                    "resourceNames": [self.account.name.as_str()],
                    "verbs": ["create"],
                },
                {
                    "apiGroups": ["keyferry.dev"],
                    "resources": ["targetaccesses"],
                    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
                },
            ],
        });
        [
            role,
            binding(namespace, &name, "Role", &name, &author.subject()),
        ]
    }

    fn target_access(&self) -> Value {
        let mut spec = json!({
            "targetClusterRef": { "name": self.target.as_str() },
            "serviceAccountName": self.account.name.as_str(),
        });
        if !self.deliveries.is_empty() {
            let deliveries = self.deliveries.iter().map(|delivery| {
                let name = delivery.as_str();
                json!({ "name": name.to_ascii_lowercase(), "type": name })
            });
            spec["deliveries"] = deliveries.collect();
        }
        json!({
            "apiVersion": KEYFERRY,
            "kind": "TargetAccess",
            "metadata": {
                "name": self.access.as_str(),
                "namespace": self.account.namespace.as_str(),
            },
            "spec": spec,
        })
    }
}

/// Returns what an existing TargetAccess delivers; nothing means tokens on request.
pub(crate) fn deliveries_of(access: &Value) -> Vec<DeliveryType> {
    let deliveries = access.pointer("/spec/deliveries").and_then(Value::as_array);
    let named = deliveries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("type")?.as_str());
    named
        .filter_map(|name| DeliveryType::ALL.iter().find(|(known, _)| *known == name))
        .map(|(_, delivery)| *delivery)
        .collect()
}

/// Adds deliveries to those of an existing TargetAccess. Its tokens on request stay.
pub(crate) fn united(existing: &[DeliveryType], wanted: &[DeliveryType]) -> Vec<DeliveryType> {
    let mut all = existing.to_vec();
    if all.is_empty() && !wanted.is_empty() {
        all = vec![DeliveryType::HTTP, DeliveryType::Exec];
    }
    for delivery in wanted {
        if !all.contains(delivery) {
            all.push(*delivery);
        }
    }
    all
}

/// Returns the ServiceAccount that Flux impersonates at a target as an object of the hub, in its
/// namespace. Flux looks for it there before it prunes; it gets no rights.
pub(crate) fn flux_account(account: &ServiceAccount) -> [Value; 2] {
    let namespace = account.namespace.as_str();
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": account.name.as_str(), "namespace": namespace },
        }),
    ]
}

/// Returns Keyferry's right to write the keys of a target's managed issuer. RBAC cannot limit a
/// create by name.
///
/// # Errors
/// [`NameError`]: the target's name leaves no room for the prefix.
pub(crate) fn issuer_rights(
    target: &ObjectName,
    keyferry: &Namespace,
) -> Result<[Value; 2], NameError> {
    let name = managed_issuer::secret_name(target)?;
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "Role",
        "metadata": { "name": name.as_str(), "namespace": keyferry.as_str() },
        "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [name.as_str()],
                "verbs": ["get", "update"],
            },
        ],
    });
    let subject = subject_account(keyferry.as_str(), KEYFERRY_ACCOUNT);
    let bound = binding(
        keyferry.as_str(),
        name.as_str(),
        "Role",
        name.as_str(),
        &subject,
    );
    Ok([role, bound])
}

fn subject_account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role },
        "subjects": [subject],
    })
}

/// Moves the CA certificates of a TargetCluster into a Secret of Keyferry's namespace. Returns that
/// Secret, or `None` if the TargetCluster has no CA certificates.
pub(crate) fn authority_into_secret(target: &mut Value, keyferry: &Namespace) -> Option<Value> {
    let name = format!("{}-ca", target.pointer("/metadata/name")?.as_str()?);
    let spec = target.get_mut("spec")?.as_object_mut()?;
    let pem = spec.remove("caBundle")?;
    spec.insert("certSecretRef".to_owned(), json!({ "name": name }));
    Some(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": keyferry.as_str() },
        "type": "Opaque",
        // Not stringData, whose fields server-side apply does not own.
        "data": { "ca.crt": STANDARD.encode(pem.as_str()?) },
    }))
}

/// The fields of a TargetCluster that say where the target is and what its tokens are for. An
/// existing object with other values is another target.
const IDENTITY: [&str; 5] = ["address", "tlsServerName", "proxyURL", "audience", "issuer"];

/// Returns the fields in which an existing TargetCluster is another target than the wanted one.
pub(crate) fn differing(existing: &Value, wanted: &Value) -> Vec<&'static str> {
    let value = |object: &Value, field: &str| {
        let value = object.pointer(&format!("/spec/{field}")).cloned();
        // The API fills in this default.
        value.or_else(|| (field == "issuer").then(|| json!("Hub")))
    };
    IDENTITY
        .into_iter()
        .filter(|field| value(existing, field) != value(wanted, field))
        .collect()
}

/// An existing TargetCluster as it can be applied again: of exactly this version, and without what
/// the API sets.
pub(crate) fn applied_again(existing: &Value) -> Value {
    json!({
        "apiVersion": KEYFERRY,
        "kind": "TargetCluster",
        "metadata": {
            "name": existing["metadata"]["name"],
            "resourceVersion": existing["metadata"]["resourceVersion"],
        },
        "spec": existing["spec"],
    })
}

/// Adds to `spec.allow` what this ServiceAccount and these deliveries lack. Returns whether anything
/// was added.
pub(crate) fn allow(
    target: &mut Value,
    account: &ServiceAccount,
    deliveries: &[DeliveryType],
) -> bool {
    let rules = target
        .pointer("/spec/allow")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let wanted: Vec<DeliveryType> = if deliveries.is_empty() {
        vec![DeliveryType::HTTP, DeliveryType::Exec]
    } else {
        deliveries.to_vec()
    };
    let granted = |delivery: &DeliveryType| {
        rules
            .iter()
            .any(|rule| grants(rule, account, &[delivery.as_str()]))
    };
    if wanted.iter().all(granted) {
        return false;
    }
    let mut rule = json!({
        "namespaces": [account.namespace.as_str()],
        "serviceAccounts": [account.name.as_str()],
    });
    if !wanted
        .iter()
        .all(|delivery| DeliveryType::DEFAULT.contains(delivery))
    {
        let named: Vec<&str> = wanted.iter().map(|delivery| delivery.as_str()).collect();
        rule["deliveries"] = json!(named);
    }
    let mut rules = rules.to_vec();
    rules.push(rule);
    target["spec"]["allow"] = Value::Array(rules);
    true
}

/// Makes the rules that name this ServiceAccount exactly allow what [`allow`] adds for these
/// deliveries, and nothing else.
/// Returns whether anything changed.
pub(crate) fn allow_exactly(
    target: &mut Value,
    account: &ServiceAccount,
    deliveries: &[DeliveryType],
) -> bool {
    let before = target
        .pointer("/spec/allow")
        .cloned()
        .unwrap_or(Value::Null);
    disallow(target, account);
    allow(target, account, deliveries);
    let rules = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (old, new) = (rules(&before), rules(&target["spec"]["allow"]));
    let same = old.len() == new.len() && new.iter().all(|rule| old.contains(rule));
    if same {
        target["spec"]["allow"] = before;
    }
    !same
}

/// Returns every ServiceAccount that the rules name exactly.
pub(crate) fn all_allowed(target: &Value) -> Vec<ServiceAccount> {
    let rules = target.pointer("/spec/allow").and_then(Value::as_array);
    let mut namespaces: Vec<Namespace> = rules
        .into_iter()
        .flatten()
        .flat_map(|rule| texts(rule, "namespaces"))
        .filter_map(|name| Namespace::new(name).ok())
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
        .iter()
        .flat_map(|namespace| allowed_in(target, namespace))
        .collect()
}

/// Removes this ServiceAccount from the rules of `spec.allow` that name it exactly. Returns whether
/// anything was removed. A rule that selects namespaces by labels stays.
pub(crate) fn disallow(target: &mut Value, account: &ServiceAccount) -> bool {
    let Some(rules) = target
        .pointer_mut("/spec/allow")
        .and_then(Value::as_array_mut)
    else {
        return false;
    };
    let (namespace, name) = (account.namespace.as_str(), account.name.as_str());
    let before = rules.clone();
    let kept = before
        .iter()
        .flat_map(|rule| without(rule, namespace, name));
    *rules = kept.collect();
    *rules != before
}

/// Returns the ServiceAccounts of a namespace that the rules name exactly.
pub(crate) fn allowed_in(target: &Value, namespace: &Namespace) -> Vec<ServiceAccount> {
    let rules = target.pointer("/spec/allow").and_then(Value::as_array);
    let named = rules
        .into_iter()
        .flatten()
        .filter(|rule| texts(rule, "namespaces").contains(&namespace.as_str()))
        .flat_map(|rule| texts(rule, "serviceAccounts"));
    named
        .filter_map(|name| {
            Some(ServiceAccount {
                namespace: namespace.clone(),
                name: ObjectName::new(name).ok()?,
            })
        })
        .collect()
}

/// Splits a rule so that all its other combinations of namespace and ServiceAccount stay.
fn without(rule: &Value, namespace: &str, name: &str) -> Vec<Value> {
    let (namespaces, accounts) = (texts(rule, "namespaces"), texts(rule, "serviceAccounts"));
    if !namespaces.contains(&namespace) || !accounts.contains(&name) {
        return vec![rule.clone()];
    }
    let except = |all: &[&str], one: &str| -> Vec<String> {
        let others = all.iter().filter(|text| **text != one);
        others.map(|text| (*text).to_owned()).collect()
    };
    let of = |namespaces: Vec<String>, accounts: Vec<String>| {
        let mut part = rule.clone();
        let empty = namespaces.is_empty() || accounts.is_empty();
        part["namespaces"] = json!(namespaces);
        part["serviceAccounts"] = json!(accounts);
        (!empty).then_some(part)
    };
    let all_accounts = accounts.iter().map(|text| (*text).to_owned()).collect();
    [
        of(except(&namespaces, namespace), all_accounts),
        of(vec![namespace.to_owned()], except(&accounts, name)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a rule grants all these deliveries to the ServiceAccount by exact names.
fn grants(rule: &Value, account: &ServiceAccount, deliveries: &[&str]) -> bool {
    let allowed = match rule.get("deliveries") {
        Some(_) => texts(rule, "deliveries"),
        None => DeliveryType::DEFAULT
            .iter()
            .map(|delivery| delivery.as_str())
            .collect(),
    };
    texts(rule, "namespaces").contains(&account.namespace.as_str())
        && texts(rule, "serviceAccounts").contains(&account.name.as_str())
        && deliveries.iter().all(|delivery| allowed.contains(delivery))
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    rule.get(field)
        .and_then(Value::as_array)
        .map(|texts| texts.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
