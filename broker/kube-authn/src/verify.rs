//! Verifies a token with each authenticator, step by step in the apiserver's order.

mod advice;
mod claims;
mod distributed;
mod mapping;
mod outcome;
mod rules;
mod text_list;

pub use outcome::{Outcome, Rejection, SignatureCheck, Stage, Union, User, Verdict};

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use keyferry_go_formats::GoRelease;

use crate::certificate::go_releases;
use crate::config::Undetermined;
use crate::keys::{Algorithm, KeySet, KeySetFault};
use crate::token::{Form, Registered, Signed, Token, TokenFault};
use crate::validate::{Authenticator, Compiled};
use crate::{Code, Minor};

use claims::ClaimsView;

pub(crate) use text_list::read_text_list as text_list;

/// The key sets that the target would use, by issuer URL.
#[derive(Debug, Default)]
pub struct Keys {
    by_issuer: BTreeMap<String, PublishedKeys>,
    fallback: Option<PublishedKeys>,
}

impl Keys {
    /// Creates an empty set of keys; signatures are then not checked.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Uses one key set, the body of a `jwks_uri`, for every issuer.
    #[must_use]
    pub fn for_all(body: &[u8]) -> Self {
        Self {
            by_issuer: BTreeMap::new(),
            fallback: Some(PublishedKeys::new(body)),
        }
    }

    /// Adds the key set of one issuer.
    #[must_use]
    pub fn with_key_set(mut self, issuer: impl Into<String>, body: &[u8]) -> Self {
        self.by_issuer
            .insert(issuer.into(), PublishedKeys::new(body));
        self
    }

    /// Says how many keys the target reads in the set for every issuer, and what a document without
    /// keys is. `None` if there is no such set, or if it cannot be decoded.
    #[must_use]
    pub fn summary(&self, minor: Minor) -> Option<String> {
        let keys = self.fallback.as_ref()?.read(minor).as_ref().ok()?;
        let count = match (keys.len(), keys.instead_of_keys()) {
            (0, Some(instead)) => format!("no keys in it, {}", instead.advice()),
            (0, None) => "no keys in it".to_owned(),
            (1, _) => "1 key".to_owned(),
            (count, _) => format!("{count} keys"),
        };
        Some(match keys.published_secret() {
            Some(secret) => format!(
                "{count}, but keys[{}] is {}: {}",
                secret.index,
                secret.kind,
                Code::PrivateKeyPublished.fix()
            ),
            None => count,
        })
    }

    fn published(&self, issuer: &str) -> Option<&PublishedKeys> {
        self.by_issuer.get(issuer).or(self.fallback.as_ref())
    }

    fn get(&self, issuer: &str, minor: Minor) -> Option<&Result<KeySet, KeySetFault>> {
        Some(self.published(issuer)?.read(minor))
    }
}

/// The body of one `jwks_uri`. How it is read depends on the releases of Go that the target's minor
/// is built with.
#[derive(Debug)]
struct PublishedKeys {
    body: Vec<u8>,
    /// The reading, by the oldest of these releases.
    readings: [OnceLock<Result<KeySet, KeySetFault>>; GoRelease::ALL.len()],
}

impl PublishedKeys {
    fn new(body: &[u8]) -> Self {
        Self {
            body: body.to_vec(),
            readings: Default::default(),
        }
    }

    fn read(&self, minor: Minor) -> &Result<KeySet, KeySetFault> {
        let releases = go_releases(minor);
        let [readings @ .., newest] = &self.readings;
        // As many releases remain as there are newer ones.
        let reading = GoRelease::ALL
            .len()
            .checked_sub(releases.len())
            .and_then(|index| readings.get(index))
            .unwrap_or(newest);
        reading.get_or_init(|| KeySet::read(&self.body, releases))
    }
}

/// Why a verification ends early.
pub(crate) enum End {
    Rejected(Rejection),
    Undetermined(Undetermined),
}

impl From<Undetermined> for End {
    fn from(undetermined: Undetermined) -> Self {
        Self::Undetermined(undetermined)
    }
}

/// Verifies the token with every authenticator, in the order of the file.
#[must_use]
pub fn verify_token(compiled: &Compiled, token: &Token, keys: &Keys, now: Timestamp) -> Verdict {
    let case = |authenticator| Steps {
        minor: compiled.minor,
        authenticator,
        token,
        now,
        keys,
    };
    let outcomes: Vec<Outcome> = compiled
        .authenticators
        .iter()
        .map(|authenticator| case(authenticator).outcome())
        .collect();
    let checked = compiled.authenticators.iter().any(|authenticator| {
        token.issuer.as_ref() == Ok(&authenticator.config.issuer.url)
            && keys.published(&authenticator.config.issuer.url).is_some()
    });
    let signature = if checked && token.is_signed() {
        SignatureCheck::Checked
    } else {
        SignatureCheck::NotChecked
    };
    Verdict {
        outcomes,
        signature,
    }
}

struct Steps<'a> {
    minor: Minor,
    authenticator: &'a Authenticator,
    token: &'a Token,
    now: Timestamp,
    keys: &'a Keys,
}

impl Steps<'_> {
    fn outcome(&self) -> Outcome {
        match &self.token.issuer {
            Err(code) => return Outcome::Skipped(*code),
            Ok(issuer) if *issuer != self.authenticator.config.issuer.url => {
                return Outcome::Skipped(Code::IssuerDiffers);
            }
            Ok(_) => {}
        }
        match self.map_user() {
            Ok(user) => Outcome::Accepted(user),
            Err(End::Rejected(rejection)) => Outcome::Rejected(self.add_advice(rejection)),
            Err(End::Undetermined(undetermined)) => Outcome::Undetermined(undetermined),
        }
    }

    /// Adds what to do, where the token shows more than the reason code.
    fn add_advice(&self, rejection: Rejection) -> Rejection {
        let keys = self
            .keys
            .get(&self.authenticator.config.issuer.url, self.minor);
        let keys = keys.and_then(|keys| keys.as_ref().ok());
        let audiences = &self.authenticator.audiences;
        Rejection {
            fix: advice::for_rejection(&rejection, self.token, keys, audiences),
            ..rejection
        }
    }

    fn map_user(&self) -> Result<User, End> {
        self.check_token()?;
        if !self
            .authenticator
            .config
            .claim_mappings
            .groups
            .claim
            .is_empty()
        {
            distributed::check_distributed(
                &self.token.payload,
                &self.authenticator.config.claim_mappings.groups.claim,
            )?;
        }
        let view = ClaimsView::new(&self.token.payload, self.minor, self.authenticator)?;
        let user = mapping::map_claims(self.authenticator, &view, self.minor)?;
        rules::check_required(self.authenticator, &self.token.payload)?;
        rules::check_claims(self.authenticator, &view)?;
        rules::check_user(self.authenticator, &user)?;
        Ok(user)
    }

    /// Checks the signature and the registered claims. Up to 1.35 the claims come first, from 1.36
    /// the signature.
    fn check_token(&self) -> Result<(), End> {
        let signed = match &self.token.form {
            Form::Signed(Ok(signed)) => Some(signed),
            Form::Signed(Err(TokenFault::Malformed(reason, exact))) => {
                let reason = self.by_its_library(reason);
                let rejection = Rejection::new(
                    Stage::Parse,
                    Code::MalformedJwt,
                    format!("oidc: verify token: oidc: malformed jwt: {reason}"),
                );
                return Err(End::Rejected(if *exact {
                    rejection
                } else {
                    rejection.near()
                }));
            }
            Form::Signed(Err(TokenFault::Undetermined(undetermined))) => {
                return Err(undetermined.clone().into());
            }
            Form::Imagined => None,
        };
        if self.minor >= Minor::V1_36 {
            self.check_signature(signed)?;
            self.check_claims()?;
        } else {
            self.check_claims()?;
            self.check_signature(signed)?;
        }
        let audiences = &self.authenticator.audiences;
        if audiences.len() > 1 {
            let registered = self.check_registered()?;
            if !registered
                .audience
                .iter()
                .any(|audience| audiences.contains(audience))
            {
                return Err(claims::audience_differs(
                    &format!("in {}", keyferry_go_formats::quote::quote_list(audiences)),
                    &registered.audience,
                ));
            }
        }
        Ok(())
    }

    /// Replaces the library's name in its error texts: up to 1.32 the apiserver uses
    /// `square/go-jose`.
    fn by_its_library(&self, reason: &str) -> String {
        match reason.split_once("go-jose/go-jose: ") {
            Some((before, after)) if self.minor <= Minor::V1_32 => {
                format!("{before}square/go-jose: {after}")
            }
            _ => reason.to_owned(),
        }
    }

    fn check_signature(&self, signed: Option<&Signed>) -> Result<(), End> {
        let Some(signed) = signed else { return Ok(()) };
        let Some(algorithm) = Algorithm::named(&signed.algorithm) else {
            let message = format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm, expected {} \
                 got {}",
                keyferry_go_formats::quote::quote_list(&Algorithm::NAMES),
                keyferry_go_formats::quote::quote(&signed.algorithm)
            );
            return Err(End::Rejected(Rejection::new(
                Stage::Algorithm,
                Code::AlgorithmUnsupported,
                message,
            )));
        };
        let issuer = &self.authenticator.config.issuer.url;
        let keys = match self.keys.get(issuer, self.minor) {
            None => return Ok(()),
            Some(Ok(keys)) => keys,
            Some(Err(KeySetFault::Undetermined(undetermined))) => {
                return Err(undetermined.clone().into());
            }
            Some(Err(KeySetFault::Undecodable(reason))) => {
                let message = format!(
                    "oidc: verify token: failed to verify signature: fetching keys oidc: failed to \
                     decode keys: {}",
                    self.by_its_library(reason)
                );
                return Err(End::Rejected(
                    Rejection::new(Stage::Signature, Code::KeySetUndecodable, message).near(),
                ));
            }
        };
        if signed.critical_understood
            && keys.verifies(&signed.kid, algorithm, &signed.input, &signed.signature)
        {
            return Ok(());
        }
        let message =
            "oidc: verify token: failed to verify signature: failed to verify id token signature";
        Err(End::Rejected(Rejection::new(
            Stage::Signature,
            Code::SignatureInvalid,
            message,
        )))
    }

    fn check_registered(&self) -> Result<Registered, End> {
        Registered::read(&self.token.payload).map_err(|fault| {
            let others = fault
                .others
                .into_iter()
                .map(|message| (fault.code, format!("oidc: verify token: {message}")))
                .collect();
            let rejection = Rejection::new(
                Stage::Claims,
                fault.code,
                format!("oidc: verify token: {}", fault.message),
            );
            // Go quotes an invalid number literal as the token spells it, with its escapes; ours
            // may differ.
            let exact = !fault.message.contains("invalid number literal");
            End::Rejected(Rejection {
                others,
                exact,
                ..rejection
            })
        })
    }

    fn check_claims(&self) -> Result<(), End> {
        let registered = self.check_registered()?;
        if let [audience] = self.authenticator.audiences.as_slice()
            && !registered.audience.contains(audience)
        {
            return Err(claims::audience_differs(
                &keyferry_go_formats::quote::quote(audience),
                &registered.audience,
            ));
        }
        claims::check_times(&registered, self.now)
    }
}

#[cfg(test)]
mod tests;
