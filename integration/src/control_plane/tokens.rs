//! Mints tokens by TokenRequest, as the admin.

use http::Method;
use serde_json::{Value, json};

use super::{ControlPlane, ControlPlaneError};
use crate::rest::{RestClient, RestError};

/// The result of a TokenRequest.
#[derive(Clone)]
pub struct MintedToken {
    /// The JWT.
    pub token: String,
    /// `status.expirationTimestamp`, RFC 3339.
    pub expires: String,
    /// `spec.audiences`, which the server fills when the request names none.
    pub audiences: Vec<String>,
}

impl std::fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MintedToken")
            .field("expires", &self.expires)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Mints as the admin. Without audiences, the server uses its own. kube-apiserver accepts
    /// lifetimes of 600 seconds and more.
    pub async fn token_request(
        &self,
        namespace: &str,
        service_account: &str,
        audiences: &[&str],
        seconds: u64,
    ) -> Result<MintedToken, ControlPlaneError> {
        Ok(mint(&self.admin, namespace, service_account, audiences, seconds).await?)
    }
}

/// Mints with a client of any identity.
pub(crate) async fn mint(
    client: &RestClient,
    namespace: &str,
    service_account: &str,
    audiences: &[&str],
    seconds: u64,
) -> Result<MintedToken, RestError> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "audiences": audiences, "expirationSeconds": seconds },
    });
    let answer = client.create(&path, &request).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    read(&answer, text).ok_or(RestError::Shape {
        method: Method::POST,
        path,
        wanted: "a TokenRequest with a status",
    })
}

fn read(answer: &Value, text: impl Fn(&Value) -> Option<String>) -> Option<MintedToken> {
    Some(MintedToken {
        token: text(&answer["status"]["token"])?,
        expires: text(&answer["status"]["expirationTimestamp"])?,
        audiences: answer["spec"]["audiences"]
            .as_array()?
            .iter()
            .filter_map(text)
            .collect(),
    })
}
