//! The objects of a target and of a tenant on the hub. Pure: values in, values out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::DeliveryType;
use keyferry_api::managed_issuer;
use keyferry_api::name::{AccessName, NameError, Namespace, ObjectName, RoleName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::object_view::{AccessView, DeliveryView, ObjectHead};
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

    /// Returns what the TargetAccess needs, in the order in which it can be applied. `keyferry` is
    /// Keyferry's own namespace.
    pub(crate) fn prerequisites(&self, keyferry: &Namespace) -> Vec<Value> {
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

    /// Returns the TargetAccess.
    pub(crate) fn target_access(&self) -> Value {
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
pub(crate) fn deliveries_of(access: &AccessView) -> Vec<DeliveryType> {
    let named = access.spec.deliveries.iter();
    let known = |entry: &DeliveryView| {
        let mut all = DeliveryType::ALL.iter();
        all.find(|(name, _)| *name == entry.delivery_type)
    };
    named
        .filter_map(known)
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
    let name = format!("{}-ca", ObjectHead::of(target).metadata.name);
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
const IDENTITY: [&str; 7] = [
    "address",
    "tlsServerName",
    "proxyURL",
    "audience",
    "issuer",
    "sameAs",
    "role",
];

/// Returns a TargetCluster that is a role at the cluster of `base`. Its tokens live as long as the
/// base's may, because a longer life is refused.
pub(crate) fn role_target(
    name: &ObjectName,
    base: &Value,
    role: &RoleName,
    audience: &Audience,
) -> Value {
    let mut spec = json!({
        "sameAs": ObjectHead::of(base).metadata.name,
        "role": role.as_str(),
        "audience": audience.as_str(),
    });
    if let Some(lifetime) = base.pointer("/spec/tokenLifetime") {
        spec["tokenLifetime"] = lifetime.clone();
    }
    json!({
        "apiVersion": KEYFERRY,
        "kind": "TargetCluster",
        "metadata": { "name": name.as_str() },
        "spec": spec,
    })
}

/// Returns the fields in which a kubeconfig leads elsewhere than to an existing TargetCluster.
pub(crate) fn elsewhere(existing: &Value, imported: &Value) -> Vec<&'static str> {
    let places = ["address", "tlsServerName", "proxyURL"];
    let mut fields = differing(existing, imported);
    fields.retain(|field| places.contains(field));
    fields
}

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

/// States who signs the tokens of a TargetCluster that is to be created, and its own issuer.
pub(crate) fn state_issuers(target: &mut Value, is_managed: bool, own_issuer: Option<&str>) {
    let Some(spec) = target.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if is_managed {
        spec.insert("issuer".to_owned(), json!("Keyferry"));
    }
    if let Some(own_issuer) = own_issuer {
        spec.insert("targetIssuer".to_owned(), json!(own_issuer));
    }
}

/// States the kind of an object of Keyferry, which some servers omit.
pub(crate) fn with_kind(mut object: Value, kind: &str) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".to_owned(), json!(KEYFERRY));
        members.insert("kind".to_owned(), json!(kind));
    }
    object
}

/// An existing TargetCluster as it can be applied again: of exactly this version, and without what
/// the API sets.
pub(crate) fn applied_again(existing: &Value) -> Value {
    let metadata = ObjectHead::of(existing).metadata;
    json!({
        "apiVersion": KEYFERRY,
        "kind": "TargetCluster",
        "metadata": { "name": metadata.name, "resourceVersion": metadata.resource_version },
        "spec": existing.get("spec"),
    })
}

#[cfg(test)]
mod tests;
