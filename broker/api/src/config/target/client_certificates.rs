//! The fields of a target that is the hub's own apiserver: `hub` and `clientCertificates`.

use super::super::access_spec::DeliveryType;
use super::super::allow::AllowRule;
use super::super::check::Check;
use super::super::duration::read_token_lifetime;
use super::super::target_spec::ClientCertificatesSpec;
use super::{CertificateApproval, ClientCertificates};
use crate::lifetime;

/// Reads `hub` and `clientCertificates`; `None` for a target that is another cluster.
pub(super) fn read_client_certificates(
    is_hub: bool,
    spec: Option<ClientCertificatesSpec>,
    check: &mut Check<'_>,
) -> Option<ClientCertificates> {
    if !is_hub {
        if spec.is_some() {
            check.wrong(
                "spec.clientCertificates",
                "is set on a target that is not the hub: Keyferry requests certificates for the \
                 hub's own apiserver only",
                "remove clientCertificates, or create the target with hub: true",
            );
        }
        return None;
    }
    let ClientCertificatesSpec {
        approval,
        max_lifetime,
    } = spec.unwrap_or_default();
    let approval = check.choose_or_default(
        "spec.clientCertificates.approval",
        approval.as_deref(),
        "a valid value",
        CertificateApproval::ALL,
    );
    let max_lifetime = match max_lifetime {
        None => Some(lifetime::MAX),
        Some(text) => read_token_lifetime(&text, "spec.clientCertificates.maxLifetime", check),
    };
    Some(ClientCertificates {
        approval: approval?,
        max_lifetime: max_lifetime?,
    })
}

/// Refuses rules that can never grant anything. The hub's apiserver accepts no token for a target's
/// audience, and no other cluster accepts a client certificate of the hub.
pub(super) fn check_allowed(is_hub: bool, allow: &[AllowRule], check: &mut Check<'_>) {
    for (index, rule) in allow.iter().enumerate() {
        let path = format!("spec.allow[{index}].deliveries");
        let is_certificate = |one: &DeliveryType| *one == DeliveryType::ClientCertificateSecret;
        if is_hub && !rule.deliveries.iter().all(is_certificate) {
            check.wrong(
                &path,
                "allows tokens for the hub's own apiserver, which must not accept them",
                "write deliveries: [ClientCertificateSecret]",
            );
        }
        if !is_hub && rule.deliveries.iter().any(is_certificate) {
            check.wrong(
                &path,
                "allows ClientCertificateSecret for a target that is not the hub",
                "remove ClientCertificateSecret, or create the target with hub: true",
            );
        }
    }
}
