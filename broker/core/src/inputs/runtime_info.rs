//! The two ConfigMaps with the names of a child cluster, for its Flux: `cluster-identity` and
//! `flux-runtime-info`.

use keyferry_api::config::ClusterIdentity;
use keyferry_api::name::Namespace;
use serde_json::{Value, json};

/// What the ConfigMaps state beside the cluster's identity.
#[derive(Clone, Debug)]
pub struct RuntimeInfo<'a> {
    /// The cluster's identity.
    pub identity: &'a ClusterIdentity,
    /// The origin at which the cluster reaches Keyferry's API listener.
    pub internal_api_url: &'a str,
    /// The tag of the artifacts that the cluster runs, such as `latest-stable`.
    pub artifact_tag: &'a str,
    /// The hub's name, which begins the user names of its ServiceAccounts at the cluster.
    pub hub_name: &'a str,
    /// The TargetCluster's name.
    pub target: &'a str,
    /// The namespace of the ConfigMaps on the cluster.
    pub namespace: &'a Namespace,
}

impl RuntimeInfo<'_> {
    /// The ConfigMaps, in the order in which they are applied.
    pub fn config_maps(&self) -> [Value; 2] {
        let identity = self.identity;
        let dns = identity.cluster_dns.as_str();
        let cluster_identity = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "cluster-identity", "namespace": self.namespace.as_str() },
            "data": {
                "CLUSTER_NAME": identity.cluster_name,
                "CLUSTER_DNS": dns,
                "ENVIRONMENT": identity.environment,
                "INTERNAL_API_URL": self.internal_api_url,
            },
        });
        // The label lets ResourceSets copy it into tenants' namespaces; with the annotation,
        // kustomize-controller keeps entries that others add.
        let runtime_info = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "flux-runtime-info",
                "namespace": self.namespace.as_str(),
                "labels": { "toolkit.fluxcd.io/runtime": "true" },
                "annotations": { "kustomize.toolkit.fluxcd.io/ssa": "Merge" },
            },
            "data": {
                "ARTIFACT_TAG": self.artifact_tag,
                "ENVIRONMENT": identity.environment,
                "CLUSTER_NAME": identity.cluster_name,
                "CLUSTER_DOMAIN": dns,
                "HUB_NAME": self.hub_name,
                "TARGET_NAME": self.target,
            },
        });
        [cluster_identity, runtime_info]
    }
}
