//! Where a command finds the token by which it proves who calls.

use std::path::{Path, PathBuf};

use keyferry_core::audience::Audience;
use keyferry_core::name::ObjectName;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use crate::kube::client::{HubAccess, HubClient};

/// Where a projected volume puts it, in every example.
pub const DEFAULT_TOKEN_FILE: &str = "/var/run/secrets/keyferry.dev/token";
/// More than any token has.
const MAX_TOKEN_BYTES: u64 = 8192;

/// What the command line says about the caller.
#[derive(Clone, Debug, Default)]
pub struct CallerTokenSource {
    /// `--token-file` or `KEYFERRY_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// The ServiceAccount to mint a caller token for through a hub kubeconfig, in the access's namespace.
    pub service_account: Option<ObjectName>,
    /// The audience of such a token.
    pub audience: Option<Audience>,
    /// The hub.
    pub hub: HubAccess,
}

/// No caller token was found.
#[derive(Debug, thiserror::Error)]
pub enum CallerTokenError {
    /// The file cannot be read.
    #[error("reading the caller's token from {path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Nothing says who calls.
    #[error(
        "finding the caller's token: there is none at {DEFAULT_TOKEN_FILE}; give --token-file, or --service-account with a hub kubeconfig"
    )]
    NotFound,
    /// The hub did not mint one.
    #[error("minting a caller token for ServiceAccount {service_account}: {error}")]
    Mint {
        /// For which ServiceAccount.
        service_account: String,
        /// What the hub said.
        error: crate::ports::HubError,
    },
    /// The hub's client cannot be made.
    #[error(transparent)]
    Client(#[from] crate::kube::client::ClientError),
}

/// Finds the caller's token: a named file, the projected volume, or a TokenRequest through a hub kubeconfig.
///
/// # Errors
/// [`CallerTokenError`].
pub async fn find(source: &CallerTokenSource, namespace: &str) -> Result<SecretString, CallerTokenError> {
    if let Some(path) = &source.token_file {
        return read(path);
    }
    if source.service_account.is_none() && Path::new(DEFAULT_TOKEN_FILE).exists() {
        return read(Path::new(DEFAULT_TOKEN_FILE));
    }
    match &source.service_account {
        Some(name) => mint(source, namespace, name).await,
        None => Err(CallerTokenError::NotFound),
    }
}

/// Reads a file that holds one token.
///
/// # Errors
/// [`CallerTokenError::File`].
pub fn read(path: &Path) -> Result<SecretString, CallerTokenError> {
    let wrong = |problem| CallerTokenError::File { path: path.to_owned(), problem };
    let metadata = std::fs::metadata(path).map_err(|_| wrong("it does not exist or may not be read"))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    if metadata.len() > MAX_TOKEN_BYTES {
        return Err(wrong("it is larger than a token can be"));
    }
    let text = std::fs::read_to_string(path).map_err(|_| wrong("it is not readable text"))?;
    let token = text.trim_matches(['\n', '\r', ' ']);
    if token.is_empty() || token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(wrong("it does not hold a token"));
    }
    Ok(token.to_owned().into())
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    token: SecretString,
}

async fn mint(source: &CallerTokenSource, namespace: &str, name: &ObjectName) -> Result<SecretString, CallerTokenError> {
    // Never without one: that would be a credential of the hub, sent to the server.
    let audience = source.audience.as_ref().ok_or(CallerTokenError::NotFound)?;
    let client = HubClient::new(source.hub.config().await?)?;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "audiences": [audience], "expirationSeconds": 600 },
    });
    let answer: Result<Answer, _> = client.create(&path, &request, "TokenRequest").await;
    match answer {
        Ok(answer) => Ok(answer.status.token),
        Err(error) => Err(CallerTokenError::Mint { service_account: format!("{namespace}/{name}"), error }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use secrecy::ExposeSecret;

    use super::{CallerTokenSource, find};

    #[tokio::test]
    async fn a_token_file_holds_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = CallerTokenSource { token_file: Some(path.clone()), ..CallerTokenSource::default() };
        std::fs::write(&path, "a.b.c\r\n").unwrap();
        assert_eq!(find(&source, "tenant-a").await.unwrap().expose_secret(), "a.b.c");
        for content in ["", "\n", "a.b.c d", "\u{feff}a.b.c", "a.b\n.c"] {
            std::fs::write(&path, content).unwrap();
            let error = find(&source, "tenant-a").await.unwrap_err().to_string();
            assert!(!error.contains("a.b"), "{error}");
        }
        std::fs::write(&path, "a".repeat(8193)).unwrap();
        assert!(find(&source, "tenant-a").await.is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(find(&source, "tenant-a").await.is_err());
    }
}
