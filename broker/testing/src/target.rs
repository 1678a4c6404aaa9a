//! The embedded target: a server that authenticates bearer tokens like a kube-apiserver with one
//! JWT authenticator in its AuthenticationConfiguration, and reports why it refused. It authorizes
//! by RBAC objects and impersonates as kube-apiserver does.

mod filters;
mod forbidden;
mod impersonation;
mod impersonation_headers;
mod keys;
mod provider;
mod rbac;
mod rbac_file;
mod request_attributes;
mod reviews;
mod routes;
mod user_name;
mod verify;

use std::fmt;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::clock::{self, Clock};
use super::hub::{kubeconfig_document, random_token};
use super::pki::Authority;
use super::server::{Bound, Running};
use super::{EmbeddedError, locked};
use crate::api_index::NEWEST_MINOR;
use crate::identity::{AUTHENTICATED, UserInfo};
use provider::Provider;
pub use rbac::RbacPolicy;
pub use rbac_file::RbacError;

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

/// A running target. Dropping it closes its port.
pub struct EmbeddedTarget {
    state: Arc<TargetState>,
    server: Running,
    ca_pem: String,
}

struct TargetState {
    url: String,
    options: TargetOptions,
    admin_token: SecretString,
    /// The tokens that the target itself knows, and their users.
    own_users: Mutex<Vec<(SecretString, UserInfo)>>,
    rbac: Mutex<Arc<RbacPolicy>>,
    provider: Provider,
    seen: Mutex<Vec<SeenRequest>>,
}

impl EmbeddedTarget {
    /// Starts a target on a free port of 127.0.0.1. Needs a tokio runtime. Nothing is fetched
    /// before the first token arrives.
    ///
    /// # Errors
    /// When the CA is not a PEM certificate, a certificate cannot be made or no port can be opened.
    pub async fn start(options: TargetOptions) -> Result<Self, EmbeddedError> {
        let authority = match &options.authority {
            Some(authority) => authority.clone(),
            None => Authority::new("keyferry embedded target CA")?,
        };
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
        let bound = Bound::loopback()?;
        let state = Arc::new(TargetState {
            url: bound.url(),
            provider: Provider::new(&options)?,
            own_users: Mutex::new(vec![(admin_token.clone(), admin)]),
            admin_token,
            rbac: Mutex::new(Arc::new(rbac)),
            options,
            seen: Mutex::default(),
        });
        let server = bound.serve(
            &authority.loopback_identity()?,
            routes::router(Arc::clone(&state)),
        )?;
        Ok(Self {
            state,
            server,
            ca_pem: authority.ca_pem().to_owned(),
        })
    }

    /// Closes the port and all connections; waits until that is done.
    pub async fn stop(&self) {
        self.server.stop().await;
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.state.url
    }

    /// The CA certificate of the target's own TLS, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A token of the target's own admin (`kubernetes-admin`), for TokenReviews at the target.
    #[must_use]
    pub fn admin_token(&self) -> &SecretString {
        &self.state.admin_token
    }

    /// Returns a token of a user that the target itself knows, such as one of its own
    /// ServiceAccounts. `user` is exactly what the target sees, with all groups.
    ///
    /// # Errors
    /// When no random bytes can be made.
    pub fn add_own_user(&self, user: UserInfo) -> Result<SecretString, EmbeddedError> {
        let token = random_token()?;
        locked(&self.state.own_users).push((token.clone(), user));
        Ok(token)
    }

    /// Adds the roles and bindings of a YAML text to those of the target.
    ///
    /// # Errors
    /// [`RbacError`]: nothing is added.
    pub fn add_rbac(&self, text: &str) -> Result<(), RbacError> {
        let mut policy = locked(&self.state.rbac);
        *policy = Arc::new(policy.with(text)?);
        Ok(())
    }

    /// Replaces all roles and bindings.
    pub fn set_rbac(&self, policy: RbacPolicy) {
        *locked(&self.state.rbac) = Arc::new(policy);
    }

    /// A kubeconfig for this target with the given token in it. Holds a secret.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &SecretString) -> SecretString {
        let user = json!({"token": token.expose_secret()});
        SecretString::from(kubeconfig_document(
            "target",
            self.url(),
            self.ca_pem(),
            &user,
        ))
    }

    /// Every read of the issuer's documents, oldest first.
    #[must_use]
    pub fn fetches(&self) -> Vec<Fetch> {
        self.state.provider.fetches()
    }

    /// Every request that carried a bearer token and every token reviewed, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        locked(&self.state.seen).clone()
    }

    /// Forgets the discovery document and all keys, as a reload of the configuration does.
    pub async fn reload(&self) {
        self.state.provider.forget().await;
    }
}

impl TargetState {
    fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    fn rbac(&self) -> Arc<RbacPolicy> {
        Arc::clone(&locked(&self.rbac))
    }
}

impl fmt::Debug for EmbeddedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTarget")
            .field("url", &self.state.url)
            .finish_non_exhaustive()
    }
}
