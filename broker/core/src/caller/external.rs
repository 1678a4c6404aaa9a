//! Accepts callers by an id-token of an external issuer, such as a CI system: the configuration says
//! for which ServiceAccount of the hub a token with certain claims stands.
//!
//! Such a token is not a credential of the hub, so the hub cannot review it. Its signature, the
//! registered claims and the rules of one entry decide.

mod refused_claim;
pub mod token_report;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{ExternalIssuer, ExternalSystem, TokenUse};
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_keys::id_token::IdTokenClaims;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify::{self, ClaimsError, Expected, VerifiedSignature};

use self::refused_claim::{Candidate, meets_rule};
use super::{Facts, ReviewedUser, VerifiedCaller, reason_of};

pub use self::refused_claim::{CallerRefusal, RefusedClaim};

/// Claims that name the run of a job, the most exact first, at GitHub and at GitLab.
const RUN_CLAIMS: [&str; 3] = ["run_id", "job_id", "pipeline_id"];

/// What an id-token proved. Only [`accept_external`] makes it.
#[derive(Clone, Debug)]
pub struct ExternalIdentity(Arc<ExternalFacts>);

#[derive(Debug)]
struct ExternalFacts {
    entry: usize,
    issuer: Issuer,
    subject: String,
    run: Option<String>,
    token_id: Option<String>,
    expires_at: Timestamp,
    account: ServiceAccount,
    pinned_uid: Option<Uid>,
    token_use: TokenUse,
}

impl ExternalIdentity {
    /// The token's `iss`.
    pub fn issuer(&self) -> &Issuer {
        &self.0.issuer
    }

    /// The token's `sub`.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The run of the job, if the token names one.
    pub fn run(&self) -> Option<&str> {
        self.0.run.as_deref()
    }

    /// The token's `exp`.
    pub fn expires_at(&self) -> Timestamp {
        self.0.expires_at
    }

    /// The ServiceAccount for which the token stands.
    pub fn account(&self) -> &ServiceAccount {
        &self.0.account
    }

    /// The index of the entry of `externalIssuers` that accepted the token.
    pub fn entry(&self) -> usize {
        self.0.entry
    }

    /// The `jti`, if the token may be exchanged only once. An ECDSA signature has a second valid
    /// form, so the bytes of a token do not identify it.
    pub fn single_use(&self) -> Option<&str> {
        match self.0.token_use {
            TokenUse::Once => self.0.token_id.as_deref(),
            TokenUse::UntilExpiry => None,
        }
    }

    /// The caller, as the live ServiceAccount.
    ///
    /// # Errors
    /// [`Reason::CallerIdentityChanged`] if the ServiceAccount does not exist, or is not the pinned
    /// one.
    pub fn caller(&self, live: Option<Uid>) -> Result<VerifiedCaller, Reason> {
        let ExternalFacts {
            account,
            pinned_uid,
            ..
        } = &*self.0;
        let uid = live
            .filter(|live| pinned_uid.as_ref().is_none_or(|pinned| pinned == live))
            .ok_or(Reason::CallerIdentityChanged)?;
        let user = ReviewedUser {
            username: account.username(),
            uid: uid.to_string(),
            ..ReviewedUser::default()
        };
        Ok(VerifiedCaller(Arc::new(Facts {
            identity: ServiceAccountIdentity {
                account: account.clone(),
                uid,
            },
            user,
            token_id: self.0.token_id.clone(),
            certificate: None,
            expires_at: self.0.expires_at,
            external: Some(self.clone()),
        })))
    }
}

/// Refuses a token early if no entry has its `iss` and `aud`, or if it has expired, so that it costs
/// no signature check.
///
/// Anyone can make a token with any claims. If the rules or the longest life decided here, the
/// response time would reveal them to a client with forged tokens.
///
/// # Errors
/// One of the `Caller…` reasons. Nothing read here is trusted before [`accept_external`].
pub fn check_unverified(
    jwt: &UnverifiedJwt,
    issuers: &[ExternalIssuer],
    now: Timestamp,
) -> Result<(), Reason> {
    let claims = IdTokenClaims::read(jwt).map_err(|_| Reason::CallerMalformed)?;
    let mut fault = Reason::CallerIssuerMismatch;
    for entry in issuers {
        match check_registered(&claims, entry, None, now) {
            Ok(()) if is_of_kind(&claims, entry) => return Ok(()),
            Ok(()) => fault = Reason::CallerMalformed,
            Err(error) => fault = closer_fault(fault, error),
        }
    }
    Err(fault)
}

/// Accepts a token whose signature was verified with the keys of the issuer that it names.
///
/// # Errors
/// One of the `Caller…` reasons, and the claim that no rule accepts.
pub fn accept_external(
    signature: &VerifiedSignature<'_>,
    issuers: &[ExternalIssuer],
    now: Timestamp,
) -> Result<ExternalIdentity, CallerRefusal> {
    let claims = signature.id_token().map_err(|_| Reason::CallerMalformed)?;
    let (index, entry) = find_entry(&claims, issuers, now)?;
    let run_claims = entry
        .system
        .map_or(&RUN_CLAIMS[..], |system| system.facts().run);
    let run = run_claims.iter().find_map(|name| claims.claim(name));
    Ok(ExternalIdentity(Arc::new(ExternalFacts {
        entry: index,
        issuer: entry.url.clone(),
        subject: claims.subject().to_owned(),
        run: run.map(str::to_owned),
        token_id: claims.registered().token_id.clone(),
        expires_at: claims.registered().expires_at,
        account: entry.service_account.clone(),
        pinned_uid: entry.service_account_uid.clone(),
        token_use: entry.token_use,
    })))
}

/// Returns the only entry that accepts the claims, and its index.
fn find_entry<'i>(
    claims: &IdTokenClaims,
    issuers: &'i [ExternalIssuer],
    now: Timestamp,
) -> Result<(usize, &'i ExternalIssuer), CallerRefusal> {
    let mut fault = Reason::CallerIssuerMismatch;
    let mut accepting = None;
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (index, entry) in issuers.iter().enumerate() {
        if let Err(error) = check_registered(claims, entry, Some(entry.max_token_lifetime), now) {
            fault = closer_fault(fault, error);
            continue;
        }
        if !is_of_kind(claims, entry) {
            fault = Reason::CallerMalformed;
            continue;
        }
        if !entry
            .rules
            .iter()
            .any(|rule| meets_rule(claims, rule, entry.system))
        {
            candidates.push((index, entry));
            continue;
        }
        // The configuration refuses rules that accept the same token. If two did, the order of a
        // list would decide for which ServiceAccount it stands.
        if accepting.replace((index, entry)).is_some() {
            return Err(Reason::CallerClaimsMismatch.into());
        }
    }
    let Some((index, entry)) = accepting else {
        return Err(match RefusedClaim::nearest(claims, &candidates) {
            Some(claim) => CallerRefusal::of_claim(claim),
            None => fault.into(),
        });
    };
    if entry.token_use == TokenUse::Once && claims.registered().token_id.is_none() {
        return Err(Reason::CallerMalformed.into());
    }
    Ok((index, entry))
}

/// Whether the token is of a ServiceAccount if the entry's tokens are, and else is none. So no
/// token of a cluster counts as one of a CI system, whatever its issuer is.
fn is_of_kind(claims: &IdTokenClaims, entry: &ExternalIssuer) -> bool {
    claims.is_service_account_token() == (entry.system == Some(ExternalSystem::Kubernetes))
}

fn check_registered(
    claims: &IdTokenClaims,
    entry: &ExternalIssuer,
    longest_life: Option<Duration>,
    now: Timestamp,
) -> Result<(), ClaimsError> {
    let expected = Expected {
        issuer: &entry.url,
        audience: &entry.audience,
        now,
        longest_life: longest_life.and_then(|life| life.try_into().ok()),
    };
    verify::check_registered(claims.registered(), &expected)
}

/// Chooses the fault of the entry that the token nearly met.
fn closer_fault(fault: Reason, error: ClaimsError) -> Reason {
    match error {
        ClaimsError::WrongIssuer => fault,
        ClaimsError::WrongAudience if fault != Reason::CallerIssuerMismatch => fault,
        error => reason_of(error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
