//! Why the server could not start or had to stop.

use std::path::PathBuf;

use keyferry_api::reason::Reason;
use keyferry_hub::client::ClientError;
use keyferry_listener::ListenError;
use keyferry_platform::config_file;
use keyferry_platform::https_client::HttpsClientError;
use keyferry_server::caller_trust::CallerTrustError;

/// Why the server could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] config_file::ConfigFileError),
    /// The hub's client cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The CA of a rule for client certificates cannot be used.
    #[error(transparent)]
    CallerTrust(#[from] CallerTrustError),
    /// The audit file cannot be opened.
    #[error("opening the audit file {path}: {source}")]
    Audit {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The system's randomness failed.
    #[error("drawing a random key: the operating system gave none")]
    Random,
    /// The hub itself would accept tokens for Keyferry.
    #[error(
        "checking callerAudience {0}: the hub's own apiserver accepts it, so every caller's token \
         would be a credential of the hub; choose another"
    )]
    CallerAudienceIsHubs(String),
    /// The check of callerAudience failed.
    #[error(
        "checking callerAudience: {0}; the canary ServiceAccount must exist and Keyferry must be \
         allowed to mint for it and to review tokens"
    )]
    CallerAudienceUnchecked(Reason),
    /// The certificates of an external issuer cannot be used.
    #[error(
        "reading externalIssuers: certificateAuthority of {url}: {source}; write the PEM \
         certificate of the CA that signed its server's"
    )]
    ExternalIssuerAuthority {
        /// The issuer.
        url: String,
        /// What is wrong with the certificates.
        source: HttpsClientError,
    },
    /// The hub signs as one of the external issuers.
    #[error(
        "reading externalIssuers: {0} is the hub's own issuer, whose tokens the hub reviews; \
         remove the entry"
    )]
    ExternalIssuerIsHubs(String),
    /// A task that keeps the state current ended; without it nothing may be decided.
    #[error("serving: a task that keeps the hub's state current ended")]
    BackgroundEnded,
    /// A listener ended unexpectedly.
    #[error("serving: a listener ended: {0}")]
    Ended(std::io::Error),
}
