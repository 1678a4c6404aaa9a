//! A small REST client for raw Kubernetes paths and `serde_json` values.

use http::{Method, header};
use serde_json::Value;

use crate::http_client::{trusting, trusting_builder};
use crate::pki::CertifiedKey;

/// Why a request did not return an object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// The client could not be created from its certificates.
    #[error("make an HTTP client: {0}")]
    Client(reqwest::Error),
    /// There was no response.
    #[error("{method} {path}: {source}")]
    Transport {
        /// The method.
        method: Method,
        /// The path on the server.
        path: String,
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// The response has a status other than 2xx.
    #[error("{method} {path} answered {status} {reason}: {message}")]
    Status {
        /// The method.
        method: Method,
        /// The path on the server.
        path: String,
        /// The HTTP status.
        status: u16,
        /// `reason` of the metav1.Status; empty if the body was not one.
        reason: String,
        /// `message` of the metav1.Status; empty if the body was not one.
        message: String,
    },
    /// A 2xx response has an unexpected body.
    #[error("{method} {path} answered something that is not {wanted}")]
    Shape {
        /// The method.
        method: Method,
        /// The path on the server.
        path: String,
        /// The expected content.
        wanted: &'static str,
    },
}

impl RestError {
    /// The HTTP status of a response other than 2xx.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Client(_) | Self::Transport { .. } | Self::Shape { .. } => None,
        }
    }
}

/// A client of one server with one identity.
#[derive(Clone)]
pub struct RestClient {
    http: reqwest::Client,
    base: String,
    bearer: Option<String>,
}

impl std::fmt::Debug for RestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestClient")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl RestClient {
    /// A client without a credential.
    pub fn anonymous(base: &str, ca_pem: &str) -> Result<Self, RestError> {
        Ok(Self::new(trusting(ca_pem)?, base))
    }

    /// A client with a bearer token.
    pub fn with_bearer(base: &str, ca_pem: &str, token: &str) -> Result<Self, RestError> {
        let mut client = Self::anonymous(base, ca_pem)?;
        client.bearer = Some(token.to_owned());
        Ok(client)
    }

    /// A client with a client certificate.
    pub fn with_certificate(
        base: &str,
        ca_pem: &str,
        certificate: &CertifiedKey,
    ) -> Result<Self, RestError> {
        let pem = format!("{}{}", certificate.key_pem, certificate.cert_pem);
        let identity = reqwest::Identity::from_pem(pem.as_bytes()).map_err(RestError::Client)?;
        let http = trusting_builder(ca_pem)?
            .identity(identity)
            .build()
            .map_err(RestError::Client)?;
        Ok(Self::new(http, base))
    }

    fn new(http: reqwest::Client, base: &str) -> Self {
        Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
            bearer: None,
        }
    }

    /// The underlying HTTP client, without the bearer token.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// A request with this identity, for operations without a method here, such as a watch.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.bearer {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// GETs an object.
    pub async fn get(&self, path: &str) -> Result<Value, RestError> {
        self.object(Method::GET, path, None).await
    }

    /// GETs text, such as `/metrics`.
    pub async fn get_text(&self, path: &str) -> Result<String, RestError> {
        let bytes = self.bytes(Method::GET, path, None).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether an object exists at a path.
    pub async fn exists(&self, path: &str) -> Result<bool, RestError> {
        match self.get(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// POSTs an object to its collection, or to a subresource.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, RestError> {
        self.object(Method::POST, path, Some(("application/json", object)))
            .await
    }

    /// PUTs an object.
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value, RestError> {
        self.object(Method::PUT, path, Some(("application/json", object)))
            .await
    }

    /// Applies an object server-side at its own path, and forces conflicts.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<Value, RestError> {
        let path = format!("{path}?fieldManager=keyferry-integration&force=true");
        // This content type requires YAML, and JSON is YAML.
        self.object(
            Method::PATCH,
            &path,
            Some(("application/apply-patch+yaml", object)),
        )
        .await
    }

    /// Sends a JSON merge patch, RFC 7396.
    pub async fn patch(&self, path: &str, change: &Value) -> Result<Value, RestError> {
        self.object(
            Method::PATCH,
            path,
            Some(("application/merge-patch+json", change)),
        )
        .await
    }

    /// DELETEs an object.
    pub async fn delete(&self, path: &str) -> Result<Value, RestError> {
        self.object(Method::DELETE, path, None).await
    }

    async fn object(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Value, RestError> {
        let bytes = self.bytes(method.clone(), path, body).await?;
        serde_json::from_slice(&bytes).map_err(|_| RestError::Shape {
            method,
            path: path.to_owned(),
            wanted: "JSON",
        })
    }

    async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Vec<u8>, RestError> {
        let transport = |source: reqwest::Error| RestError::Transport {
            method: method.clone(),
            path: path.to_owned(),
            source: source.without_url(),
        };
        let mut request = self.request(method.clone(), path);
        if let Some((content_type, value)) = body {
            request = request
                .header(header::CONTENT_TYPE, content_type)
                .body(value.to_string());
        }
        let response = request.send().await.map_err(transport)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(transport)?;
        if status.is_success() {
            return Ok(bytes.to_vec());
        }
        // Keep only these two fields of a metav1.Status: any other body may contain secrets that
        // must not be printed.
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let word = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        Err(RestError::Status {
            method,
            path: path.to_owned(),
            status: status.as_u16(),
            reason: word("reason"),
            message: word("message"),
        })
    }
}
