//! The text of the user's own client file, which says which server the exec plugin asks, and as
//! which caller. Who may have written the file is checked where it is opened.

use std::path::PathBuf;

use keyferry_api::audience::{Audience, AudienceError};
use keyferry_api::foreign_text;
use keyferry_api::name::{NameError, ObjectName};
use serde::Deserialize;

/// The largest client file that is read, in bytes.
pub const MAX_CLIENT_FILE_BYTES: usize = 64 * 1024;

/// The checked content of a client file. Its paths may be relative to its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDocument {
    /// The URL of the server to ask.
    pub server: String,
    /// The file of the CA certificates that the server is verified with.
    pub certificate_authority: Option<PathBuf>,
    /// The file of the caller's token.
    pub token_file: Option<PathBuf>,
    /// Whether the caller's token is asked of GitHub.
    pub github_oidc: bool,
    /// The host that GitHub's token is asked of, if it is another one than usual.
    pub github_oidc_host: Option<String>,
    /// The environment variable of the caller's token.
    pub token_env: Option<String>,
    /// The ServiceAccount that the hub issues the caller's token for.
    pub service_account: Option<ObjectName>,
    /// The audience of the caller's token.
    pub caller_audience: Audience,
    /// The files of the caller's certificate and of its private key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The kubeconfig of the hub.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig.
    pub context: Option<String>,
    /// Whether a client that does not name its target server still gets a token.
    pub allow_unpinned_server: bool,
    /// The folder in which the exec plugin keeps tokens between calls.
    pub cache_dir: Option<PathBuf>,
}

/// Why the text of a client file cannot be used. No value of it is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientDocumentError {
    /// The text exceeds the limit.
    #[error("it is larger than 64 KiB")]
    TooLarge,
    /// The text is not YAML of the expected form.
    #[error("line {line}: {problem}")]
    Malformed {
        /// The line of the mistake; 0 if it is not known.
        line: u64,
        /// The parser's message, without a part of the file.
        problem: String,
    },
    /// The text has another kind or version.
    #[error(
        "it must begin with apiVersion: config.keyferry.dev/v1alpha1 and kind: ClientConfiguration"
    )]
    OtherKind,
    /// The caller's audience is not valid.
    #[error("callerAudience {0}")]
    CallerAudience(AudienceError),
    /// The caller's ServiceAccount is not valid.
    #[error("serviceAccount {0}")]
    ServiceAccount(NameError),
    /// One of the two files of a client certificate is missing.
    #[error("clientCertificate and clientKey are not both set; set both, or none")]
    HalfCertificate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenDocument {
    api_version: String,
    kind: String,
    server: String,
    certificate_authority: Option<PathBuf>,
    token_file: Option<PathBuf>,
    #[serde(default, rename = "githubOIDC")]
    github_oidc: bool,
    #[serde(rename = "githubOIDCHost")]
    github_oidc_host: Option<String>,
    token_env: Option<String>,
    service_account: Option<String>,
    caller_audience: Option<String>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    #[serde(default)]
    allow_unpinned_server: bool,
    cache_dir: Option<PathBuf>,
}

impl ClientDocument {
    /// Reads the text of a client file. `caller_audience` is that of a file that names none.
    ///
    /// # Errors
    /// [`ClientDocumentError`]: the text is too large, or has unknown content.
    pub fn read(text: &str, caller_audience: &str) -> Result<Self, ClientDocumentError> {
        let written = parse_document(text)?;
        if written.api_version != "config.keyferry.dev/v1alpha1"
            || written.kind != "ClientConfiguration"
        {
            return Err(ClientDocumentError::OtherKind);
        }
        let audience = written.caller_audience.as_deref();
        let audience = Audience::new(audience.unwrap_or(caller_audience));
        let service_account = written.service_account.map(ObjectName::new).transpose();
        let client_certificate = match (written.client_certificate, written.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(ClientDocumentError::HalfCertificate),
        };
        Ok(Self {
            server: written.server,
            certificate_authority: written.certificate_authority,
            token_file: written.token_file,
            github_oidc: written.github_oidc,
            github_oidc_host: written.github_oidc_host,
            token_env: written.token_env,
            service_account: service_account.map_err(ClientDocumentError::ServiceAccount)?,
            caller_audience: audience.map_err(ClientDocumentError::CallerAudience)?,
            client_certificate,
            kubeconfig: written.kubeconfig,
            context: written.context,
            allow_unpinned_server: written.allow_unpinned_server,
            cache_dir: written.cache_dir,
        })
    }
}

fn parse_document(text: &str) -> Result<WrittenDocument, ClientDocumentError> {
    if text.len() > MAX_CLIENT_FILE_BYTES {
        return Err(ClientDocumentError::TooLarge);
    }
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_events: 200, max_aliases: 0, max_anchors: 0 } };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        let problem = error.without_snippet().to_string();
        let problem = foreign_text::one_line(problem.lines().next().unwrap_or_default(), 200);
        ClientDocumentError::Malformed { line, problem }
    })
}
