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
