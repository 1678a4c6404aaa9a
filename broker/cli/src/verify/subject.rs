//! The token to verify: a real one, or one that a hub would mint.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_api::service_account::ServiceAccount;
use keyferry_kube_authn::config::{Loaded, Undetermined};
use keyferry_kube_authn::token::{MAX_BYTES, ServiceAccountToken, Token};

use super::{VerifyArgs, local_file};
use crate::local_file::ReadError;

/// Why there is no token to verify.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubjectError {
    #[error(
        "finding the token: give --target-token-file FILE, - for standard input, or \
         --service-account"
    )]
    NotGiven,
    /// The token itself was given. It is not repeated.
    #[error(
        "reading --target-token-file: what is given is a token, not the name of a file, and never \
         an argument"
    )]
    TokenAsArgument,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("reading the token from {}: it is empty", .0.display())]
    Empty(PathBuf),
    #[error("finding the issuer of the token: the file has {0} of them; fix: give --issuer")]
    ManyIssuers(usize),
    #[error(
        "finding the audience of the token: the file names no single one for {issuer}; fix: give \
         --audience"
    )]
    NoSingleAudience { issuer: String },
}

/// A token and its description for the user.
pub(super) struct Subject {
    pub(super) token: Result<Token, Undetermined>,
    pub(super) assumed: Vec<&'static str>,
    pub(super) description: String,
}

impl Subject {
    /// Returns the subject that the arguments name.
    ///
    /// # Errors
    /// [`SubjectError`]: there is none, its file cannot be read, or the file does not determine its
    /// issuer and audience.
    pub(super) fn of(
        args: &VerifyArgs,
        loaded: &Loaded,
        now: Timestamp,
    ) -> Result<Self, SubjectError> {
        if let Some(account) = &args.service_account {
            return Self::imagined(account, args, loaded, now);
        }
        let path = match (&args.target_token_file, args.rest.as_slice()) {
            (Some(path), _) => path.as_path(),
            (None, [_]) => Path::new("-"),
            (None, _) => {
                return Err(SubjectError::NotGiven);
            }
        };
        if local_file::is_token_itself(path) {
            return Err(SubjectError::TokenAsArgument);
        }
        let bytes = local_file::read(path, "the token", MAX_BYTES + 1)?;
        if bytes.trim_ascii().is_empty() {
            return Err(SubjectError::Empty(path.to_owned()));
        }
        let from = if path == Path::new("-") {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Self {
            token: Token::read(bytes.trim_ascii()),
            assumed: Vec::new(),
            description: format!("a token from {from}"),
        })
    }

    fn imagined(
        account: &ServiceAccount,
        args: &VerifyArgs,
        loaded: &Loaded,
        now: Timestamp,
    ) -> Result<Self, SubjectError> {
        let issuers = || {
            loaded
                .configuration
                .jwt
                .iter()
                .map(|authenticator| &authenticator.issuer)
        };
        let issuer = match (&args.issuer, loaded.configuration.jwt.as_slice()) {
            (Some(issuer), _) => issuer.clone(),
            (None, [only]) => only.issuer.url.clone(),
            (None, many) => {
                return Err(SubjectError::ManyIssuers(many.len()));
            }
        };
        let audiences = issuers()
            .find(|known| known.url == issuer)
            .map_or(&[][..], |known| &known.audiences);
        let audience = match (&args.audience, audiences) {
            (Some(audience), _) => audience.clone(),
            (None, [only]) => only.clone(),
            (None, _) => {
                return Err(SubjectError::NoSingleAudience { issuer });
            }
        };
        let description = format!(
            "a token of ServiceAccount {account} for {audience} that lives {} s, as its hub \
             {issuer} would mint it",
            args.lifetime.as_secs()
        );
        let token = ServiceAccountToken {
            namespace: account.namespace.to_string(),
            name: account.name.to_string(),
            uid: None,
            issuer,
            audience,
            issued_at: now.as_second(),
            lifetime: i64::try_from(args.lifetime.as_secs()).unwrap_or(i64::MAX),
        };
        Ok(Self {
            token: Ok(Token::of_service_account(&token)),
            assumed: token.assumed(),
            description,
        })
    }
}
