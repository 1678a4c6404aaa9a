//! Reads the token from a file: alone, or in an ExecCredential.

use std::error::Error;
use std::path::{Path, PathBuf};

use keyferry_keys::json::{JsonError, JsonLimits, MAX_JSON_DEPTH, read_object};
use keyferry_keys::jwt::{JwtError, UnverifiedJwt};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::command_error::command_errors;
use crate::local_file::{self, ReadError};

/// The most bytes of a file: a token, with its frame of an ExecCredential.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// Why there is no token to decode. No part of the file is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenFileError {
    /// The token itself was given. It is not repeated.
    #[error(
        "reading the token: what is given is a token, not the name of a file, and never an \
         argument; fix: pipe it into the command, with - as FILE"
    )]
    TokenAsArgument,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("reading the token from {}: it is empty", .0.display())]
    Empty(PathBuf),
    #[error("reading the token from {}: it is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error(
        "reading the token from {}: {error}{}; fix: give a file with a signed JWT alone, or with \
         an ExecCredential as JSON",
        path.display(),
        in_line(error.source())
    )]
    NotAToken { path: PathBuf, error: JwtError },
    #[error("reading an ExecCredential from {}: {error}", path.display())]
    Json { path: PathBuf, error: JsonError },
    #[error(
        "reading an ExecCredential from {}: its kind is not ExecCredential; fix: give the token \
         alone, or what keyferry credential prints",
        .0.display()
    )]
    Kind(PathBuf),
    #[error(
        "reading an ExecCredential from {}: it has no status.token, so it holds no token",
        .0.display()
    )]
    NoToken(PathBuf),
}

command_errors!(with fix: TokenFileError);

fn in_line(source: Option<&dyn Error>) -> String {
    source.map_or_else(String::new, |source| format!(": {source}"))
}

/// Reads and parses the token of a file, or of standard input for `-`.
///
/// # Errors
/// [`TokenFileError`].
pub(crate) fn read_token(path: &Path) -> Result<UnverifiedJwt, TokenFileError> {
    if local_file::is_token_itself(path) {
        return Err(TokenFileError::TokenAsArgument);
    }
    let bytes = Zeroizing::new(local_file::read(path, "the token", MAX_FILE_BYTES)?);
    parse_token(&bytes, path)
}

/// Parses the token of a file with these bytes.
///
/// # Errors
/// [`TokenFileError`].
pub(super) fn parse_token(bytes: &[u8], path: &Path) -> Result<UnverifiedJwt, TokenFileError> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return Err(TokenFileError::Empty(path.to_owned()));
    }
    let parsed = |text: &str| {
        // A token of GitHub has the thumbprint of a certificate in its header, which chooses no key.
        UnverifiedJwt::parse_id_token(text).map_err(|error| TokenFileError::NotAToken {
            path: path.to_owned(),
            error,
        })
    };
    if bytes.first() != Some(&b'{') {
        let text = str::from_utf8(bytes).map_err(|_| TokenFileError::NotUtf8(path.to_owned()))?;
        return parsed(text);
    }
    let limits = JsonLimits {
        bytes: MAX_FILE_BYTES,
        depth: MAX_JSON_DEPTH,
    };
    let credential = read_object(bytes, limits).map_err(|error| TokenFileError::Json {
        path: path.to_owned(),
        error,
    })?;
    if credential.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(TokenFileError::Kind(path.to_owned()));
    }
    let token = credential
        .get("status")
        .and_then(|status| status.get("token"))
        .and_then(Value::as_str)
        .ok_or_else(|| TokenFileError::NoToken(path.to_owned()))?;
    parsed(token)
}
