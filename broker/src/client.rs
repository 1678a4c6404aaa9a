//! The other side of the token API, and the way without a server: what `keyferry token`,
//! `kubeconfig` and `exec` are made of.

pub mod admission_policies;
pub mod caller_token;
pub mod checked_mint;
pub mod client_file;
pub mod credential_cache;
pub mod direct;
pub mod doctor;
pub mod key_records;
pub mod objects_of_hub;
pub mod poked_target;
pub mod server;
pub mod token_agent;
pub mod token_directory;
pub mod trusted_issuer;

use std::time::Duration;

use keyferry_core::reason::Reason;
use secrecy::SecretString;

/// A token and how long it may be used.
pub struct UsableToken {
    /// The token.
    pub token: SecretString,
    /// How long it may be used, the margin taken off.
    pub usable: Duration,
}

/// Why a command got no credential.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The caller's own token was not found.
    #[error(transparent)]
    CallerToken(#[from] caller_token::CallerTokenError),
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] crate::controller::config_file::ConfigFileError),
    /// The hub's client cannot be made.
    #[error(transparent)]
    Hub(#[from] crate::kube::client::ClientError),
    /// The hub refused something.
    #[error("{doing}: {error}")]
    HubCall {
        /// What was being done.
        doing: &'static str,
        /// What the hub said.
        error: crate::ports::HubError,
    },
    /// The hub's discovery documents cannot be used.
    #[error(transparent)]
    Publish(#[from] crate::publication::PublishError),
    /// Policy or state stands against it.
    #[error("getting a token for {access}: {reason}: {detail}")]
    Refused {
        /// What was asked for.
        access: String,
        /// The stable code.
        reason: Reason,
        /// What to do.
        detail: String,
    },
    /// The server's certificates cannot be read.
    #[error(
        "reading the server's CA certificates {0}: it must be a PEM file of at most 330,000 bytes"
    )]
    CertificateAuthority(std::path::PathBuf),
    /// The server cannot be reached.
    #[error("calling {server}: {problem}")]
    Server {
        /// Where.
        server: String,
        /// What went wrong.
        problem: String,
    },
    /// The server said no.
    #[error("the server answered {status} {error}: {description}{}", server::suffix(.request_id.as_deref()))]
    Answer {
        /// HTTP status.
        status: u16,
        /// Its error code.
        error: String,
        /// Its text.
        description: String,
        /// What joins the answer to the server's audit record.
        request_id: Option<String>,
    },
    /// What was received cannot be used.
    #[error(transparent)]
    Received(#[from] keyferry_core::received_kubeconfig::ReceivedError),
    /// The document could not be written.
    #[error(transparent)]
    Kubeconfig(#[from] keyferry_core::kubeconfig::KubeconfigError),
}
