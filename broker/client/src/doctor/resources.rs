//! Resolves the name of a resource by a target's discovery, as kubectl does: plural, singular,
//! short name or kind, in any case, with or without the group.

use crate::doctor::api_discovery::{
    AggregatedGroup, AggregatedResource, ApiDiscovery, ApiGroup, ApiResourceList,
};
use crate::doctor::resource_attributes::ResourceAttributes;
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
    pub attributes: ResourceAttributes,
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
    attributes: &ResourceAttributes,
) -> Result<ResolvedResource, ResourceError> {
    if attributes.resource == "*" {
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
    pub(crate) resolved: Vec<ResourceAttributes>,
    /// The rights whose resource could not be looked up, as they were given: a denial of one says
    /// nothing.
    pub(crate) unresolved: Vec<ResourceAttributes>,
    /// Why not.
    pub(crate) unread: String,
}

/// Resolves every need.
///
/// # Errors
/// [`ResourceError::Unknown`].
pub(crate) async fn resolve_needs(
    calls: &TargetCalls,
    needs: &[ResourceAttributes],
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

fn find(
    served: &ServedResources,
    attributes: &ResourceAttributes,
) -> Result<ResolvedResource, ResourceError> {
    let wanted = attributes.resource.to_ascii_lowercase();
    let group = attributes.group.to_ascii_lowercase();
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
    let mut resolved = ResourceAttributes {
        resource: found.plural.clone(),
        group: found.group.clone(),
        ..attributes.clone()
    };
    // As in kubectl, TYPE/NAME names an object, unless the target has a subresource of this name.
    if !resolved.subresource.is_empty() && !found.subresources.contains(&resolved.subresource) {
        resolved.name = std::mem::take(&mut resolved.subresource);
    }
    if !found.namespaced {
        resolved.namespace.clear();
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
            let answer: ApiDiscovery = self.discovery(path).await?;
            if answer.is_aggregated() {
                served
                    .resources
                    .extend(aggregated(&answer.aggregated_groups));
                served.unlisted.extend(stale(&answer.aggregated_groups));
                continue;
            }
            served.unlisted.extend(other_versions(&answer.groups));
            let groups = preferred(&answer);
            for (group, version) in groups.iter().take(MAX_GROUPS) {
                let path = match group.as_str() {
                    "" => format!("/api/{version}"),
                    group => format!("/apis/{group}/{version}"),
                };
                // One group whose server is down hides no other.
                match self.get_json::<ApiResourceList>(&path).await {
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

/// Returns the versions that the server could not read just now.
fn stale(groups: &[AggregatedGroup]) -> Vec<String> {
    let of_group = |group: &AggregatedGroup| {
        let versions = group.versions.iter().filter(|version| version.is_stale());
        versions
            .map(|version| format!("{}/{}", group.metadata.name, version.version))
            .collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Returns the versions of an `APIGroupList` that are not preferred, and so not read: one of them
/// can have a resource that the preferred one lacks.
fn other_versions(groups: &[ApiGroup]) -> Vec<String> {
    let of_group = |group: &ApiGroup| {
        let preferred = &group.preferred_version.group_version;
        let versions = group.versions.iter().map(|version| &version.group_version);
        versions
            .filter(|version| *version != preferred)
            .cloned()
            .collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Returns the resources of the aggregated form, each in the version that is preferred.
fn aggregated(groups: &[AggregatedGroup]) -> Vec<ServedResource> {
    let mut served: Vec<ServedResource> = Vec::new();
    for group in groups {
        let name = &group.metadata.name;
        for resource in group.versions.iter().flat_map(|version| &version.resources) {
            let is_listed = served
                .iter()
                .any(|one| one.group == *name && one.plural == resource.resource);
            if !is_listed {
                served.push(ServedResource::of_aggregated(name, resource));
            }
        }
    }
    served
}

impl ServedResource {
    fn of_aggregated(group: &str, resource: &AggregatedResource) -> Self {
        let subresources = resource.subresources.iter();
        Self {
            group: group.to_owned(),
            plural: resource.resource.clone(),
            singular: resource.singular_resource.clone(),
            short_names: resource.short_names.clone(),
            kind: resource.response_kind.kind.clone(),
            namespaced: resource.is_namespaced(),
            subresources: subresources.map(|one| one.subresource.clone()).collect(),
        }
    }
}

/// Returns the preferred version of each group, of an `APIVersions` or an `APIGroupList`. Names that
/// would change the path are left out.
fn preferred(answer: &ApiDiscovery) -> Vec<(String, String)> {
    let core = answer.core_versions.iter().take(1);
    let core = core.map(|version| (String::new(), version.clone()));
    let groups = answer.groups.iter();
    let groups = groups.map(|group| (group.name.clone(), group.preferred_version.version.clone()));
    let is_name = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && !text.starts_with('.')
    };
    core.chain(groups)
        .filter(|(group, version)| is_name(group) && is_name(version) && !version.is_empty())
        .collect()
}

/// Returns the resources of an `APIResourceList`.
fn of_list(group: &str, list: &ApiResourceList) -> Vec<ServedResource> {
    let subresources = |name: &str| {
        let names = list.resources.iter();
        names
            .filter_map(|resource| resource.name.split_once('/'))
            .filter(|(parent, _)| *parent == name)
            .map(|(_, subresource)| subresource.to_owned())
            .collect()
    };
    let resources = list.resources.iter().filter(|resource| resource.is_whole());
    resources
        .map(|resource| ServedResource {
            group: group.to_owned(),
            plural: resource.name.clone(),
            singular: resource.singular_name.clone(),
            short_names: resource.short_names.clone(),
            kind: resource.kind.clone(),
            namespaced: resource.namespaced,
            subresources: subresources(&resource.name),
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: DeserializeOwned>(answer: Value) -> T {
        serde_json::from_value(answer).unwrap()
    }

    fn groups(answer: Value) -> Vec<AggregatedGroup> {
        read::<ApiDiscovery>(answer).aggregated_groups
    }

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
        let (core, named) = (groups(core), groups(named));
        ServedResources {
            resources: [aggregated(&core), aggregated(&named)].concat(),
            unlisted: stale(&named),
        }
    }

    fn attributes(resource: &str) -> ResourceAttributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        ResourceAttributes {
            verb: "get".to_owned(),
            resource: resource.to_owned(),
            group: group.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "shop".to_owned(),
            ..ResourceAttributes::default()
        }
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
            let shown = format!(
                "{}|{}|{}|{}",
                found.resource, found.group, found.subresource, found.name
            );
            assert_eq!(shown, full, "{name}");
            assert_eq!(found.namespace, "shop", "{name}");
        }
    }

    #[test]
    fn a_resource_of_the_cluster_has_no_namespace() {
        let nodes = find(&served(), &attributes("no")).unwrap();
        assert!(!nodes.namespaced);
        assert_eq!(nodes.attributes.namespace, "");
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
        let list = groups(list);
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
        let old: ApiDiscovery = read(json!({ "groups": [{
            "name": "apps", "preferredVersion": { "groupVersion": "apps/v1" },
            "versions": [{ "groupVersion": "apps/v1" }, { "groupVersion": "apps/v1beta1" }],
        }] }));
        assert_eq!(other_versions(&old.groups), ["apps/v1beta1"]);
    }

    #[test]
    fn lists_of_one_group_are_read_too() {
        let list = json!({ "resources": [
            { "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"] },
            { "name": "pods/log", "namespaced": true, "kind": "Pod" },
        ] });
        let listed = of_list("", &read(list));
        assert_eq!(listed.len(), 1);
        assert_eq!(
            listed,
            aggregated(&groups(json!({ "items": [{ "versions": [{ "resources": [
            { "resource": "pods", "singularResource": "pod", "shortNames": ["po"], "scope": "Namespaced",
              "responseKind": { "kind": "Pod" }, "subresources": [{ "subresource": "log" }] },
        ] }] }] })))
        );
        let groups = json!({ "groups": [
            { "name": "apps", "preferredVersion": { "version": "v1" } },
            { "name": "../x", "preferredVersion": { "version": "v1" } },
        ] });
        let of_apps = ("apps".to_owned(), "v1".to_owned());
        assert_eq!(preferred(&read(groups)), [of_apps]);
        let core = json!({ "versions": ["v1"] });
        assert_eq!(preferred(&read(core)), [(String::new(), "v1".to_owned())]);
    }
}
