//! Checks a minted token against the request before it is issued.
//!
//! A token that was checked may be issued:
//!
//! ```
//! use keyferry_keys::bound_token::BoundToken;
//!
//! fn is_bound(_token: BoundToken) {}
//! ```
//!
//! What the hub answers is no such token:
//!
//! ```compile_fail,E0308
//! use keyferry_keys::bound_token::{BoundToken, MintAnswer};
//!
//! fn unchecked(answer: MintAnswer) -> BoundToken {
//!     answer
//! }
//! ```
//!
//! Nor can one token be put in the place of another, or be shown as text:
//!
//! ```compile_fail,E0451
//! use keyferry_keys::bound_token::{BoundToken, MintAnswer};
//!
//! fn exchanged(bound: BoundToken, answer: MintAnswer) -> BoundToken {
//!     BoundToken { token: answer.token, ..bound }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! use keyferry_keys::bound_token::BoundToken;
//!
//! fn as_text(bound: &BoundToken) -> String {
//!     format!("{bound}")
//! }
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::lifetime;
use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use secrecy::{ExposeSecret, SecretString};

use crate::claims::ServiceAccountClaims;
use crate::jwks::PublicKeySet;
use crate::jwt::UnverifiedJwt;
use crate::verify;

/// The hub's response to a TokenRequest.
pub struct MintAnswer {
    /// `status.token`.
    pub token: SecretString,
    /// `status.expirationTimestamp`; at most `exp`, and earlier where the hub extends tokens.
    pub expires_at: Timestamp,
}

/// A token that was checked against its request. It cannot be printed.
pub struct BoundToken {
    token: SecretString,
    token_id: Arc<str>,
    kid: Arc<str>,
    deadline: Deadline,
    lifetime: Duration,
    minted: Moment,
    skew_seconds: i64,
}

/// Why a minted token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintFault {
    /// It cannot be read as a bound token.
    #[error("the minted token cannot be read")]
    Malformed,
    /// Its issuer is not the one that we publish.
    #[error("the minted token has another issuer than the one that is published")]
    Issuer,
    /// It is for another audience, or for several.
    #[error("the minted token is not for the one requested audience")]
    Audience,
    /// It is for another ServiceAccount.
    #[error("the minted token belongs to another ServiceAccount")]
    Subject,
    /// It is for a recreated ServiceAccount of the same name, not for the one that was requested.
    #[error("the ServiceAccount was recreated: the minted token has another UID")]
    Uid,
    /// Its `kid` is not among the published keys.
    #[error("the minted token is signed by a key that is not published yet")]
    UnknownKey,
    /// Its signature does not verify.
    #[error("the minted token's signature does not verify with the published keys")]
    Signature,
    /// Its lifetime is longer than requested, so longer than policy allows.
    #[error("the minted token lives longer than requested")]
    TooLong,
    /// Its remaining lifetime is too short to be useful.
    #[error("the minted token expires too soon to be useful")]
    TooShort,
    /// The hub's clock and ours differ too much to compute the expiry.
    #[error("the hub's clock differs from ours by more than 30 s")]
    Skew,
}

impl MintFault {
    /// The stable reason code of the fault.
    pub fn reason(self) -> Reason {
        match self {
            Self::Uid => Reason::ServiceAccountChanged,
            Self::Skew => Reason::ClockSkew,
            Self::UnknownKey => Reason::KeyNotPublished,
            _ => Reason::MintMismatch,
        }
    }
}

/// The properties that a minted token must have.
pub struct MintExpectation<'a> {
    /// The published issuer.
    pub issuer: &'a Issuer,
    /// The published keys.
    pub keys: &'a PublicKeySet,
    /// The ServiceAccount, by UID.
    pub service_account: &'a ServiceAccountIdentity,
    /// The token's only audience.
    pub audience: &'a Audience,
    /// The longest lifetime.
    pub lifetime: Duration,
}

/// The `kid` that a minted token names, if it can be read.
pub fn kid_of(answer: &MintAnswer) -> Option<String> {
    UnverifiedJwt::parse(answer.token.expose_secret())
        .ok()?
        .kid()
        .map(str::to_owned)
}

/// Checks a minted token against the request.
///
/// # Errors
/// [`MintFault`]: the caller must drop the token and not cache it.
pub fn check_minted(
    answer: MintAnswer,
    expected: &MintExpectation<'_>,
    now: Moment,
) -> Result<BoundToken, MintFault> {
    let jwt =
        UnverifiedJwt::parse(answer.token.expose_secret()).map_err(|_| MintFault::Malformed)?;
    let claims = ServiceAccountClaims::read(&jwt).map_err(|_| MintFault::Malformed)?;
    if claims.registered.issuer != expected.issuer.as_str() {
        return Err(MintFault::Issuer);
    }
    if claims.registered.audiences.len() != 1
        || claims.registered.audiences.first().map(String::as_str)
            != Some(expected.audience.as_str())
    {
        return Err(MintFault::Audience);
    }
    if claims.identity.account != expected.service_account.account {
        return Err(MintFault::Subject);
    }
    if claims.identity.uid != expected.service_account.uid {
        return Err(MintFault::Uid);
    }
    let kid = jwt
        .kid()
        .filter(|kid| expected.keys.get(kid).is_some())
        .ok_or(MintFault::UnknownKey)?
        .to_owned();
    verify::verify_signature(&jwt, expected.keys).map_err(|_| MintFault::Signature)?;
    let ahead = |time: Timestamp| time.as_second().saturating_sub(now.wall.as_second());
    let most = i64::try_from(lifetime::MAX_SKEW.as_secs()).unwrap_or(i64::MAX);
    if !(-most..=most).contains(&ahead(claims.registered.issued_at))
        || claims
            .registered
            .not_before
            .is_some_and(|time| ahead(time) > most)
    {
        return Err(MintFault::Skew);
    }
    let life = claims
        .registered
        .expires_at
        .as_second()
        .saturating_sub(claims.registered.issued_at.as_second());
    // One second of tolerance for a hub that rounds `iat` and `exp` differently.
    if life
        > i64::try_from(expected.lifetime.as_secs())
            .unwrap_or(i64::MAX)
            .saturating_add(1)
    {
        return Err(MintFault::TooLong);
    }
    // The earlier of the two: a hub may issue a token that outlives the expiry in its response.
    let deadline = Deadline::at(claims.registered.expires_at.min(answer.expires_at), now);
    let lifetime = deadline.left(now);
    if lifetime < lifetime::MARGIN + lifetime::LEAST_USE {
        return Err(MintFault::TooShort);
    }
    let token_id = claims.registered.token_id.unwrap_or_default().into();
    Ok(BoundToken {
        token: answer.token,
        token_id,
        kid: kid.into(),
        deadline,
        lifetime,
        minted: now,
        skew_seconds: ahead(claims.registered.issued_at),
    })
}

impl BoundToken {
    /// The token itself, for the one place that writes it into a response.
    pub fn secret(&self) -> &SecretString {
        &self.token
    }

    /// Its `jti`, which correlates our audit record with the hub's and the target's.
    pub fn token_id(&self) -> &str {
        &self.token_id
    }

    /// Its `jti` as a shared pointer.
    pub fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.token_id)
    }

    /// The key that signed it.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The key that signed it, as a shared pointer.
    pub fn shared_kid(&self) -> Arc<str> {
        Arc::clone(&self.kid)
    }

    /// Its expiry on both clocks.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// How far the hub's clock was ahead of ours when it was minted, in seconds, the call's own
    /// duration included.
    pub fn skew_seconds(&self) -> i64 {
        self.skew_seconds
    }

    /// Its remaining lifetime at the time of minting.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// How long ago it was minted.
    pub fn age(&self, now: Moment) -> Duration {
        now.mono.saturating_sub(self.minted.mono)
    }

    /// How long a client may use the token: until [`lifetime::MARGIN`] before its expiry. `None` if
    /// that is less than [`lifetime::LEAST_USE`].
    pub fn remaining_lifetime(&self, now: Moment) -> Option<Duration> {
        let usable = self.deadline.left(now).saturating_sub(lifetime::MARGIN);
        (usable >= lifetime::LEAST_USE).then_some(usable)
    }
}

impl std::fmt::Debug for BoundToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundToken")
            .field("token_id", &self.token_id)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
