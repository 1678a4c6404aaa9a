//! Constrained impersonation of ServiceAccounts (KEP-5284): its verbs, and the first release that
//! has it.
//!
//! A request that impersonates a ServiceAccount needs two rights: [`IMPERSONATE_VERB`] on the ServiceAccount,
//! and [`on_verb`] of the request's own verb on what the request is about. Kubernetes checks both
//! in `pkg/endpoints/filters/impersonation/mode.go` of k8s.io/apiserver. It then authorises the
//! request itself as the ServiceAccount. The legacy verb `impersonate` keeps working beside it.

use crate::Minor;

/// The first release in which the feature gate `ConstrainedImpersonation` is on by default.
pub const DEFAULT_SINCE: Minor = Minor::V1_36;

/// The API group of the ServiceAccount in the first check. The legacy check uses the core group.
pub const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The verb of the first check, on `serviceaccounts` in the ServiceAccount's namespace.
pub const IMPERSONATE_VERB: &str = "impersonate:serviceaccount";

/// The verbs of the requests that Flux sends, and Helm within it.
pub const FLUX_VERBS: [&str; 7] = [
    "get", "list", "watch", "create", "update", "patch", "delete",
];

/// The paths that a client reads to learn which kinds the apiserver serves. They are requests too,
/// so a client that may not read them fails before it applies anything.
pub const DISCOVERY_PATHS: [&str; 7] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/openapi",
    "/openapi/*",
    "/version",
];

/// Returns the verb of the second check, for a request with this verb.
#[must_use]
pub fn on_verb(verb: &str) -> String {
    format!("impersonate-on:serviceaccount:{verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_of_the_second_check_contains_the_requests_verb() {
        assert_eq!(on_verb("patch"), "impersonate-on:serviceaccount:patch");
        assert!(DEFAULT_SINCE > Minor::V1_35);
    }
}
