//! Reads the issuer's discovery document and keys over TLS, lazily.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reqwest::{Certificate, Client, redirect};
use serde_json::Value;

use super::keys::{CachedKeys, fresh_until};
use super::{Fetch, FetchedDocument, TargetOptions};
use crate::clock::Clock;
use crate::jws::Jws;
use crate::{EmbeddedError, locked};

/// The longest document that is read, in bytes.
const LARGEST: usize = 1 << 20;

pub(super) struct Provider {
    issuer: String,
    discovery_url: String,
    client: Client,
    clock: Clock,
    /// Locked during a fetch, so that many concurrent tokens cause only one.
    known: tokio::sync::Mutex<ProviderState>,
    fetches: Mutex<Vec<Fetch>>,
}

#[derive(Default)]
struct ProviderState {
    jwks_uri: Option<String>,
    keys: CachedKeys,
}

/// Why a signature was not verified.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignatureError {
    /// No known key verifies it.
    #[error("failed to verify signature: failed to verify id token signature")]
    NoKey,
    /// The keys could not be fetched again.
    #[error("failed to verify signature: fetching keys oidc: get keys failed: {0}")]
    Keys(FetchError),
}

/// Why a document of the issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{}", failure_text(.0))]
    Http(reqwest::Error),
    #[error("answered {0}")]
    Status(reqwest::StatusCode),
    #[error("the body is longer than {LARGEST} bytes")]
    TooLong,
    #[error("the body is no JSON")]
    NotJson,
    #[error(
        "oidc: issuer did not match the issuer returned by provider, expected {expected:?} got \
         {found:?}"
    )]
    OtherIssuer { expected: String, found: String },
    #[error("provider did not return JWKS URL")]
    NoJwksUri,
    #[error("oidc: failed to decode keys: no member \"keys\"")]
    NoKeys,
    /// One key of an unknown type makes kube-apiserver drop the whole set.
    #[error("oidc: failed to decode keys: unknown key type")]
    UnknownKeyType,
}

impl Provider {
    pub(super) fn new(options: &TargetOptions) -> Result<Self, EmbeddedError> {
        let roots = Certificate::from_pem_bundle(options.discovery_ca_pem.as_bytes())
            .map_err(EmbeddedError::DiscoveryClient)?;
        let client = Client::builder()
            .tls_certs_only(roots)
            .https_only(true)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(10))
            .build()
            .map_err(EmbeddedError::DiscoveryClient)?;
        let below_issuer = || {
            let base = options.issuer.strip_suffix('/').unwrap_or(&options.issuer);
            format!("{base}/.well-known/openid-configuration")
        };
        Ok(Self {
            issuer: options.issuer.clone(),
            discovery_url: options.discovery_url.clone().unwrap_or_else(below_issuer),
            client,
            clock: options.clock.clone(),
            known: tokio::sync::Mutex::default(),
            fetches: Mutex::default(),
        })
    }

    pub(super) fn fetches(&self) -> Vec<Fetch> {
        locked(&self.fetches).clone()
    }

    pub(super) async fn forget(&self) {
        *self.known.lock().await = ProviderState::default();
    }

    /// Reads the keys' location once; false until discovery has succeeded.
    pub(super) async fn initialised(&self) -> bool {
        let mut known = self.known.lock().await;
        if known.jwks_uri.is_none() {
            known.jwks_uri = self.discover().await;
        }
        known.jwks_uri.is_some()
    }

    /// Verifies a signature with the cached keys. On a miss, reloads the keys if they are near the
    /// end of their freshness.
    pub(super) async fn verify(&self, jws: &Jws<'_>) -> Result<(), SignatureError> {
        let mut known = self.known.lock().await;
        if known.keys.verify(jws) {
            return Ok(());
        }
        let Some(jwks_uri) = known.jwks_uri.clone() else {
            return Err(SignatureError::NoKey);
        };
        if !known.keys.may_refetch((self.clock)()) {
            return Err(SignatureError::NoKey);
        }
        known.keys = self
            .read_keys(&jwks_uri)
            .await
            .map_err(SignatureError::Keys)?;
        if known.keys.verify(jws) {
            return Ok(());
        }
        Err(SignatureError::NoKey)
    }

    /// Returns the key set, after a reload if it lacks the token's key and is near the end of its
    /// freshness.
    pub(super) async fn key_set(&self, jws: &Jws<'_>) -> Option<Vec<u8>> {
        // What the keys decide is checked by the caller; only the reload matters here.
        let _ = self.verify(jws).await;
        self.known.lock().await.keys.document()
    }

    async fn discover(&self) -> Option<String> {
        let read = self.read(&self.discovery_url).await;
        let found = read.and_then(|(document, _)| {
            let field = |name| {
                document
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            if field("issuer") != self.issuer {
                return Err(FetchError::OtherIssuer {
                    expected: self.issuer.clone(),
                    found: field("issuer").to_owned(),
                });
            }
            match field("jwks_uri") {
                "" => Err(FetchError::NoJwksUri),
                uri => Ok(uri.to_owned()),
            }
        });
        self.record(FetchedDocument::Discovery, &self.discovery_url, found)
            .ok()
    }

    async fn read_keys(&self, jwks_uri: &str) -> Result<CachedKeys, FetchError> {
        let read = self.read(jwks_uri).await;
        let found = read.and_then(|(document, headers)| {
            let keys = document.get("keys").and_then(Value::as_array);
            let keys = keys.ok_or(FetchError::NoKeys)?;
            let known = |key: &Value| {
                let kty = key.get("kty").and_then(Value::as_str);
                matches!(kty, Some("EC" | "RSA" | "OKP" | "oct"))
            };
            if !keys.iter().all(known) {
                return Err(FetchError::UnknownKeyType);
            }
            let fresh_until = fresh_until(&headers, (self.clock)());
            Ok(CachedKeys::new(keys.clone(), fresh_until))
        });
        self.record(FetchedDocument::Jwks, jwks_uri, found)
    }

    /// Sends one GET; accepts only a 200 with JSON that is not too long.
    async fn read(&self, url: &str) -> Result<(Value, HeaderMap), FetchError> {
        let failed = |error: reqwest::Error| FetchError::Http(error.without_url());
        let mut response = self.client.get(url).send().await.map_err(failed)?;
        let status = response.status();
        if status != reqwest::StatusCode::OK {
            return Err(FetchError::Status(status));
        }
        let headers = response.headers().clone();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > LARGEST {
                return Err(FetchError::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        let document = serde_json::from_slice(&body).map_err(|_| FetchError::NotJson)?;
        Ok((document, headers))
    }

    fn record<T>(
        &self,
        document: FetchedDocument,
        url: &str,
        found: Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let at: Timestamp = (self.clock)();
        locked(&self.fetches).push(Fetch {
            document,
            url: url.to_owned(),
            at,
            failure: found.as_ref().err().map(ToString::to_string),
        });
        found
    }
}

/// Returns the error with its causes: only a cause names a refused certificate.
fn failure_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
