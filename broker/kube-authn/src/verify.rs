//! Verifies a token with each authenticator, step by step in the apiserver's order.

mod claims;
mod distributed;
mod mapping;
mod outcome;
mod rules;
mod text_list;

pub use outcome::{Outcome, Rejection, SignatureCheck, Stage, Union, User, Verdict};

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::config::Undetermined;
use crate::keys::{Algorithm, KeySet, KeySetFault};
use crate::token::{Form, Registered, Signed, Token, TokenFault};
use crate::validate::{Authenticator, Compiled};
use crate::{Code, Minor};

use claims::ClaimsView;

pub(crate) use text_list::read as text_list;

/// The key sets that the target would use, by issuer URL.
#[derive(Debug, Default)]
pub struct Keys {
    by_issuer: BTreeMap<String, Result<KeySet, KeySetFault>>,
    fallback: Option<Result<KeySet, KeySetFault>>,
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
            fallback: Some(KeySet::read(body)),
        }
    }

    /// Adds the key set of one issuer.
    #[must_use]
    pub fn with(mut self, issuer: impl Into<String>, body: &[u8]) -> Self {
        self.by_issuer.insert(issuer.into(), KeySet::read(body));
        self
    }

    fn get(&self, issuer: &str) -> Option<&Result<KeySet, KeySetFault>> {
        self.by_issuer.get(issuer).or(self.fallback.as_ref())
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
pub fn verify(compiled: &Compiled, token: &Token, keys: &Keys, now: Timestamp) -> Verdict {
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
            && keys.get(&authenticator.config.issuer.url).is_some()
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
        match self.user() {
            Ok(user) => Outcome::Accepted(user),
            Err(End::Rejected(rejection)) => Outcome::Rejected(rejection),
            Err(End::Undetermined(undetermined)) => Outcome::Undetermined(undetermined),
        }
    }

    fn user(&self) -> Result<User, End> {
        self.check_token()?;
        if !self
            .authenticator
            .config
            .claim_mappings
            .groups
            .claim
            .is_empty()
        {
            distributed::check(
                &self.token.payload,
                &self.authenticator.config.claim_mappings.groups.claim,
            )?;
        }
        let view = ClaimsView::new(&self.token.payload, self.minor, self.authenticator)?;
        let user = mapping::map(self.authenticator, &view, self.minor)?;
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
            let registered = self.registered()?;
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
        let keys = match self.keys.get(&self.authenticator.config.issuer.url) {
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

    fn registered(&self) -> Result<Registered, End> {
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
        let registered = self.registered()?;
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
