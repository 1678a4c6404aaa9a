//! The embedded target: a server that authenticates bearer tokens like a kube-apiserver with one
//! JWT authenticator in its AuthenticationConfiguration, and reports why it refused. It authorizes
//! by RBAC objects and impersonates as kube-apiserver does.

mod impersonation;
mod impersonation_headers;
mod keys;
mod provider;
mod rbac;
mod rbac_file;
mod routes;
mod rules_review;
mod verify;

use std::sync::{Arc, Mutex};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::http::HeaderMap;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use super::clock::{self, Clock};
use super::pki::Authority;
use super::{EmbeddedError, locked, random_token};
use crate::apiserver::EmbeddedApiserver;
use crate::apiserver::index::NEWEST_MINOR;
use crate::apiserver::policy::{Decision, ReviewedToken, ServerPolicy};
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::status::ApiError;
use impersonation::Impersonation;
use impersonation_headers::{UserMissing, wanted_user};
use keyferry_kube_rbac::{Attributes, ImpersonationModes};
use provider::Provider;
pub use rbac::RbacPolicy;
pub use rbac_file::RbacError;
use verify::Refusal;

/// The paths that need no credentials. All others answer 401, as with `--anonymous-auth=false`.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// The first release with the modes of constrained impersonation on.
const CONSTRAINED_SINCE_MINOR: u16 = 36;
/// The first release that answers 400, and not 500, to impersonation headers without a user.
const BAD_REQUEST_SINCE_MINOR: u16 = 35;

/// What the target trusts: one JWT authenticator with fixed rules.
#[derive(Clone)]
pub struct TargetOptions {
    /// `issuer.url`, compared byte for byte.
    pub issuer: String,
    /// `issuer.discoveryURL`; none = below the issuer.
    pub discovery_url: Option<String>,
    /// `issuer.certificateAuthority`: the only roots for discovery and JWKS, PEM.
    pub discovery_ca_pem: String,
    /// The one entry of `issuer.audiences`; a token must have it and no other.
    pub audience: String,
    /// `claimMappings.username.prefix`, put before `sub`.
    pub username_prefix: String,
    /// Rule `claims.sub in [...]`.
    pub allowed_subjects: Vec<String>,
    /// The CA that signs the target's own server certificate; none = a new one.
    pub authority: Option<Authority>,
    /// The clock for `exp`, `nbf` and key expiry.
    pub clock: Clock,
    /// Its roles and bindings; without any, every authenticated user may read everything.
    pub rbac: Option<RbacPolicy>,
    /// The release that it behaves like, as the second part of its version. From 36 on, it
    /// knows constrained impersonation.
    pub minor: u16,
    /// Ignores every `Impersonate-` header, like a target behind a proxy that drops them.
    pub ignores_impersonation: bool,
    /// Replaces `audience`, `username_prefix` and `allowed_subjects`, for a target with an
    /// AuthenticationConfiguration of its own.
    pub verifier: Option<TokenVerifier>,
}

impl TargetOptions {
    /// Trusts `issuer` for `audience`, with the hub's name prefix, no allowed subject, discovery
    /// below the issuer, and the machine's clock.
    #[must_use]
    pub fn new(
        issuer: &str,
        audience: &str,
        username_prefix: &str,
        discovery_ca_pem: &str,
    ) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery_url: None,
            discovery_ca_pem: discovery_ca_pem.to_owned(),
            audience: audience.to_owned(),
            username_prefix: username_prefix.to_owned(),
            allowed_subjects: Vec::new(),
            authority: None,
            clock: clock::system(),
            rbac: None,
            minor: NEWEST_MINOR,
            ignores_impersonation: false,
            verifier: None,
        }
    }
}

/// A token of the target's issuer that a [`TokenVerifier`] decides about.
#[derive(Clone, Copy)]
pub struct TokenCase<'a> {
    /// The token.
    pub token: &'a str,
    /// The issuer's key set as last read; none if it could not be read.
    pub key_set: Option<&'a [u8]>,
    /// The time by the target's clock.
    pub now: Timestamp,
}

/// A [`TokenVerifier`] refuses a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct TokenRefused {
    /// The text that kube-apiserver would log.
    pub cause: String,
}

/// Verifies a token in the place of the target's own rules, and returns its user without
/// `system:authenticated`.
pub type TokenVerifier =
    Arc<dyn Fn(&TokenCase<'_>) -> Result<UserInfo, TokenRefused> + Send + Sync>;

/// A document that the target reads from the issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedDocument {
    /// The OpenID discovery document.
    Discovery,
    /// The key set.
    Jwks,
}

/// One read of an issuer's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Which document.
    pub document: FetchedDocument,
    /// The URL that was read.
    pub url: String,
    /// When, by the target's clock.
    pub at: Timestamp,
    /// `None` when the document was good, else what was wrong with it.
    pub failure: Option<String>,
}

/// The target's decision on a request with a bearer token, or on a token under review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted as this user.
    Accepted {
        /// `<prefix><sub>`, or the admin.
        user: String,
    },
    /// Refused with 401 (or `authenticated: false` in a TokenReview).
    Rejected {
        /// The text that kube-apiserver would log.
        cause: String,
    },
}

/// One request that the target saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// When, by the target's clock.
    pub at: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// The decision.
    pub outcome: Outcome,
}

/// An apiserver with the policy of a target: it authenticates by one JWT authenticator and
/// authorizes by RBAC.
pub type EmbeddedTarget = EmbeddedApiserver<TargetPolicy>;

/// What makes an embedded apiserver a target.
pub struct TargetPolicy {
    url: String,
    options: TargetOptions,
    admin_token: SecretString,
    /// The tokens that the target itself knows, and their users.
    own_users: Mutex<Vec<(SecretString, UserInfo)>>,
    rbac: Mutex<Arc<RbacPolicy>>,
    provider: Provider,
    seen_requests: Mutex<Vec<SeenRequest>>,
}

impl EmbeddedTarget {
    /// Starts a target on a free port of 127.0.0.1. Needs a tokio runtime. Nothing is fetched
    /// before the first token arrives.
    ///
    /// # Errors
    /// When the CA is not a PEM certificate, a certificate cannot be made or no port can be opened.
    #[allow(
        clippy::unused_async,
        reason = "its callers await it; it needs their runtime"
    )]
    pub async fn start(options: TargetOptions) -> Result<Self, EmbeddedError> {
        let authority = options.authority.clone();
        Self::start_with(authority, |url| TargetPolicy::new(url, options))
    }

    /// A token of the target's own admin (`kubernetes-admin`), for TokenReviews at the target.
    #[must_use]
    pub fn admin_token(&self) -> &SecretString {
        &self.policy.admin_token
    }

    /// Returns a token of a user that the target itself knows, such as one of its own
    /// ServiceAccounts. `user` is exactly what the target sees, with all groups.
    ///
    /// # Errors
    /// When no random bytes can be made.
    pub fn add_own_user(&self, user: UserInfo) -> Result<SecretString, EmbeddedError> {
        let token = random_token()?;
        locked(&self.policy.own_users).push((token.clone(), user));
        Ok(token)
    }

    /// Adds the roles and bindings of a YAML text to those of the target.
    ///
    /// # Errors
    /// [`RbacError`]: nothing is added.
    pub fn add_rbac(&self, text: &str) -> Result<(), RbacError> {
        let mut policy = locked(&self.policy.rbac);
        *policy = Arc::new(policy.with(text)?);
        Ok(())
    }

    /// Replaces all roles and bindings.
    pub fn set_rbac(&self, policy: RbacPolicy) {
        *locked(&self.policy.rbac) = Arc::new(policy);
    }

    /// Every read of the issuer's documents, oldest first.
    #[must_use]
    pub fn fetches(&self) -> Vec<Fetch> {
        self.policy.provider.fetches()
    }

    /// Every request that carried a bearer token and every token reviewed, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        locked(&self.policy.seen_requests).clone()
    }

    /// Forgets the discovery document and all keys, as a reload of the configuration does.
    pub async fn reload(&self) {
        self.policy.provider.forget().await;
    }
}

impl TargetPolicy {
    fn new(url: String, options: TargetOptions) -> Result<Self, EmbeddedError> {
        let rbac = match &options.rbac {
            Some(policy) => policy.clone(),
            None => RbacPolicy::every_user_may_read()?,
        };
        let admin_token = random_token()?;
        let admin = UserInfo {
            username: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        };
        Ok(Self {
            url,
            provider: Provider::new(&options)?,
            own_users: Mutex::new(vec![(admin_token.clone(), admin)]),
            admin_token,
            rbac: Mutex::new(Arc::new(rbac)),
            options,
            seen_requests: Mutex::default(),
        })
    }

    fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    fn rbac(&self) -> Arc<RbacPolicy> {
        Arc::clone(&locked(&self.rbac))
    }

    fn own_user(&self, token: &str) -> Option<UserInfo> {
        let is_same =
            |known: &str| verify_slices_are_equal(token.as_bytes(), known.as_bytes()).is_ok();
        locked(&self.own_users)
            .iter()
            .find(|(known, _)| is_same(known.expose_secret()))
            .map(|(_, user)| user.clone())
    }

    /// The answer to impersonation headers that name no user.
    fn user_missing(&self, missing: &UserMissing, uri: &str) -> ApiError {
        match self.options.minor {
            CONSTRAINED_SINCE_MINOR.. => ApiError::bad_request(missing.message()),
            BAD_REQUEST_SINCE_MINOR.. => ApiError::bad_request(missing.legacy_message()),
            _ => ApiError::unexpected(uri, &missing.legacy_message()),
        }
    }
}

impl ServerPolicy for TargetPolicy {
    const NAME: &'static str = "target";
    type Refusal = Refusal;

    fn router(policy: Arc<Self>) -> Router {
        routes::router(policy)
    }

    async fn authenticate(&self, token: &str) -> Result<UserInfo, Refusal> {
        match self.own_user(token) {
            Some(user) => Ok(user),
            None => verify::token(self, token).await,
        }
    }

    fn is_open(&self, path: &str) -> bool {
        OPEN_PATHS.contains(&path)
    }

    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.rbac().decide(user, attributes)
    }

    /// The API audience of a target is its own URL; the audience of the JWT authenticator is not
    /// one.
    async fn review_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<ReviewedToken, Refusal> {
        if !audiences.is_empty() && !audiences.contains(&self.url) {
            return Err(Refusal::Unclaimed);
        }
        Ok(ReviewedToken {
            user: self.authenticate(token).await?,
            audiences: vec![self.url.clone()],
        })
    }

    fn resolve_impersonated_user(
        &self,
        bearer: UserInfo,
        request: &Attributes,
        headers: &HeaderMap,
        uri: &str,
    ) -> Result<UserInfo, ApiError> {
        if self.options.ignores_impersonation {
            return Ok(bearer);
        }
        let wanted = wanted_user(headers).map_err(|missing| self.user_missing(&missing, uri))?;
        match &wanted {
            None => Ok(bearer),
            Some(wanted) => Impersonation {
                policy: &self.rbac(),
                modes: match self.options.minor {
                    CONSTRAINED_SINCE_MINOR.. => ImpersonationModes::Constrained,
                    _ => ImpersonationModes::Legacy,
                },
                requestor: &bearer,
                wanted,
                request,
            }
            .user(),
        }
    }

    fn record(&self, method: &str, path: &str, outcome: Result<&UserInfo, &Refusal>) {
        let outcome = match outcome {
            Ok(user) => Outcome::Accepted {
                user: user.username.clone(),
            },
            Err(refusal) => Outcome::Rejected {
                cause: refusal.to_string(),
            },
        };
        locked(&self.seen_requests).push(SeenRequest {
            at: self.now(),
            method: method.to_owned(),
            path: path.to_owned(),
            outcome,
        });
    }
}
