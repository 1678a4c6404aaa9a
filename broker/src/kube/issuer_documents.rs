//! The hub's discovery documents, over a connection made anew for each reading.

use futures::future::BoxFuture;

use super::client::{HubAccess, HubClient};
use crate::ports::{HubError, IssuerDocuments, UpstreamDocuments};

/// The documents as the hub's apiserver serves them.
pub struct KubeIssuerDocuments {
    access: HubAccess,
}

impl KubeIssuerDocuments {
    /// The documents of the hub that `access` leads to.
    pub fn new(access: HubAccess) -> KubeIssuerDocuments {
        KubeIssuerDocuments { access }
    }
}

impl IssuerDocuments for KubeIssuerDocuments {
    fn fetch(&self) -> BoxFuture<'_, Result<UpstreamDocuments, HubError>> {
        Box::pin(async move {
            // Kept-alive connections stick to one replica, which may lag behind the others for ever.
            let config = self.access.config().await.map_err(|error| HubError::Unreachable(error.to_string()))?;
            let client = HubClient::new(config).map_err(|error| HubError::Unreachable(error.to_string()))?;
            let metadata = client.get("/.well-known/openid-configuration", "application/json").await?;
            // The apiserver answers 406 to a plain application/json here. Its own jwks_uri is never followed.
            let jwks = client.get("/openid/v1/jwks", "application/jwk-set+json").await?;
            Ok(UpstreamDocuments { metadata, jwks })
        })
    }
}
