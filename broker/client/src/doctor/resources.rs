//! Resolves the name of a resource by a target's discovery, as kubectl does: plural, singular,
//! short name or kind, in any case, with or without the group.

use serde_json::{Value, json};

use crate::doctor::target_calls::{TargetCallError, TargetCalls};

/// How many similar names a message lists.
const MAX_NEAR_NAMES: usize = 3;
/// How many API groups of a server without aggregated discovery are read.
const MAX_GROUPS: usize = 200;

/// A resource that a target serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedResource {
    group: String,
    plural: String,
    singular: String,
    short_names: Vec<String>,
    kind: String,
    namespaced: bool,
    subresources: Vec<String>,
}

/// What a target's discovery lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedResources {
    resources: Vec<ServedResource>,
    /// The group versions whose resources are not, or perhaps not, all listed.
    unlisted: Vec<String>,
}

/// A resource of a review, as the target serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedResource {
    /// The attributes of a review, with the resource's plural name and group. The namespace is
    /// empty for a resource of the whole cluster.
    pub attributes: Value,
    /// Whether objects of this resource are in a namespace.
    pub namespaced: bool,
}

/// Why a resource is not resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The target does not serve it.
    #[error("the target serves no resource {resource:?}{}", nearly(near))]
    Unknown {
        /// The name as given.
        resource: String,
        /// Similar names that the target serves.
        near: Vec<String>,
    },
    /// The target's discovery could not be read, or lacks the resources of some groups.
    #[error("the resources that the target serves could not be read: {0}")]
    Unread(String),
}

fn nearly(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; near it are {}", near.join(", "))
    }
}

/// Resolves the resource of a review's attributes.
///
/// # Errors
/// [`ResourceError`].
pub async fn resolve(
    calls: &TargetCalls,
    attributes: &Value,
) -> Result<ResolvedResource, ResourceError> {
    if text(attributes, "resource") == "*" {
        return Ok(ResolvedResource {
            attributes: attributes.clone(),
            namespaced: true,
        });
    }
    let served = calls
        .served_resources()
        .await
        .map_err(|error| ResourceError::Unread(error.to_string()))?;
    find(&served, attributes)
}

/// The needed rights, with the resources by their own names.
#[derive(Debug, Default)]
pub(crate) struct ResolvedNeeds {
    /// The rights whose resource was found.
    pub(crate) resolved: Vec<Value>,
    /// The rights whose resource could not be looked up, as they were given: a denial of one says
    /// nothing.
    pub(crate) unresolved: Vec<Value>,
    /// Why not.
    pub(crate) unread: String,
}

/// Resolves every need.
///
/// # Errors
/// [`ResourceError::Unknown`].
pub(crate) async fn resolve_needs(
    calls: &TargetCalls,
    needs: &[Value],
) -> Result<ResolvedNeeds, ResourceError> {
    let mut all = ResolvedNeeds::default();
    for need in needs {
        match resolve(calls, need).await {
            Ok(resource) => all.resolved.push(resource.attributes),
            Err(ResourceError::Unread(why)) => {
                all.unresolved.push(need.clone());
                all.unread = why;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

pub(crate) fn text<'a>(attributes: &'a Value, member: &str) -> &'a str {
    attributes
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn find(served: &ServedResources, attributes: &Value) -> Result<ResolvedResource, ResourceError> {
    let wanted = text(attributes, "resource").to_ascii_lowercase();
    let group = text(attributes, "group").to_ascii_lowercase();
    let named_resource = by_name(&served.resources, &wanted, &group);
    let Some(found) = named_resource else {
        if let Some(first) = served.unlisted.first() {
            let more = match served.unlisted.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return Err(ResourceError::Unread(format!("those of {first}{more}")));
        }
        let resource = match group.as_str() {
            "" => wanted,
            group => format!("{wanted}.{group}"),
        };
        return Err(ResourceError::Unknown {
            near: near_names(&served.resources, &resource),
            resource,
        });
    };
    let mut resolved = attributes.clone();
    resolved["resource"] = found.plural.as_str().into();
    resolved["group"] = found.group.as_str().into();
    // As in kubectl, TYPE/NAME names an object, unless the target has a subresource of this name.
    let subresource = text(attributes, "subresource").to_owned();
    if !subresource.is_empty() && !found.subresources.contains(&subresource) {
        resolved["subresource"] = "".into();
        resolved["name"] = subresource.into();
    }
    if !found.namespaced {
        resolved["namespace"] = "".into();
    }
    Ok(ResolvedResource {
        attributes: resolved,
        namespaced: found.namespaced,
    })
}

/// Finds the resource in the order of kubectl: the full name, then a short name, then the singular
/// or the kind. Among equals, the first group of the target's own order wins; the core group is
/// first.
fn by_name<'a>(
    served: &'a [ServedResource],
    wanted: &str,
    group: &str,
) -> Option<&'a ServedResource> {
    let rules: [&dyn Fn(&ServedResource) -> bool; 3] = [
        &|one| one.plural == wanted,
        &|one| one.short_names.iter().any(|short| short == wanted),
        &|one| one.singular == wanted || one.kind.to_ascii_lowercase() == wanted,
    ];
    let groups: [&dyn Fn(&ServedResource) -> bool; 2] = [
        &|one| group.is_empty() || one.group == group || one.group == without_version(group),
        &|one| one.group.starts_with(group),
    ];
    groups.iter().find_map(|in_group| {
        rules
            .iter()
            .find_map(|fits| served.iter().find(|one| in_group(one) && fits(one)))
    })
}

/// Removes the version of `deployments.v1.apps`.
fn without_version(group: &str) -> &str {
    match group.split_once('.') {
        Some((version, rest)) if is_version(version) => rest,
        // The core group has no name.
        None if is_version(group) => "",
        _ => group,
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn near_names(served: &[ServedResource], wanted: &str) -> Vec<String> {
    let mut near: Vec<(usize, String)> = served
        .iter()
        .flat_map(|one| {
            let full = match one.group.as_str() {
                "" => one.plural.clone(),
                group => format!("{}.{group}", one.plural),
            };
            [one.plural.clone(), one.singular.clone(), full.clone()]
                .into_iter()
                .map(move |name| (strsim::levenshtein(&name, wanted), full.clone()))
        })
        .filter(|(apart, _)| *apart <= 2 + wanted.len() / 8)
        .collect();
    near.sort();
    let mut names = Vec::new();
    for (_, name) in near {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(MAX_NEAR_NAMES);
    names
}

impl TargetCalls {
    /// Reads the resources that the target serves: by aggregated discovery, which every release
    /// that is supported has, else group by group.
    async fn served_resources(&self) -> Result<ServedResources, TargetCallError> {
        let mut served = ServedResources::default();
        for path in ["/api", "/apis"] {
            let answer = self.discovery(path).await?;
            if answer["kind"] == "APIGroupDiscoveryList" {
                served.resources.extend(aggregated(&answer));
                served.unlisted.extend(stale(&answer));
                continue;
            }
            served.unlisted.extend(other_versions(&answer));
            let groups = preferred(&answer);
            for (group, version) in groups.iter().take(MAX_GROUPS) {
                let path = match group.as_str() {
                    "" => format!("/api/{version}"),
                    group => format!("/apis/{group}/{version}"),
                };
                // One group whose server is down hides no other.
                match self.get_json(&path).await {
                    Ok(list) => served.resources.extend(of_list(group, &list)),
                    Err(_) => served.unlisted.push(format!("{group}/{version}")),
                }
            }
            let left = groups.iter().skip(MAX_GROUPS);
            served
                .unlisted
                .extend(left.map(|(group, version)| format!("{group}/{version}")));
        }
        Ok(served)
    }
}

/// Returns the versions of an `APIGroupDiscoveryList` that the server could not read just now, such
/// as those of an extension server that is down.
fn stale(list: &Value) -> Vec<String> {
    let of_group = |item: &Value| {
        let group = text(&item["metadata"], "name").to_owned();
        items(item, "versions")
            .filter(|version| version["freshness"] == "Stale")
            .map(|version| format!("{group}/{}", text(version, "version")))
            .collect::<Vec<_>>()
    };
    items(list, "items").flat_map(of_group).collect()
}

/// Returns the versions of an `APIGroupList` that are not preferred, and so not read: one of them
/// can have a resource that the preferred one lacks.
fn other_versions(answer: &Value) -> Vec<String> {
    let of_group = |group: &Value| {
        let preferred = group["preferredVersion"]["groupVersion"].clone();
        items(group, "versions")
            .filter(|version| version["groupVersion"] != preferred)
            .map(|version| text(version, "groupVersion").to_owned())
            .collect::<Vec<_>>()
    };
    items(answer, "groups").flat_map(of_group).collect()
}

/// Reads an `APIGroupDiscoveryList` of `apidiscovery.k8s.io`.
fn aggregated(list: &Value) -> Vec<ServedResource> {
    let mut served: Vec<ServedResource> = Vec::new();
    for item in items(list, "items") {
        let group = text(&item["metadata"], "name");
        let versions = items(item, "versions");
        for resource in versions.flat_map(|version| items(version, "resources")) {
            let plural = text(resource, "resource");
            // Versions are in the order of preference.
            if served
                .iter()
                .any(|one| one.group == group && one.plural == plural)
            {
                continue;
            }
            served.push(ServedResource {
                group: group.to_owned(),
                plural: plural.to_owned(),
                singular: text(resource, "singularResource").to_owned(),
                short_names: texts(resource, "shortNames"),
                kind: text(&resource["responseKind"], "kind").to_owned(),
                namespaced: resource["scope"] == "Namespaced",
                subresources: items(resource, "subresources")
                    .map(|one| text(one, "subresource").to_owned())
                    .collect(),
            });
        }
    }
    served
}

/// Reads the preferred version of each group, from an `APIVersions` or an `APIGroupList`. Names that
/// would change the path are left out.
fn preferred(answer: &Value) -> Vec<(String, String)> {
    let core = texts(answer, "versions")
        .into_iter()
        .take(1)
        .map(|version| (String::new(), version));
    let groups = items(answer, "groups").map(|group| {
        let version = text(&group["preferredVersion"], "version");
        (text(group, "name").to_owned(), version.to_owned())
    });
    let is_name = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && !text.starts_with('.')
    };
    core.chain(groups)
        .filter(|(group, version)| is_name(group) && is_name(version) && !version.is_empty())
        .collect()
}

/// Reads an `APIResourceList`.
fn of_list(group: &str, list: &Value) -> Vec<ServedResource> {
    let resources = || items(list, "resources").map(|one| (text(one, "name"), one));
    resources()
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, resource)| ServedResource {
            group: group.to_owned(),
            plural: name.to_owned(),
            singular: text(resource, "singularName").to_owned(),
            short_names: texts(resource, "shortNames"),
            kind: text(resource, "kind").to_owned(),
            namespaced: resource["namespaced"] == json!(true),
            subresources: resources()
                .filter_map(|(full, _)| full.split_once('/'))
                .filter(|(parent, _)| *parent == name)
                .map(|(_, subresource)| subresource.to_owned())
                .collect(),
        })
        .collect()
}

pub(crate) fn items<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(member)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub(crate) fn texts(value: &Value, member: &str) -> Vec<String> {
    items(value, member)
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn served() -> ServedResources {
        let core = json!({ "kind": "APIGroupDiscoveryList", "items": [{ "metadata": {}, "versions": [{ "version": "v1", "resources": [
            { "resource": "pods", "singularResource": "pod", "shortNames": ["po"], "scope": "Namespaced",
              "responseKind": { "kind": "Pod" }, "subresources": [{ "subresource": "log" }] },
            { "resource": "services", "singularResource": "service", "shortNames": ["svc"], "scope": "Namespaced", "responseKind": { "kind": "Service" } },
            { "resource": "nodes", "singularResource": "node", "shortNames": ["no"], "scope": "Cluster", "responseKind": { "kind": "Node" } },
            { "resource": "events", "singularResource": "event", "shortNames": ["ev"], "scope": "Namespaced", "responseKind": { "kind": "Event" } },
        ] }] }] });
        let named = json!({ "kind": "APIGroupDiscoveryList", "items": [
            { "metadata": { "name": "apps" }, "versions": [
                { "version": "v1", "resources": [{ "resource": "deployments", "singularResource": "deployment", "shortNames": ["deploy"],
                  "scope": "Namespaced", "responseKind": { "kind": "Deployment" }, "subresources": [{ "subresource": "scale" }] }] },
                { "version": "v1beta1", "resources": [{ "resource": "deployments", "scope": "Cluster" }] },
            ] },
            { "metadata": { "name": "events.k8s.io" }, "versions": [{ "version": "v1", "resources": [
                { "resource": "events", "singularResource": "event", "shortNames": ["ev"], "scope": "Namespaced", "responseKind": { "kind": "Event" } }] }] },
        ] });
        ServedResources {
            resources: [aggregated(&core), aggregated(&named)].concat(),
            unlisted: stale(&named),
        }
    }

    fn attributes(resource: &str) -> Value {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        json!({ "verb": "get", "resource": resource, "group": group, "subresource": subresource, "namespace": "shop" })
    }

    #[test]
    fn a_resource_is_named_as_in_kubectl() {
        for (name, full) in [
            ("pods", "pods|||"),
            ("po", "pods|||"),
            ("Pod", "pods|||"),
            ("PODS", "pods|||"),
            ("svc", "services|||"),
            ("deploy", "deployments|apps||"),
            ("deployments", "deployments|apps||"),
            ("Deployment", "deployments|apps||"),
            ("deployment.apps", "deployments|apps||"),
            ("deployments.v1.apps", "deployments|apps||"),
            ("deploy.app", "deployments|apps||"),
            ("deployments.apps/scale", "deployments|apps|scale|"),
            ("pods/log", "pods||log|"),
            ("pods/web-1", "pods|||web-1"),
            ("events", "events|||"),
            ("events.events.k8s.io", "events|events.k8s.io||"),
        ] {
            let found = find(&served(), &attributes(name)).unwrap().attributes;
            let part = |member| text(&found, member);
            let shown = format!(
                "{}|{}|{}|{}",
                part("resource"),
                part("group"),
                part("subresource"),
                part("name")
            );
            assert_eq!(shown, full, "{name}");
            assert_eq!(part("namespace"), "shop", "{name}");
        }
    }

    #[test]
    fn a_resource_of_the_cluster_has_no_namespace() {
        let nodes = find(&served(), &attributes("no")).unwrap();
        assert!(!nodes.namespaced);
        assert_eq!(nodes.attributes["namespace"], "");
    }

    #[test]
    fn an_unknown_resource_is_named_with_those_near_it() {
        let near = |name: &str| match find(&served(), &attributes(name)) {
            Err(ResourceError::Unknown { near, .. }) => near,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(near("deploymets"), ["deployments.apps"]);
        assert_eq!(near("pdo"), ["pods"]);
        assert!(near("applications.argoproj.io").is_empty());
        // A group that does not have the resource is not ignored.
        assert_eq!(near("pods.apps").len(), 0);
        let error = find(&served(), &attributes("deploymets")).unwrap_err();
        assert!(error.to_string().ends_with("near it are deployments.apps"));
    }

    /// The server of a group is down: it may have the resource.
    #[test]
    fn no_resource_is_unknown_while_a_group_is_not_listed() {
        let list = json!({ "kind": "APIGroupDiscoveryList", "items": [
            { "metadata": { "name": "metrics.k8s.io" }, "versions": [{ "version": "v1beta1", "freshness": "Stale" }] },
            { "metadata": { "name": "apps" }, "versions": [{ "version": "v1", "freshness": "Current" }] },
        ] });
        assert_eq!(stale(&list), ["metrics.k8s.io/v1beta1"]);
        let partial = ServedResources {
            unlisted: stale(&list),
            ..served()
        };
        assert!(find(&partial, &attributes("deploy")).is_ok());
        let error = find(&partial, &attributes("deploymets")).unwrap_err();
        assert!(matches!(error, ResourceError::Unread(_)), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("those of metrics.k8s.io/v1beta1")
        );
        let groups = json!({ "groups": [{
            "name": "apps", "preferredVersion": { "groupVersion": "apps/v1" },
            "versions": [{ "groupVersion": "apps/v1" }, { "groupVersion": "apps/v1beta1" }],
        }] });
        assert_eq!(other_versions(&groups), ["apps/v1beta1"]);
    }

    #[test]
    fn lists_of_one_group_are_read_too() {
        let list = json!({ "resources": [
            { "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"] },
            { "name": "pods/log", "namespaced": true, "kind": "Pod" },
        ] });
        let read = of_list("", &list);
        assert_eq!(read.len(), 1);
        assert_eq!(
            read,
            aggregated(&json!({ "items": [{ "versions": [{ "resources": [
            { "resource": "pods", "singularResource": "pod", "shortNames": ["po"], "scope": "Namespaced",
              "responseKind": { "kind": "Pod" }, "subresources": [{ "subresource": "log" }] },
        ] }] }] }))
        );
        let groups = json!({ "groups": [
            { "name": "apps", "preferredVersion": { "version": "v1" } },
            { "name": "../x", "preferredVersion": { "version": "v1" } },
        ] });
        assert_eq!(preferred(&groups), [("apps".to_owned(), "v1".to_owned())]);
        let core = json!({ "versions": ["v1"] });
        assert_eq!(preferred(&core), [(String::new(), "v1".to_owned())]);
    }
}
