//! What an apiserver answers about the APIs that it serves: `/api`, `/apis` and the list of one
//! group, in the aggregated form of Kubernetes 1.30 and in the older one.

use serde::Deserialize;

use crate::lenient::{or_default, readable_items};

/// The kind of the aggregated form.
const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";

/// The answer of `/api` or `/apis`, in whichever form: an `APIGroupDiscoveryList`, an
/// `APIVersions` or an `APIGroupList`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiDiscovery {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    /// The groups of an `APIGroupDiscoveryList`.
    #[serde(rename = "items", deserialize_with = "readable_items")]
    pub(crate) aggregated_groups: Vec<AggregatedGroup>,
    /// The versions of the core group, of an `APIVersions`.
    #[serde(rename = "versions", deserialize_with = "readable_items")]
    pub(crate) core_versions: Vec<String>,
    /// The groups of an `APIGroupList`.
    #[serde(deserialize_with = "readable_items")]
    pub(crate) groups: Vec<ApiGroup>,
}

/// A group of the aggregated form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AggregatedGroup {
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: GroupMetadata,
    /// In the order of preference.
    #[serde(deserialize_with = "readable_items")]
    pub(crate) versions: Vec<AggregatedVersion>,
}

/// The name of a group; the core group has none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupMetadata {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
}

/// A version of a group, with its resources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AggregatedVersion {
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
    #[serde(deserialize_with = "or_default")]
    freshness: String,
    #[serde(deserialize_with = "readable_items")]
    pub(crate) resources: Vec<AggregatedResource>,
}

/// A resource of the aggregated form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AggregatedResource {
    /// The plural name.
    #[serde(deserialize_with = "or_default")]
    pub(crate) resource: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) singular_resource: String,
    #[serde(deserialize_with = "readable_items")]
    pub(crate) short_names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) response_kind: ResponseKind,
    #[serde(deserialize_with = "or_default")]
    scope: String,
    #[serde(deserialize_with = "readable_items")]
    pub(crate) subresources: Vec<AggregatedSubresource>,
}

/// The kind of a resource's objects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseKind {
    #[serde(deserialize_with = "or_default")]
    pub(crate) kind: String,
}

/// A subresource of the aggregated form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AggregatedSubresource {
    #[serde(deserialize_with = "or_default")]
    pub(crate) subresource: String,
}

/// A group of an `APIGroupList`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApiGroup {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) preferred_version: GroupVersion,
    #[serde(deserialize_with = "readable_items")]
    pub(crate) versions: Vec<GroupVersion>,
}

/// A version of a group, alone and as `GROUP/VERSION`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GroupVersion {
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) group_version: String,
}

/// The resources of one group version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiResourceList {
    #[serde(deserialize_with = "readable_items")]
    pub(crate) resources: Vec<ApiResource>,
}

/// A resource of an `APIResourceList`, or one of its subresources, named `RESOURCE/SUBRESOURCE`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApiResource {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) singular_name: String,
    #[serde(deserialize_with = "readable_items")]
    pub(crate) short_names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespaced: bool,
}

impl ApiDiscovery {
    /// Whether the answer has the aggregated form.
    pub(crate) fn is_aggregated(&self) -> bool {
        self.kind == AGGREGATED_KIND
    }
}

impl AggregatedVersion {
    /// Whether the server could not read the resources just now, as of an extension server that is
    /// down.
    pub(crate) fn is_stale(&self) -> bool {
        self.freshness == "Stale"
    }
}

impl AggregatedResource {
    /// Whether objects of this resource are in a namespace.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == "Namespaced"
    }
}

impl ApiResource {
    /// Whether it is no subresource.
    pub(crate) fn is_whole(&self) -> bool {
        !self.name.contains('/')
    }
}
