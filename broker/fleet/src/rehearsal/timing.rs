//! How long the real parts take: kube-apiserver, and Keyferry's own tasks. Each is an upper bound,
//! unless its name says otherwise.

use std::time::Duration;

use keyferry_api::lifetime;

/// How long an apiserver keeps the result for a token that it accepted. It keeps no refusal.
pub const SUCCESS_CACHE: Duration = Duration::from_secs(10);
/// The difference between the clocks of two parts, and between a token's `exp` and the expiry in a
/// status, which may be a second earlier.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// From a token's end until every apiserver refuses it.
pub const UNTIL_REFUSED: Duration = Duration::from_secs(12);
/// How long before the end of its copy of the keys a target fetches them for an unknown `kid`. Up
/// to Kubernetes 1.37 it does so no earlier (go-oidc, `keysExpiry`).
pub const REFETCH_LEAD: Duration = Duration::from_secs(30);
/// The least time from the listing of a key that does not sign until Keyferry publishes it: an
/// endpoint must have listed it for 10 s.
pub const LEAST_UNTIL_PUBLISHED: Duration = Duration::from_secs(10);
/// From the listing of a key until a replica publishes it: two readings of the hub, 15 s apart, and
/// a call of 5 s.
pub const UNTIL_PUBLISHED: Duration = Duration::from_secs(35);
/// From the time when one replica publishes or revokes a key until the others do.
pub const REPLICA_SPREAD: Duration = Duration::from_secs(10);
/// How long Keyferry uses a review of a caller before it asks the hub again.
pub const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// How long a caller waits for the activation delay before it is refused.
pub const ACTIVATION_PATIENCE: Duration = Duration::from_secs(20);
/// How long Keyferry keeps a failed mint.
pub const MINT_FAILURE_LIFETIME: Duration = Duration::from_secs(2);
/// From the first answer of a hub's apiserver until it mints: its admission policies may refuse
/// every TokenRequest for 30 s.
pub const HUB_RECOVERY: Duration = Duration::from_secs(30);
/// From the return of the hub or of Keyferry until each due delivery is written: the hub's
/// recovery, the longest term of another leader's Lease, and the longest pause of a retry.
pub const DELIVERY_RECOVERY: Duration = Duration::from_secs(30 + 60 + 60);
/// From a change of a CA in a Secret or ClusterTrustBundle until the delivered objects have it: the
/// interval of the readings, and a call.
pub const UNTIL_AUTHORITY_WRITTEN: Duration = Duration::from_secs(35);
/// From a change of a CA in a TargetCluster itself until the delivered objects have it.
pub const UNTIL_INLINE_AUTHORITY_WRITTEN: Duration = Duration::from_secs(5);
/// The longest time between two checks of `keyferry agent`.
pub const AGENT_INTERVAL: Duration = Duration::from_secs(600);
/// How long a token lives that a client mints without a lifetime of its own, as Flux does.
pub const OWN_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// How long a replica serves keys of its state directory that it has not seen at the hub.
pub const STATE_DIRECTORY_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// After how long the kubelet replaces a Pod's token at the latest.
pub const POD_TOKEN_USE: Duration = Duration::from_secs(24 * 3600);
/// From a revocation until each delivered object has a token of another active key: the spread, a
/// call, and the longest pause of a retry.
pub const UNTIL_REVOKED_TOKEN_REPLACED: Duration = Duration::from_secs(10 + 5 + 60);

/// How long a target may go without fetching the keys again for an unknown `kid`.
pub fn refetch_pause(max_age: Duration) -> Duration {
    max_age.saturating_sub(REFETCH_LEAD)
}

/// How long the other replicas may lag behind the first.
pub fn replica_lag(replicas: u16) -> Duration {
    if replicas > 1 {
        REPLICA_SPREAD
    } else {
        Duration::ZERO
    }
}

/// From a revocation until a target that is made to fetch the keys accepts no token of the key.
pub fn until_forgotten(max_age: Duration) -> Duration {
    REPLICA_SPREAD + refetch_pause(max_age) + UNTIL_REFUSED
}

/// The least remaining use of the cached token of a caller that calls at least every 10 s: one that
/// has just become due for renewal, less the time that the renewal takes.
pub fn least_cached_use(max_age: Duration) -> Duration {
    lifetime::activation_delay(max_age).saturating_sub(REVIEW_LIFETIME)
}
