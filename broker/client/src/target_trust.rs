//! Reads what a target shows of the trust that it has loaded, with the user's own kubeconfig for it.

use std::collections::BTreeMap;
use std::path::Path;

use keyferry_hub::client::{ClientError, HubAccess, HubClient};
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::Minor;

use crate::doctor::at_target;
use crate::doctor::diagnosis::ActiveConfiguration;
use crate::doctor::target_calls::ServerVersion;
use crate::doctor::target_metrics::{active_configuration, key_set_hashes};
use crate::lenient::Lenient;

/// The largest metrics response that is read. Several targets are read at the same time.
const MAX_METRICS_BYTES: usize = 32 << 20;

/// Why a target did not show what it has loaded.
#[derive(Debug, thiserror::Error)]
pub enum TargetTrustError {
    /// Its kubeconfig cannot be used.
    #[error("its kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] ClientError),
    /// The user of its kubeconfig runs a command or names a token's file. A writer of the
    /// folder would choose what this machine runs, and which file it sends where.
    #[error("the user of its kubeconfig runs a command or names the file of a token")]
    OutsideCredential,
    /// The target refused the call, or could not be called.
    #[error("{}", at_target(.0))]
    Call(#[from] HubError),
}

impl TargetTrustError {
    /// Says what to do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Kubeconfig(_) => "write a kubeconfig that kubectl can use from this machine",
            Self::OutsideCredential => "write the token itself or a client certificate into it",
            Self::Call(HubError::Unauthenticated(_)) => "write new credentials into its kubeconfig",
            Self::Call(HubError::Forbidden(_)) => {
                "bind a ClusterRole with get on the nonResourceURL /metrics to its user"
            }
            Self::Call(_) => "check that the target can be reached from this machine",
        }
    }
}

/// What the replica of a target that answered has loaded.
#[derive(Debug)]
pub struct LoadedTrust {
    /// Its release, if it is a known one.
    pub minor: Option<Minor>,
    /// The file that it runs with.
    pub file: ActiveConfiguration,
    /// The hashes of the key sets that it fetched last, by issuer.
    pub key_sets: BTreeMap<String, Vec<String>>,
}

/// A target, with the user's own credentials for it.
pub struct TargetReader {
    client: HubClient,
    address: String,
}

impl TargetReader {
    /// Prepares calls by a kubeconfig. Nothing is sent.
    ///
    /// # Errors
    /// [`TargetTrustError`].
    pub async fn open(kubeconfig: &Path) -> Result<Self, TargetTrustError> {
        let access = HubAccess {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..HubAccess::default()
        };
        let config = access.config().await?;
        let user = &config.auth_info;
        if user.exec.is_some() || user.auth_provider.is_some() || user.token_file.is_some() {
            return Err(TargetTrustError::OutsideCredential);
        }
        let address = config.cluster_url.to_string();
        let client = HubClient::new(config)?;
        Ok(Self { client, address })
    }

    /// The client that calls it.
    pub fn client(&self) -> &HubClient {
        &self.client
    }

    /// The address in the kubeconfig.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Reads what the target has loaded, the keys of these issuers among it.
    ///
    /// # Errors
    /// [`TargetTrustError::Call`].
    pub async fn read_loaded_trust(
        &self,
        issuers: impl IntoIterator<Item = &str>,
    ) -> Result<LoadedTrust, TargetTrustError> {
        let metrics = self
            .client
            .get_up_to("/metrics", "text/plain", MAX_METRICS_BYTES)
            .await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let version: Result<Lenient<ServerVersion>, HubError> =
            self.client.get_object("/version", "version").await;
        let issuers = issuers.into_iter();
        let key_sets = issuers.map(|issuer| (issuer.to_owned(), key_set_hashes(&metrics, issuer)));
        Ok(LoadedTrust {
            minor: version.ok().and_then(|Lenient(version)| version.minor()),
            file: active_configuration(&metrics),
            key_sets: key_sets.collect(),
        })
    }
}
