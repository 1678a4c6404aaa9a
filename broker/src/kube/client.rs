//! The client of the hub's API: bounded in time and size, never retried by the library, and with errors that repeat nothing secret.

use std::path::PathBuf;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::ports::HubError;

/// How long one call may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may be silent. The library counts from the last byte that came, also while nobody waits for one, and then breaks
/// off the call that has begun since. So this is longer than a connection is kept for another call (hyper-util: 90 s) and that call.
const SILENCE: Duration = Duration::from_secs(100);
/// The most bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// Where the hub is and as whom to speak to it.
#[derive(Clone, Debug, Default)]
pub struct HubAccess {
    /// A kubeconfig file. Without one, the Pod's own ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it, instead of its current one.
    pub context: Option<String>,
}

/// The client could not be made. The texts name the file and the step, never what stands in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read. The library's own message is withheld: it prints the lines around a fault, tokens included.
    #[error("reading the kubeconfig {0}: it is missing or not a kubeconfig")]
    Kubeconfig(PathBuf),
    /// The kubeconfig has no such context, or the context names no usable cluster or user.
    #[error("reading the kubeconfig {0}: its context names no usable cluster and user")]
    Context(PathBuf),
    /// Not in a Pod.
    #[error("finding the hub: this is not a Pod with a ServiceAccount; give --kubeconfig")]
    NotInCluster,
    /// The hub would be spoken to without knowing that it is the hub.
    #[error(
        "preparing the client of the hub: its address must be https and its certificate must be verified; remove insecure-skip-tls-verify and give its CA"
    )]
    Insecure,
    /// The TLS or authentication part of the configuration cannot be used.
    #[error("preparing the client of the hub: its certificates or credentials cannot be used")]
    Credentials,
}

impl HubAccess {
    /// The library's configuration, without retries and without anything taken from the environment.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn config(&self) -> Result<kube::Config, ClientError> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|_| ClientError::Kubeconfig(path.clone()))?;
                let options = KubeConfigOptions { context: self.context.clone(), cluster: None, user: None };
                let proxied =
                    kubeconfig.clusters.iter().any(|named| named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some()));
                let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
                let mut config = config.map_err(|_| ClientError::Context(path.clone()))?;
                if !proxied {
                    // The library would take one from the environment.
                    config.proxy_url = None;
                }
                config
            }
            None => kube::Config::incluster_env().map_err(|_| ClientError::NotInCluster)?,
        };
        if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
            return Err(ClientError::Insecure);
        }
        config.default_retry = false;
        config.connect_timeout = Some(CALL_DEADLINE);
        Ok(config)
    }
}

/// A bounded client.
#[derive(Clone)]
pub struct HubClient {
    client: kube::Client,
}

impl HubClient {
    /// A client with its own connections.
    ///
    /// # Errors
    /// [`ClientError::Credentials`].
    pub fn new(mut config: kube::Config) -> Result<HubClient, ClientError> {
        config.read_timeout = Some(SILENCE);
        config.write_timeout = Some(CALL_DEADLINE);
        let client = kube::Client::try_from(config).map_err(|_| ClientError::Credentials)?;
        Ok(HubClient { client })
    }

    /// GET, for the bytes of the answer.
    ///
    /// # Errors
    /// [`HubError`] by the status of the answer or the lack of one.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<Vec<u8>, HubError> {
        let request = Request::builder().method(Method::GET).uri(path).header(http::header::ACCEPT, accept).body(Body::empty());
        self.call(request, "GET").await
    }

    /// GET of a JSON object.
    ///
    /// # Errors
    /// As [`HubClient::get`]; [`HubError::Unreadable`] if it is no such object.
    pub async fn get_object<T: DeserializeOwned>(&self, path: &str, what: &'static str) -> Result<T, HubError> {
        let bytes = self.get(path, "application/json").await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    /// POST of a JSON object, for the object that comes back.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn create<Q: Serialize, T: DeserializeOwned>(&self, path: &str, object: &Q, what: &'static str) -> Result<T, HubError> {
        self.send(Method::POST, "application/json", path, object, what).await
    }

    /// PUT of a JSON object in the place of the one whose `resourceVersion` it holds.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Conflict`] if that one is not there any more.
    pub async fn replace<Q: Serialize, T: DeserializeOwned>(&self, path: &str, object: &Q, what: &'static str) -> Result<T, HubError> {
        self.send(Method::PUT, "application/json", path, object, what).await
    }

    /// PATCH by a JSON merge patch (RFC 7396).
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn merge_patch<Q: Serialize, T: DeserializeOwned>(&self, path: &str, change: &Q, what: &'static str) -> Result<T, HubError> {
        self.send(Method::PATCH, "application/merge-patch+json", path, change, what).await
    }

    /// PATCH by server-side apply of an object's fields, in the name of `manager`; fields that others own are taken over.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn apply<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        manager: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        // JSON is YAML, which is what this content type wants.
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send(Method::PATCH, "application/apply-patch+yaml", &path, object, what).await
    }

    /// DELETE with preconditions.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn delete<Q: Serialize, T: DeserializeOwned>(&self, path: &str, options: &Q, what: &'static str) -> Result<T, HubError> {
        self.send(Method::DELETE, "application/json", path, options, what).await
    }

    async fn send<Q: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        content_type: &'static str,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let body = Zeroizing::new(serde_json::to_vec(object).map_err(|_| HubError::Unreadable(what))?);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(body.to_vec()));
        let bytes = self.call(request, what).await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    async fn call(&self, request: Result<Request<Body>, http::Error>, what: &'static str) -> Result<Vec<u8>, HubError> {
        let request = request.map_err(|_| HubError::Unreadable(what))?;
        // One deadline over the whole call: a byte a second would keep any timeout between bytes content.
        let answered = tokio::time::timeout(CALL_DEADLINE, self.exchange(request)).await;
        let (status, bytes) = answered.map_err(|_| HubError::Unreachable(format!("{what} took longer than {CALL_DEADLINE:?}")))??;
        if status.is_success() { Ok(bytes) } else { Err(refusal(status, &bytes)) }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), HubError> {
        let response = self.client.send(request).await.map_err(|error| transport_fault(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|_| HubError::Unreachable("its answer broke off or is too large".to_owned()))?;
        Ok((status, body.to_bytes().to_vec()))
    }
}

/// Says what kind of fault it was without repeating a library's text, which may quote credentials of the configuration.
fn transport_fault(error: &kube::Error) -> HubError {
    match error {
        // Ours to mend, and no proof of anything about the hub.
        kube::Error::Auth(_) => HubError::Unauthenticated("Keyferry's own credentials could not be read".to_owned()),
        kube::Error::Service(_) | kube::Error::HyperError(_) => HubError::Unreachable("the connection failed".to_owned()),
        _ => HubError::Unreachable("the request could not be sent".to_owned()),
    }
}

#[derive(serde::Deserialize)]
struct ApiStatus {
    #[serde(default)]
    message: String,
}

fn refusal(status: StatusCode, body: &[u8]) -> HubError {
    let message = serde_json::from_slice::<ApiStatus>(body).map(|status| status.message).unwrap_or_default();
    let message: String = message.chars().filter(|character| !character.is_control()).take(400).collect();
    let message = if message.is_empty() { format!("HTTP {}", status.as_u16()) } else { message };
    match status.as_u16() {
        401 => HubError::Unauthenticated(message),
        403 => HubError::Forbidden(message),
        404 => HubError::NotFound(message),
        409 => HubError::Conflict(message),
        429 | 500.. => HubError::Unwell(format!("HTTP {}: {message}", status.as_u16())),
        _ => HubError::Refused(message),
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use std::time::Duration;

    use secrecy::ExposeSecret;

    use super::{CALL_DEADLINE, HubAccess, HubClient};
    use crate::embedded::{EmbeddedHub, Fault, HubOptions, Route};

    /// Together the pause and the second call are longer than a call may take; each of them is not.
    #[tokio::test]
    async fn a_call_has_its_whole_time_however_long_ago_the_one_before_it_was() {
        let hub = EmbeddedHub::start(HubOptions::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, hub.kubeconfig().expose_secret()).unwrap();
        let access = HubAccess { kubeconfig: Some(kubeconfig), context: None };
        let client = HubClient::new(access.config().await.unwrap()).unwrap();
        let read = async || client.get("/openid/v1/jwks", "application/jwk-set+json").await;
        read().await.unwrap();
        let pause = Duration::from_millis(3500);
        hub.set_fault(Route::Jwks, Fault::Delay(CALL_DEADLINE - pause + Duration::from_secs(1)));
        tokio::time::sleep(pause).await;
        read().await.unwrap();
    }
}
