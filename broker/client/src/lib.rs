//! What commands do with the user's own rights. [`server`] calls the token API; [`direct`] decides
//! and mints without a server; [`token_agent`] and [`token_directory`] renew token files;
//! [`credential_cache`] serves the exec plugin; [`certificate_approver`] approves client
//! certificates; [`admission_policies`] prints and tries the hub's policies; [`doctor`]
//! follows a token's path to a live target; [`access_path`] shows the
//! steps of one access as their objects state them.

pub mod access_path;
pub mod admission_policies;
#[cfg(test)]
mod answering_hub;
pub mod caller_token;
pub mod certificate_approver;
pub mod checked_mint;
pub mod ci_token;
pub mod client_certificate;
pub mod client_file;
pub mod code_link;
pub mod configuration_source;
pub mod credential_cache;
pub mod direct;
pub mod doctor;
#[cfg(feature = "view")]
pub mod fleet_reading;
pub mod key_records;
pub mod objects_file;
pub mod objects_of_hub;
pub mod plugin_folders;
pub mod server;
pub mod stated_settings;
pub mod target_key_refresh;
pub mod target_trust;
pub mod token_agent;
pub mod token_directory;
pub mod token_proof;
pub mod trusted_issuer;
pub mod wanted_objects;

use std::time::Duration;

pub use keyferry_api::{lenient, object_view, stated_condition};

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::reason::Reason;
use secrecy::SecretString;

/// A token with its remaining lifetime.
pub struct UsableToken {
    /// The token.
    pub token: SecretString,
    /// How long the token may be used, after the safety margin.
    pub remaining_lifetime: Duration,
}

/// Why a command got no credential.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The caller's own token was not found.
    #[error(transparent)]
    CallerToken(#[from] caller_token::CallerTokenError),
    /// A file of the caller's certificate cannot be read.
    #[error(transparent)]
    ClientCertificate(#[from] client_certificate::ClientCertificateError),
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] keyferry_platform::config_file::ConfigFileError),
    /// The hub's client cannot be made.
    #[error(transparent)]
    Hub(#[from] keyferry_hub::client::ClientError),
    /// A call to the hub failed.
    #[error("{doing}: {error}")]
    HubCall {
        /// The failed step.
        doing: &'static str,
        /// The error of the call.
        error: keyferry_hub::ports::HubError,
    },
    /// An object is too large to be read.
    #[error("{kind} {name} is too large to be read")]
    ObjectTooLarge {
        /// Its kind.
        kind: &'static str,
        /// `<namespace>/<name>`, or the name alone.
        name: String,
    },
    /// The hub has no TargetCluster.
    #[error("listing the TargetClusters of the hub: there are none")]
    NoTargetClusters,
    /// The hub has no TargetCluster of this name.
    #[error("reading TargetCluster {0:?} of the hub: there is none of this name")]
    NoSuchTarget(String),
    /// The hub has no TargetAccess of this name that leads to a TargetCluster.
    #[error(
        "reading TargetAccess {0} of the hub: there is none of this name that leads to a \
         TargetCluster"
    )]
    NoSuchAccess(String),
    /// The TargetCluster has changed since Keyferry wrote its status.
    #[error("reading TargetCluster {0:?} of the hub: its status is not about its current spec")]
    StaleTarget(String),
    /// No status of a TargetCluster has the settings of the server.
    #[error(
        "reading Keyferry's settings from the hub: no TargetCluster has a status about its current \
         spec with usernamePrefix, discoveryURL and clusterResourceNamespace"
    )]
    NoSettings,
    /// A file with objects of the hub cannot be used.
    #[error(transparent)]
    Objects(#[from] objects_file::ObjectsFileError),
    /// The hub's discovery documents cannot be used.
    #[error(transparent)]
    Publish(#[from] keyferry_issuer::publication::PublishError),
    /// Policy or the current state refuses the access.
    #[error("getting a token for {access}: {reason}: {detail}")]
    Refused {
        /// The requested access.
        access: String,
        /// The stable code.
        reason: Reason,
        /// The explanation, with the fix.
        detail: String,
    },
    /// The server's certificates cannot be read.
    #[error(
        "reading the server's CA certificates {0}: it must be a PEM file of at most 330,000 bytes"
    )]
    CertificateAuthority(std::path::PathBuf),
    /// The server cannot be reached.
    #[error("calling {server}: {problem}{}", server::in_line(.fix.as_deref()))]
    Server {
        /// The address of the server.
        server: String,
        /// The cause of the failure.
        problem: String,
        /// What to do about it.
        fix: Option<String>,
    },
    /// The server answered with an error.
    #[error("the server answered {status} {error}: {description}{}", server::request_id_suffix(.request_id.as_deref()))]
    Answer {
        /// HTTP status.
        status: u16,
        /// The error code in the answer.
        error: ForeignText,
        /// The error description in the answer.
        description: ForeignText,
        /// The request id, which is also in the server's audit record.
        request_id: Option<String>,
    },
    /// The received kubeconfig cannot be used.
    #[error(transparent)]
    Received(#[from] keyferry_core::received_kubeconfig::ReceivedError),
    /// The kubeconfig could not be rendered.
    #[error(transparent)]
    Kubeconfig(#[from] keyferry_core::kubeconfig::KubeconfigError),
}
