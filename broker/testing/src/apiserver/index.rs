//! The discovery documents of the Kubernetes API (`/api`, `/apis`, …) that kubectl reads first.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::reviews;

/// One resource that an embedded server answers for.
pub(crate) struct ApiResource {
    /// `v1`, or `<group>/v1`.
    pub(crate) group_version: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    /// What kubectl takes for the name, such as `sa`.
    pub(crate) short_names: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
}

/// The newest release that the embedded servers behave like, as `1.<minor>`.
pub(crate) const NEWEST_MINOR: u16 = 36;

impl ApiResource {
    /// A resource of namespaced objects.
    pub(crate) const fn namespaced(
        group_version: &'static str,
        name: &'static str,
        kind: &'static str,
        short_names: &'static [&'static str],
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group_version,
            name,
            kind,
            short_names,
            namespaced: true,
            verbs,
        }
    }

    /// The resource of namespaces.
    pub(crate) const fn namespaces(verbs: &'static [&'static str]) -> Self {
        Self {
            group_version: "v1",
            name: "namespaces",
            kind: "Namespace",
            short_names: &["ns"],
            namespaced: false,
            verbs,
        }
    }

    /// A review, which is created and not stored.
    pub(crate) const fn review(
        group_version: &'static str,
        name: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group_version,
            name,
            kind,
            short_names: &[],
            namespaced: false,
            verbs: &["create"],
        }
    }
}

/// Routes for `/version` of release 1.`minor`, `/readyz` and the discovery documents of `resources`
/// and of the reviews.
pub(crate) fn routes<S>(resources: &'static [ApiResource], minor: u16) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let mut router = Router::new()
        .route("/version", get(move || async move { Json(version(minor)) }))
        .route("/readyz", get(async || "ok"))
        .route("/api", get(async || Json(core_versions())))
        .route("/apis", get(move || async move { Json(groups(resources)) }));
    let mut seen: Vec<&str> = Vec::new();
    for resource in listed(resources) {
        let group_version = resource.group_version;
        if seen.contains(&group_version) {
            continue;
        }
        seen.push(group_version);
        let prefix = if group_version == "v1" {
            "/api"
        } else {
            "/apis"
        };
        router = router.route(
            &format!("{prefix}/{group_version}"),
            get(move || async move { Json(resource_list(group_version, resources)) }),
        );
    }
    router
}

fn listed(resources: &'static [ApiResource]) -> impl Iterator<Item = &'static ApiResource> {
    resources.iter().chain(reviews::SERVED)
}

fn version(minor: u16) -> Value {
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "gitVersion": format!("v1.{minor}.0+keyferry-embedded"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "embedded",
    })
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn groups(resources: &'static [ApiResource]) -> Value {
    let mut groups: Vec<Value> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for resource in listed(resources) {
        let Some((group, version)) = resource.group_version.split_once('/') else {
            continue;
        };
        if seen.contains(&group) {
            continue;
        }
        seen.push(group);
        let served = json!({"groupVersion": resource.group_version, "version": version});
        groups.push(json!({"name": group, "versions": [served], "preferredVersion": served}));
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resource_list(group_version: &str, resources: &'static [ApiResource]) -> Value {
    let entries: Vec<Value> = listed(resources)
        .filter(|resource| resource.group_version == group_version)
        .map(|resource| {
            json!({
                "name": resource.name,
                "singularName": resource.kind.to_lowercase(),
                "shortNames": resource.short_names,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": resource.verbs,
            })
        })
        .collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    })
}
