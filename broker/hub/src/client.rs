//! The client of the hub's API: limited in time and size, without retries by the library, and with
//! errors that never repeat a secret.

mod access;

use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use keyferry_api::foreign_text;
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

pub use self::access::{ClientError, HubAccess};
use crate::connection_fault::{ConnectionFault, Endpoint};
use crate::forbidden::{self, Forbidden, ForbiddenStatus, HubCaller};
use crate::ports::HubError;

/// The longest time that one call may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may be silent. The library counts from the last received byte, even while
/// no call is waiting, and would abort a call that began since. So this exceeds the time for which
/// an idle connection is kept (hyper-util: 90 s) plus one call.
const SILENCE: Duration = Duration::from_secs(100);
/// The largest response body that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// The terms of a server-side apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyTerms<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// What happens to fields of other managers.
    pub conflicts: Conflicts,
    /// Whether the result is stored.
    pub persistence: Persistence,
}

/// What a server-side apply does with fields that other managers own with other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// It fails and changes nothing.
    Refuse,
    /// It takes them over.
    TakeOver,
}

/// Whether a write is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It is.
    Stored,
    /// It is checked only, admission included.
    DryRun,
}

/// A client of the hub's API with limits on time and size.
#[derive(Clone)]
pub struct HubClient {
    client: kube::Client,
    /// Where the connections lead; `None` through a proxy.
    place: Option<Endpoint>,
    /// Whose credentials it has, for messages.
    caller: HubCaller,
}

impl HubClient {
    /// Creates a client with its own connections, and with the credentials of the user who runs the
    /// command.
    ///
    /// # Errors
    /// [`ClientError::Credentials`].
    pub fn new(mut config: kube::Config) -> Result<Self, ClientError> {
        config.read_timeout = Some(SILENCE);
        config.write_timeout = Some(CALL_DEADLINE);
        let place = url::Url::parse(&config.cluster_url.to_string())
            .ok()
            .as_ref()
            .and_then(Endpoint::of_url);
        let place = place.filter(|_| config.proxy_url.is_none()).map(|place| {
            match &config.tls_server_name {
                Some(name) => place.with_server_name(name),
                None => place,
            }
        });
        let client = kube::Client::try_from(config).map_err(|_| ClientError::Credentials)?;
        Ok(Self {
            client,
            place,
            caller: HubCaller::User,
        })
    }

    /// Sets the owner of its credentials, as messages name it. By default, it is the user.
    #[must_use]
    pub fn called_by(self, caller: HubCaller) -> Self {
        Self { caller, ..self }
    }

    /// The host and port that the client connects to; `None` through a proxy.
    pub(crate) fn place(&self) -> Option<(&str, u16)> {
        self.place.as_ref().map(Endpoint::address)
    }

    /// Sends a GET and returns the bytes of the response.
    ///
    /// # Errors
    /// [`HubError`] by the status of the response or the lack of one.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<Vec<u8>, HubError> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty());
        self.call(request, "GET").await
    }

    /// Sends a GET and parses the response as a JSON object.
    ///
    /// # Errors
    /// As [`HubClient::get`]; [`HubError::Unreadable`] if it is not such an object.
    pub async fn get_object<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &'static str,
    ) -> Result<T, HubError> {
        let bytes = self.get(path, "application/json").await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    /// Sends a POST of a JSON object and returns the created object.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn create<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send(Method::POST, "application/json", path, object, what)
            .await
    }

    /// Sends a PUT of a JSON object, which replaces the version named by its `resourceVersion`.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Conflict`] if that version is no longer current.
    pub async fn replace<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send(Method::PUT, "application/json", path, object, what)
            .await
    }

    /// Sends a PATCH with a JSON merge patch (RFC 7396).
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn merge_patch<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        change: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send(
            Method::PATCH,
            "application/merge-patch+json",
            path,
            change,
            what,
        )
        .await
    }

    /// Sends a PATCH by server-side apply of an object's fields, as field manager `manager`. Takes
    /// over fields that others own.
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
        let terms = ApplyTerms {
            manager,
            conflicts: Conflicts::TakeOver,
            persistence: Persistence::Stored,
        };
        self.apply_on(path, &terms, object, what).await
    }

    /// Sends a PATCH by server-side apply of an object's fields on these terms.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Conflict`] if another manager owns a field with
    /// another value, and the terms refuse that.
    pub async fn apply_on<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        terms: &ApplyTerms<'_>,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let force = terms.conflicts == Conflicts::TakeOver;
        let mut path = format!("{path}?fieldManager={}&force={force}", terms.manager);
        if terms.persistence == Persistence::DryRun {
            path.push_str("&dryRun=All");
        }
        // JSON is valid YAML, which this content type requires.
        self.send(
            Method::PATCH,
            "application/apply-patch+yaml",
            &path,
            object,
            what,
        )
        .await
    }

    /// Sends a DELETE with preconditions.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn delete<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        options: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send(Method::DELETE, "application/json", path, options, what)
            .await
    }

    async fn send<Q: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        content_type: &'static str,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let body =
            Zeroizing::new(serde_json::to_vec(object).map_err(|_| HubError::Unreadable(what))?);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(body.to_vec()));
        let bytes = self.call(request, what).await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    async fn call(
        &self,
        request: Result<Request<Body>, http::Error>,
        what: &'static str,
    ) -> Result<Vec<u8>, HubError> {
        let request = request.map_err(|_| HubError::Unreadable(what))?;
        // One deadline for the whole call. A per-read timeout would never fire for a server that
        // sends one byte per second.
        let answered = tokio::time::timeout(CALL_DEADLINE, self.exchange(request)).await;
        let (status, bytes) = answered.map_err(|_| {
            HubError::Unreachable(format!("{what} took longer than {CALL_DEADLINE:?}"))
        })??;
        if status.is_success() {
            Ok(bytes)
        } else {
            Err(refusal(status, &bytes, self.caller))
        }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), HubError> {
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Err(transport_fault(&error, self).await),
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                HubError::TooLarge
            } else {
                HubError::Unreachable("its answer broke off".to_owned())
            }
        })?;
        Ok((status, body.to_bytes().to_vec()))
    }
}

/// Names the kind of fault without repeating the library's text, which may quote credentials of the
/// configuration.
async fn transport_fault(error: &kube::Error, client: &HubClient) -> HubError {
    match error {
        // The caller's configuration is at fault, so this proves nothing about the hub.
        kube::Error::Auth(_) => HubError::Unauthenticated(format!(
            "the credentials of {} could not be read",
            client.caller
        )),
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            HubError::Unreachable(ConnectionFault::of(error, client.place.as_ref()).await.text)
        }
        _ => HubError::Unreachable("the request could not be sent".to_owned()),
    }
}

fn refusal(status: StatusCode, body: &[u8], caller: HubCaller) -> HubError {
    let mut parsed: ForbiddenStatus = serde_json::from_slice(body).unwrap_or_default();
    if parsed.message.is_empty() {
        parsed.message = format!("HTTP {}", status.as_u16());
    }
    let message = foreign_text::one_line(&parsed.message, 400);
    match status.as_u16() {
        401 => HubError::Unauthenticated(message),
        403 => HubError::Forbidden(Forbidden::from(parsed).of(caller)),
        404 => HubError::NotFound(message),
        409 => HubError::Conflict(message),
        422 if forbidden::policy_is_not_ready(&message) => HubError::PolicyNotReady(message),
        429 | 500.. => HubError::Unwell(format!("HTTP {}: {message}", status.as_u16())),
        _ => HubError::Refused(message),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use std::time::Duration;

    use keyferry_testing::{EmbeddedHub, Fault, HubOptions, Route};
    use secrecy::ExposeSecret;

    use super::{CALL_DEADLINE, HubAccess, HubClient};

    /// The pause and the second call together exceed the deadline of one call; each alone does not.
    #[tokio::test]
    async fn a_call_has_its_whole_time_however_long_ago_the_one_before_it_was() {
        let hub = EmbeddedHub::start(HubOptions::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, hub.kubeconfig().expose_secret()).unwrap();
        let access = HubAccess {
            kubeconfig: Some(kubeconfig),
            ..HubAccess::default()
        };
        let client = HubClient::new(access.config().await.unwrap()).unwrap();
        let read = async || {
            client
                .get("/openid/v1/jwks", "application/jwk-set+json")
                .await
        };
        read().await.unwrap();
        let pause = Duration::from_millis(3500);
        hub.set_fault(
            Route::Jwks,
            Fault::Delay(CALL_DEADLINE - pause + Duration::from_secs(1)),
        );
        tokio::time::sleep(pause).await;
        read().await.unwrap();
    }
}
