//! The AuthenticationConfiguration that a demo's target runs with.

use std::path::Path;
use std::sync::Arc;

use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{self, LoadFault};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Union, verify_token};
use keyferry_testing::{TokenCase, TokenRefused, TokenVerifier, UserInfo};

use crate::command_error::CommandError;
use crate::local_file::read_small_file;

/// The release that the embedded target behaves like.
const MINOR: Minor = Minor::V1_36;

/// A valid AuthenticationConfiguration. Its first entry is the one that the demo uses.
pub(super) struct AuthFile {
    /// `issuer.url` of the first entry.
    pub(super) issuer: String,
    /// The first of its audiences.
    pub(super) audience: String,
    compiled: Arc<Compiled>,
}

impl AuthFile {
    /// Reads and validates a file as kube-apiserver 1.36 does.
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let refused = |fault: &str| {
            CommandError::with_fix(
                format!("reading {}: {fault}", path.display()),
                "keyferry lint names the line of every mistake",
            )
        };
        let bytes = read_small_file(path)?;
        let loaded = config::load_configuration(&bytes, MINOR).map_err(|fault| match fault {
            LoadFault::Refused(refusal) => refused(&refusal.message),
            LoadFault::Undetermined(undetermined) => refused(&undetermined.reason),
        })?;
        let configuration = loaded.configuration;
        let compiled = validate_configuration(&configuration, MINOR, &[]).map_err(|invalid| {
            let unknown = invalid.undetermined.first();
            match unknown.filter(|_| invalid.errors.is_empty()) {
                Some(undetermined) => refused(&undetermined.reason),
                None => refused(&invalid.message()),
            }
        })?;
        let first = configuration
            .jwt
            .first()
            .ok_or_else(|| refused("it has no entry below jwt"))?;
        let audience = first.issuer.audiences.first();
        Ok(Self {
            issuer: first.issuer.url.clone(),
            audience: audience.cloned().unwrap_or_default(),
            compiled: Arc::new(compiled),
        })
    }

    /// Verifies tokens as kube-apiserver with this file does. The keys are those that the demo's
    /// target read, not those of `issuer.discoveryURL`, which does not run here.
    pub(super) fn verifier(&self) -> TokenVerifier {
        let (compiled, issuer) = (Arc::clone(&self.compiled), self.issuer.clone());
        Arc::new(move |case| user(&compiled, &issuer, case))
    }
}

fn user(compiled: &Compiled, issuer: &str, case: &TokenCase<'_>) -> Result<UserInfo, TokenRefused> {
    let refused = |cause: &str| TokenRefused {
        cause: cause.to_owned(),
    };
    let Some(key_set) = case.key_set else {
        return Err(refused("the issuer's key set could not be read"));
    };
    let token = Token::read(case.token.as_bytes()).map_err(|unknown| refused(&unknown.reason))?;
    let keys = Keys::none().with_key_set(issuer, key_set);
    match verify_token(compiled, &token, &keys, case.now).union() {
        Union::Accepted(user) => Ok(UserInfo {
            username: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }),
        Union::Rejected(rejection) => Err(refused(&rejection.message)),
        Union::Undetermined(undetermined) => Err(refused(&undetermined.reason)),
        Union::Skipped => Err(refused("no entry has the token's issuer")),
    }
}
