//! What makes an embedded apiserver a hub: its own tokens, and grants.

use std::sync::{Arc, Mutex};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use super::access::Grant;
#[cfg(feature = "faults")]
use super::faults::Faults;
use super::keys::{KeyAlgorithm, KeyRing};
use super::objects::Objects;
use super::routes::Requests;
use super::verify::{self, Refusal};
use super::{DiscoveryAccess, HubOptions, api, oidc};
use crate::apiserver::policy::{Decision, ReviewedToken, ServerPolicy};
use crate::clock::Clock;
use crate::identity::{ANONYMOUS, AUTHENTICATED, UserInfo};
use crate::{EmbeddedError, locked, random_token};
use keyferry_kube_rbac::{Attributes, RequestTarget};

/// User name behind the broker token.
const BROKER: &str = "system:serviceaccount:keyferry-system:keyferry";
/// The reviews that every authenticated user may create.
const OWN_REVIEWS: [&str; 2] = ["selfsubjectreviews", "selfsubjectaccessreviews"];

/// What makes an embedded apiserver a hub.
pub struct HubPolicy {
    pub(super) url: String,
    pub(super) issuer: String,
    pub(super) algorithm: KeyAlgorithm,
    pub(super) checks_uid: bool,
    /// In seconds.
    pub(super) max_token_seconds: Option<i64>,
    pub(super) discovery_access: DiscoveryAccess,
    pub(super) broker_token: SecretString,
    pub(super) objects: Objects,
    pub(super) keys: Mutex<KeyRing>,
    pub(super) grants: Mutex<Vec<Grant>>,
    pub(super) requests: Requests,
    #[cfg(feature = "faults")]
    pub(super) faults: Faults,
    clock: Clock,
}

impl HubPolicy {
    pub(super) fn new(url: String, options: HubOptions) -> Result<Self, EmbeddedError> {
        Ok(Self {
            issuer: options.issuer.unwrap_or_else(|| url.clone()),
            url,
            algorithm: options.algorithm,
            checks_uid: options.checks_uid,
            max_token_seconds: options
                .max_token_lifetime
                .and_then(|lifetime| i64::try_from(lifetime.as_secs()).ok()),
            discovery_access: options.discovery_access,
            broker_token: random_token()?,
            objects: Objects::new(options.clock.clone()),
            keys: Mutex::new(KeyRing::new(options.algorithm)?),
            grants: Mutex::new(Vec::new()),
            requests: Requests::default(),
            #[cfg(feature = "faults")]
            faults: Faults::default(),
            clock: options.clock,
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

impl ServerPolicy for HubPolicy {
    const NAME: &'static str = "hub";
    type Refusal = Refusal;

    fn router(policy: Arc<Self>) -> Router {
        api::router(policy)
    }

    /// Accepts the broker token, or a token of this hub for the hub itself.
    async fn authenticate(&self, token: &str) -> Result<UserInfo, Refusal> {
        let broker = self.broker_token.expose_secret();
        if verify_slices_are_equal(token.as_bytes(), broker.as_bytes()).is_ok() {
            return Ok(broker_user());
        }
        verify::token(self, token, &[]).map(|verified| verified.user)
    }

    /// The issuer's documents need none: [`Self::authorize`] decides about them.
    fn is_open(&self, path: &str) -> bool {
        oidc::PATHS.contains(&path)
    }

    /// The broker may do everything, every user may ask about itself, and the rest is what the
    /// grants say.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let is_allowed = *user == broker_user()
            || self.publishes(user, attributes)
            || is_own_review(user, attributes)
            || locked(&self.grants)
                .iter()
                .any(|grant| grant.allows(user, attributes));
        if is_allowed {
            Decision::Allowed("granted".to_owned())
        } else {
            Decision::NotAllowed(String::new())
        }
    }

    async fn review_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<ReviewedToken, Refusal> {
        verify::token(self, token, audiences)
    }
}

impl HubPolicy {
    /// Whether it is a document of the issuer that the user may read.
    fn publishes(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let is_admitted = match self.discovery_access {
            DiscoveryAccess::Anonymous => true,
            DiscoveryAccess::Authenticated => user.username != ANONYMOUS,
        };
        let document = match &attributes.target {
            RequestTarget::Path(path) => oidc::PATHS.contains(&path.as_str()),
            RequestTarget::Resource(_) => false,
        };
        is_admitted && document
    }
}

fn is_own_review(user: &UserInfo, attributes: &Attributes) -> bool {
    let RequestTarget::Resource(object) = &attributes.target else {
        return false;
    };
    attributes.verb == "create"
        && user.username != ANONYMOUS
        && OWN_REVIEWS.contains(&object.resource.as_str())
}

fn broker_user() -> UserInfo {
    UserInfo {
        username: BROKER.to_owned(),
        uid: "00000000-0000-4000-8000-000000000000".to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            "system:serviceaccounts:keyferry-system".to_owned(),
            AUTHENTICATED.to_owned(),
        ],
        ..UserInfo::default()
    }
}
