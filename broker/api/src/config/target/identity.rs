//! `spec.identity`: how a fleet names a target, and where its inputs are found.

use serde::{Deserialize, Serialize};

use crate::config::check::Check;
use crate::name::{self, ClusterDns};

/// The names by which a fleet knows one target. They never change once they are set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterIdentity {
    /// The cluster's short name, an RFC 1123 label.
    pub cluster_name: String,
    /// The cluster's DNS name, which no other target has. It is part of the paths of its inputs.
    pub cluster_dns: ClusterDns,
    /// The environment, such as `production`, an RFC 1123 label.
    pub environment: String,
}

/// The identity as written.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClusterIdentitySpec {
    /// The cluster's short name, such as prod-eu.
    #[schemars(with = "crate::name::Namespace")]
    cluster_name: String,
    /// The cluster's DNS name, such as prod-eu.fleet.example.com. No two targets have the same.
    #[serde(rename = "clusterDNS")]
    #[schemars(with = "crate::name::ObjectName")]
    cluster_dns: String,
    /// The environment that the cluster belongs to, such as production.
    #[schemars(with = "crate::name::Namespace")]
    environment: String,
}

/// Reads an identity, and notes its mistakes.
pub(super) fn read_identity(
    written: Option<ClusterIdentitySpec>,
    check: &mut Check<'_>,
) -> Option<ClusterIdentity> {
    let written = written?;
    let mut label = |path: &str, text: String, fix: &str| {
        let checked = name::check_label(&text).map(|()| text);
        check.take(path, checked, fix)
    };
    let cluster_name = label(
        "spec.identity.clusterName",
        written.cluster_name,
        "write a short name such as prod-eu",
    );
    let environment = label(
        "spec.identity.environment",
        written.environment,
        "write a short name such as production",
    );
    let cluster_dns = check.take(
        "spec.identity.clusterDNS",
        ClusterDns::new(written.cluster_dns),
        "write a DNS name in lower case such as prod-eu.fleet.example.com",
    );
    Some(ClusterIdentity {
        cluster_name: cluster_name?,
        cluster_dns: cluster_dns?,
        environment: environment?,
    })
}
