//! The kind of a target, and the fields that a relying party without a cluster cannot have.

use super::super::access_spec::DeliveryType;
use super::super::allow::AllowRule;
use super::super::check::Check;
use super::{TargetClusterSpec, TargetKind};

/// Reads `kind`, and notes the fields that do not fit it.
pub(super) fn read_kind(spec: &TargetClusterSpec, check: &mut Check<'_>) -> TargetKind {
    let written = spec.kind.as_deref();
    let kind = check
        .choose_or_default("spec.kind", written, "a valid value", TargetKind::ALL)
        .unwrap_or_default();
    if kind == TargetKind::Cluster {
        if spec.address.is_none() && spec.same_as.is_none() {
            check.wrong(
                "spec.address",
                "is missing",
                "write https://host[:port][/path], or kind: Audience for a relying party that is \
                 no cluster",
            );
        }
        return kind;
    }
    for (field, is_set) in [
        ("address", spec.address.is_some()),
        ("tlsServerName", spec.tls_server_name.is_some()),
        ("proxyURL", spec.proxy_url.is_some()),
        ("certSecretRef", spec.cert_secret_ref.is_some()),
        (
            "clusterTrustBundleRef",
            spec.cluster_trust_bundle_ref.is_some(),
        ),
        ("caBundle", spec.ca_bundle.is_some()),
        ("targetIssuer", spec.target_issuer.is_some()),
        ("hub", spec.hub == Some(true)),
    ] {
        if is_set {
            check.wrong(
                &format!("spec.{field}"),
                "is set on a target with kind Audience, to which nothing is sent",
                "remove it, or create the target with kind: Cluster",
            );
        }
    }
    kind
}

/// Refuses rules with deliveries that need a cluster's address. `keyferry agent` uses the delivery
/// `HTTP`.
pub(super) fn check_allowed(kind: TargetKind, allow: &[AllowRule], check: &mut Check<'_>) {
    if kind == TargetKind::Cluster {
        return;
    }
    for (index, rule) in allow.iter().enumerate() {
        if rule.deliveries.iter().any(|one| *one != DeliveryType::HTTP) {
            check.wrong(
                &format!("spec.allow[{index}].deliveries"),
                "allows deliveries that lead to a cluster, for a target with kind Audience",
                "write deliveries: [HTTP]",
            );
        }
    }
}
