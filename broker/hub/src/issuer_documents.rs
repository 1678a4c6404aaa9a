//! Reads the hub's discovery documents from each of its endpoints, over new connections for each
//! read.

use futures::future::{BoxFuture, join_all};
use http::Uri;
use keyferry_api::config::HubEndpoint;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_keys::discovery::{KEYS_PATH, KEYS_TYPE, METADATA_TYPE};

use super::client::{HubAccess, HubClient};
use super::endpoint_slice;
use crate::forbidden::HubCaller;
use crate::ports::{EndpointAnswer, HubError, IssuerDocuments, UpstreamDocuments};

/// Reads the discovery documents that the hub's apiservers serve.
pub struct KubeIssuerDocuments {
    access: HubAccess,
    endpoints: Vec<HubEndpoint>,
    /// Whose credentials `access` has, for messages.
    caller: HubCaller,
}

impl KubeIssuerDocuments {
    /// Creates the reader for the hub of `access`. It reads from `endpoints` if there are any.
    /// Otherwise it reads from the endpoints that the hub lists, if this process runs in the hub,
    /// else from the client's own address. `caller` is whose credentials `access` has.
    pub fn new(access: HubAccess, endpoints: Vec<HubEndpoint>, caller: HubCaller) -> Self {
        Self {
            access,
            endpoints,
            caller,
        }
    }

    async fn read_all(&self) -> Vec<EndpointAnswer> {
        let config = match self.access.config().await {
            Ok(config) => config,
            Err(error) => {
                let documents = Err(HubError::Unreachable(error.to_string()));
                return vec![EndpointAnswer {
                    endpoint: "the hub".to_owned(),
                    documents,
                }];
            }
        };
        let mut silent = None;
        let mut addresses: Vec<Uri> = self
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.as_str().parse().ok())
            .collect();
        if addresses.is_empty() && self.access.kubeconfig.is_none() {
            match endpoint_slice::apiserver_addresses(&config).await {
                Ok(listed) => addresses = listed,
                Err(error) => {
                    silent = Some(EndpointAnswer {
                        endpoint: "the hub's list of apiservers".to_owned(),
                        documents: Err(error),
                    })
                }
            }
        }
        if addresses.is_empty() {
            addresses.push(config.cluster_url.clone());
        }
        let mut answers = join_all(
            addresses
                .into_iter()
                .map(|address| read_endpoint(config.clone(), address, self.caller)),
        )
        .await;
        answers.extend(silent);
        answers
    }
}

impl IssuerDocuments for KubeIssuerDocuments {
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>> {
        Box::pin(self.read_all())
    }
}

/// Reads both documents over a new connection. A kept-alive connection sticks to one replica, which
/// may lag behind the others for ever.
async fn read_endpoint(
    mut config: kube::Config,
    address: Uri,
    caller: HubCaller,
) -> EndpointAnswer {
    let endpoint = address.to_string();
    if config.tls_server_name.is_none() && address.host() != config.cluster_url.host() {
        // Replicas have different addresses, but all present the one name that the client trusts.
        config.tls_server_name = config
            .cluster_url
            .host()
            .map(|host| host.trim_matches(['[', ']']).to_owned());
    }
    config.cluster_url = address;
    EndpointAnswer {
        endpoint,
        documents: fetch_documents(config, caller).await,
    }
}

async fn fetch_documents(
    config: kube::Config,
    caller: HubCaller,
) -> Result<UpstreamDocuments, HubError> {
    let client = HubClient::new(config)
        .map_err(|error| HubError::Unreachable(error.to_string()))?
        .called_by(caller);
    let metadata = client.get(DISCOVERY_PATH, METADATA_TYPE).await?;
    // The apiserver answers 406 to a plain application/json here. Its own jwks_uri is never
    // followed.
    let jwks = client.get(KEYS_PATH, KEYS_TYPE).await?;
    Ok(UpstreamDocuments { metadata, jwks })
}
