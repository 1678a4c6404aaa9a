//! Authenticates the caller: reads its token, and compares the token with the hub's TokenReview.
//! Or it takes the ServiceAccount that a rule gives to the caller's client certificate.
//!
//! A TokenReview alone is not enough. It accepts tokens for several audiences, and for some seconds
//! the tokens of a ServiceAccount that was deleted and recreated.
//!
//! A verified caller shows its ServiceAccount:
//!
//! ```
//! use keyferry_api::service_account::ServiceAccountIdentity;
//! use keyferry_core::caller::VerifiedCaller;
//!
//! fn identity(caller: &VerifiedCaller) -> &ServiceAccountIdentity {
//!     caller.identity()
//! }
//! ```
//!
//! The name of a ServiceAccount alone makes no verified caller:
//!
//! ```compile_fail,E0423
//! use keyferry_api::service_account::ServiceAccountIdentity;
//! use keyferry_core::caller::VerifiedCaller;
//!
//! fn unverified(identity: ServiceAccountIdentity) -> VerifiedCaller {
//!     VerifiedCaller(identity)
//! }
//! ```
//!
//! Nor does what the hub says of a user, without the caller's own token:
//!
//! ```compile_fail,E0277
//! use keyferry_core::caller::{ReviewedUser, VerifiedCaller};
//!
//! fn by_the_review_alone(user: ReviewedUser) -> VerifiedCaller {
//!     VerifiedCaller::from(user)
//! }
//! ```

pub mod external;
mod presented;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_keys::caller_certificate::{CertificateNote, CertifiedCaller};
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify::{self, ClaimsError, Expected};

pub use external::{CallerRefusal, ExternalIdentity};
pub use presented::PresentedToken;

/// The rules that every caller's token must meet.
#[derive(Clone, Debug)]
pub struct CallerRules {
    /// The hub's issuer, byte for byte.
    pub issuer: Issuer,
    /// Keyferry's audience, which must be the token's only one.
    pub audience: Audience,
    /// Whether the token must be bound to a Pod.
    pub require_pod_bound: bool,
}

/// `status` of a TokenReview (authentication.k8s.io/v1).
#[derive(Clone, Debug, Default)]
pub struct TokenReviewAnswer {
    /// `authenticated`.
    pub authenticated: bool,
    /// `audiences`.
    pub audiences: Vec<String>,
    /// `user`.
    pub user: ReviewedUser,
}

/// `status.user` of a TokenReview, kept unchanged so that a SubjectAccessReview asks about exactly
/// this user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewedUser {
    /// `username`.
    pub username: String,
    /// `uid`.
    pub uid: String,
    /// `groups`.
    pub groups: Vec<String>,
    /// `extra`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// An authenticated caller. Only [`accept_caller`], [`accept_certificate`] and [`ExternalIdentity::caller`]
/// make it.
#[derive(Clone, Debug)]
pub struct VerifiedCaller(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    identity: ServiceAccountIdentity,
    user: ReviewedUser,
    token_id: Option<String>,
    certificate: Option<CertificateNote>,
    expires_at: Timestamp,
    external: Option<ExternalIdentity>,
}

impl VerifiedCaller {
    /// The ServiceAccount, by name and UID.
    pub fn identity(&self) -> &ServiceAccountIdentity {
        &self.0.identity
    }

    /// The user as the hub reports it.
    pub fn user(&self) -> &ReviewedUser {
        &self.0.user
    }

    /// The `jti` of its token, which correlates our audit record with the hub's.
    pub fn token_id(&self) -> Option<&str> {
        self.0.token_id.as_deref()
    }

    /// Its client certificate, if it authenticated by one.
    pub fn certificate(&self) -> Option<&CertificateNote> {
        self.0.certificate.as_ref()
    }

    /// When its token or its certificate expires.
    pub fn expires_at(&self) -> Timestamp {
        self.0.expires_at
    }

    /// What the token of an external issuer proved; `None` for a token of the hub.
    pub fn external(&self) -> Option<&ExternalIdentity> {
        self.0.external.as_ref()
    }
}

/// Reads a caller's token, and refuses it early if it is invalid without a TokenReview.
///
/// # Errors
/// One of the `Caller…` reasons. Nothing read here is trusted before [`accept_caller`].
pub fn read_caller_token(
    token: &str,
    rules: &CallerRules,
    now: Timestamp,
) -> Result<ServiceAccountClaims, Reason> {
    if token.is_empty() {
        return Err(Reason::CallerMissing);
    }
    let jwt = UnverifiedJwt::parse(token).map_err(|_| Reason::CallerMalformed)?;
    let claims = ServiceAccountClaims::read(&jwt).map_err(|_| Reason::CallerMalformed)?;
    let expected = Expected {
        issuer: &rules.issuer,
        audience: &rules.audience,
        now,
        longest_life: None,
    };
    verify::check_claims(&claims, &expected).map_err(reason_of)?;
    if rules.require_pod_bound && claims.pod.is_none() {
        return Err(Reason::CallerNotPodBound);
    }
    Ok(claims)
}

fn reason_of(error: ClaimsError) -> Reason {
    match error {
        ClaimsError::WrongIssuer => Reason::CallerIssuerMismatch,
        ClaimsError::WrongAudience | ClaimsError::OtherAudiences => Reason::CallerAudienceMismatch,
        ClaimsError::Expired => Reason::CallerExpired,
        _ => Reason::CallerMalformed,
    }
}

/// Accepts a caller if the hub's TokenReview matches its token.
///
/// # Errors
/// [`Reason::CallerRejected`] unless the hub authenticated the token for exactly our audience, and
/// as exactly the ServiceAccount that the token itself names.
pub fn accept_caller(
    claims: &ServiceAccountClaims,
    answer: TokenReviewAnswer,
    rules: &CallerRules,
) -> Result<VerifiedCaller, Reason> {
    let ours = answer.audiences.len() == 1
        && answer.audiences.first().map(String::as_str) == Some(rules.audience.as_str());
    if !answer.authenticated || !ours {
        return Err(Reason::CallerRejected);
    }
    if answer.user.username != claims.identity.account.username()
        || answer.user.uid != claims.identity.uid.as_str()
    {
        return Err(Reason::CallerRejected);
    }
    Ok(VerifiedCaller(Arc::new(Facts {
        identity: claims.identity.clone(),
        user: answer.user,
        token_id: claims.registered.token_id.clone(),
        certificate: None,
        expires_at: claims.registered.expires_at,
        external: None,
    })))
}

/// Accepts the caller that a client certificate identified, as the user that the hub returns for a
/// token of the same ServiceAccount. Whether that ServiceAccount is the live one is checked later,
/// as for every caller.
pub fn accept_certificate(caller: &CertifiedCaller) -> VerifiedCaller {
    let identity = caller.identity().clone();
    // kubernetes staging/src/k8s.io/apiserver/pkg/authentication/serviceaccount/util.go and
    // pkg/authentication/group/authenticated_group_adder.go.
    let user = ReviewedUser {
        username: identity.account.username(),
        uid: identity.uid.to_string(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", identity.account.namespace),
            "system:authenticated".to_owned(),
        ],
        extra: BTreeMap::new(),
    };
    VerifiedCaller(Arc::new(Facts {
        identity,
        user,
        token_id: None,
        certificate: Some(caller.certificate().clone()),
        expires_at: caller.not_after(),
        external: None,
    }))
}

#[cfg(test)]
pub(crate) mod tests;
