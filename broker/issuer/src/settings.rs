//! Settings of the process besides the policy.

use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::NewCallerLimits;

/// The requirements on all callers.
#[derive(Clone, Debug)]
pub struct CallerSettings {
    /// Keyferry's audience.
    pub audience: Audience,
    /// Whether tokens must be bound to a Pod.
    pub require_pod_bound: bool,
    /// How long earlier answers of the hub are used while it is unreachable.
    pub max_stale: Duration,
    /// The rate limits for unknown callers.
    pub new_callers: NewCallerLimits,
}

/// How to give a hub an issuer that no target uses itself.
pub const SECOND_ISSUER_FIX: &str = "give the hub's kube-apiserver a new https --service-account-issuer first and keep the old one second: \
                                      new tokens carry the new issuer, and old ones stay valid on the hub";

/// The other fix for an issuer that a target must refuse.
pub const MANAGED_ISSUER_FIX: &str = "or start Keyferry with --enable-keyferry-issuer and set issuer: Keyferry on the TargetCluster: then the target \
                                   trusts <publicURL>/issuers/<its name>, with keys of its own, and the hub stays as it is";
