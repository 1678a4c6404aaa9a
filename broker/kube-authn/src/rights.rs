//! The rights that Flux needs to apply objects: the verbs for each, and Roles that grant the
//! missing ones.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The verbs that kustomize-controller uses on an object: it reads it, applies it server-side
/// (which creates a missing one), and prunes it.
pub const OBJECT_VERBS: [&str; 4] = ["get", "create", "patch", "delete"];

/// A resource type that the target serves, or that one of the objects defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name, as used in API paths and RBAC rules.
    pub resource: String,
    /// Whether objects of this type live in a namespace.
    pub namespaced: bool,
}

/// The API version and kind of an object, as its manifest states them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManifestKind {
    /// `apiVersion` of the manifest.
    pub api_version: String,
    /// `kind` of the manifest.
    pub kind: String,
}

/// One right to check: a verb on an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededRight {
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The object's name; empty for `create`, and where the object has none.
    pub name: String,
    /// The verb, like `get`.
    pub verb: &'static str,
}

/// Returns the kind of an object; `None` if `apiVersion` or `kind` is missing.
#[must_use]
pub fn kind_of(object: &Value) -> Option<ManifestKind> {
    let text = |name: &str| {
        object
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    Some(ManifestKind {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
    })
}

/// Returns the kinds that CustomResourceDefinitions among the objects will define.
#[must_use]
pub fn defined_kinds(objects: &[Value]) -> BTreeMap<ManifestKind, Served> {
    let definitions = objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    let mut kinds = BTreeMap::new();
    for spec in definitions.map(|object| &object["spec"]) {
        let (group, names) = (spec["group"].as_str().unwrap_or_default(), &spec["names"]);
        let (Some(kind), Some(resource)) = (names["kind"].as_str(), names["plural"].as_str())
        else {
            continue;
        };
        for version in spec["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|version| version["name"].as_str())
        {
            let served = Served {
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespaced: spec["scope"] == "Namespaced",
            };
            kinds.insert(
                ManifestKind {
                    api_version: format!("{group}/{version}"),
                    kind: kind.to_owned(),
                },
                served,
            );
        }
    }
    kinds
}

/// Lists the rights needed for one object. A namespaced object that names no namespace is in
/// `default_namespace`.
#[must_use]
pub fn needed_rights(object: &Value, served: &Served, default_namespace: &str) -> Vec<NeededRight> {
    let text = |name: &str| {
        object["metadata"][name]
            .as_str()
            .filter(|text| !text.is_empty())
    };
    let namespace = served
        .namespaced
        .then(|| text("namespace").unwrap_or(default_namespace).to_owned());
    let need = |verb| NeededRight {
        namespace: namespace.clone(),
        group: served.group.clone(),
        resource: served.resource.clone(),
        // The apiserver authorises a create without a name.
        name: if verb == "create" {
            String::new()
        } else {
            text("name").unwrap_or_default().to_owned()
        },
        verb,
    };
    OBJECT_VERBS.into_iter().map(need).collect()
}

/// Verbs by group and resource.
type Rules<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>>;

/// Builds a Role for each namespace, and a ClusterRole, that grant the missing rights. They are for
/// review, so they leave out the names of objects.
#[must_use]
pub fn roles_for(missing: &[NeededRight]) -> Vec<Value> {
    let mut places: BTreeMap<Option<&str>, Rules<'_>> = BTreeMap::new();
    for need in missing {
        let rules = places.entry(need.namespace.as_deref()).or_default();
        rules
            .entry((&need.group, &need.resource))
            .or_default()
            .insert(need.verb);
    }
    places
        .into_iter()
        .map(|(namespace, rules)| role_object(namespace, &rules))
        .collect()
}

/// Builds a Role, or a ClusterRole without a namespace, that grants the rights. Each right is
/// group, resource and verb.
#[must_use]
pub fn role_for(namespace: Option<&str>, rights: &[(&str, &str, &str)]) -> Value {
    let mut rules = Rules::new();
    for (group, resource, verb) in rights {
        rules.entry((group, resource)).or_default().insert(verb);
    }
    role_object(namespace, &rules)
}

/// Builds the binding of a [`roles_for`] role to a user, with the role's name and namespace.
#[must_use]
pub fn role_binding(role: &Value, user: &str) -> Value {
    let metadata = &role["metadata"];
    let (kind, of) = if role["kind"] == "Role" {
        ("RoleBinding", "Role")
    } else {
        ("ClusterRoleBinding", "ClusterRole")
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": metadata["name"] }, "subjects": [binding_subject(user)],
    })
}

/// Returns a user as the subject of a binding. Only the target's own ServiceAccounts are subjects
/// of kind ServiceAccount.
#[must_use]
pub fn binding_subject(user: &str) -> Value {
    match user
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, name)) => {
            json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
        }
        None => json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }),
    }
}

fn role_object(namespace: Option<&str>, rules: &Rules<'_>) -> Value {
    let rules: Vec<Value> =
        rules.iter().map(|((group, resource), verbs)| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })).collect();
    let (kind, mut metadata) = (
        if namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        },
        json!({ "name": "flux-apply" }),
    );
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(resource: &str, namespaced: bool) -> Served {
        Served {
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            namespaced,
        }
    }

    #[test]
    fn each_object_needs_four_verbs_where_it_is() {
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a", "namespace": "n" } });
        let asked = needed_rights(&object, &served("deployments", true), "default");
        assert_eq!(
            asked.iter().map(|need| need.verb).collect::<Vec<_>>(),
            OBJECT_VERBS
        );
        assert!(
            asked
                .iter()
                .all(|need| need.namespace.as_deref() == Some("n")
                    && need.name.is_empty() == (need.verb == "create"))
        );
        let bare = json!({ "metadata": { "name": "a" } });
        assert_eq!(
            needed_rights(&bare, &served("x", true), "default")
                .first()
                .and_then(|need| need.namespace.clone())
                .as_deref(),
            Some("default")
        );
        assert!(
            needed_rights(&object, &served("x", false), "default")
                .iter()
                .all(|need| need.namespace.is_none())
        );
    }

    #[test]
    fn a_definition_among_the_objects_says_where_its_kind_belongs() {
        let definition = json!({ "kind": "CustomResourceDefinition", "spec": {
            "group": "g.io", "scope": "Cluster", "names": { "kind": "Thing", "plural": "things" }, "versions": [{ "name": "v1" }],
        } });
        let kinds = defined_kinds(&[definition, json!({ "kind": "Other" })]);
        let kind = ManifestKind {
            api_version: "g.io/v1".to_owned(),
            kind: "Thing".to_owned(),
        };
        assert_eq!(
            kinds.get(&kind),
            Some(&Served {
                group: "g.io".to_owned(),
                resource: "things".to_owned(),
                namespaced: false
            })
        );
        assert_eq!(kinds.len(), 1);
    }

    #[test]
    fn a_user_of_the_hub_is_bound_as_a_user() {
        let role = role_for(
            Some("apps"),
            &[
                ("apps", "deployments/scale", "patch"),
                ("apps", "deployments/scale", "get"),
            ],
        );
        assert_eq!(
            role["rules"],
            json!([{ "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"] }])
        );
        let user = "hub:system:serviceaccount:a:b";
        let bound = role_binding(&role, user);
        assert_eq!(
            (&bound["kind"], &bound["metadata"]["namespace"]),
            (&json!("RoleBinding"), &json!("apps"))
        );
        assert_eq!(
            (&bound["subjects"][0]["kind"], &bound["subjects"][0]["name"]),
            (&json!("User"), &json!(user))
        );
        let own = role_binding(
            &role_for(None, &[("", "pods", "get")]),
            "system:serviceaccount:apps:deployer",
        );
        assert_eq!(
            (&own["kind"], &own["roleRef"]["kind"]),
            (&json!("ClusterRoleBinding"), &json!("ClusterRole"))
        );
        assert_eq!(
            own["subjects"],
            json!([{ "kind": "ServiceAccount", "namespace": "apps", "name": "deployer" }])
        );
    }

    #[test]
    fn what_is_missing_becomes_one_role_for_each_place() {
        let need = |namespace: Option<&str>, verb| NeededRight {
            namespace: namespace.map(str::to_owned),
            group: String::new(),
            resource: "pods".to_owned(),
            name: "p".to_owned(),
            verb,
        };
        let roles = roles_for(&[
            need(Some("a"), "get"),
            need(Some("a"), "patch"),
            need(None, "get"),
            need(Some("a"), "get"),
        ]);
        assert_eq!(
            roles
                .iter()
                .map(|role| role["kind"].as_str().unwrap_or_default())
                .collect::<Vec<_>>(),
            ["ClusterRole", "Role"]
        );
        let expected =
            json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"] }]);
        assert_eq!(roles.get(1).map(|role| &role["rules"]), Some(&expected));
    }
}
