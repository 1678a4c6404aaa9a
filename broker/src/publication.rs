//! The documents that targets fetch: read from the hub, checked, rendered once, and kept through every failure of the hub.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyferry_core::discovery::{self, DiscoveryError, ProviderMetadata};
use keyferry_core::issuer::{Issuer, PublicUrl};
use keyferry_core::json::{self, JsonLimits};
use keyferry_core::jwks::{JwksError, KeySetLimits, PublicKeySet};
use keyferry_core::moment::Moment;
use keyferry_core::reason::Reason;

use crate::flight::Flights;
use crate::ports::{HubError, IssuerDocuments, UpstreamDocuments};

/// How often tokens that name unknown keys may cause a reading.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(5);

/// What is published at one time.
#[derive(Debug)]
pub struct Published {
    /// The issuer that every token must have.
    pub issuer: Issuer,
    /// The keys.
    pub keys: PublicKeySet,
    /// The provider metadata document.
    pub metadata: Document,
    /// The key set document.
    pub jwks: Document,
}

/// Prebuilt bytes and their strong ETag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The body.
    pub bytes: Bytes,
    /// Quoted, from the SHA-256 of the bytes: the same bytes have the same ETag on every replica.
    pub etag: String,
}

impl Document {
    pub(crate) fn new(bytes: Vec<u8>) -> Document {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.as_ref()));
        Document { bytes: bytes.into(), etag }
    }
}

/// Reads what is published.
#[derive(Clone, Default)]
pub struct PublicationReader(Arc<ArcSwapOption<Published>>);

impl PublicationReader {
    /// What is published now; nothing before the first good reading.
    pub fn current(&self) -> Option<Arc<Published>> {
        self.0.load_full()
    }
}

/// Why a reading of the hub's documents was not published.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// The hub did not give them.
    #[error("reading the hub's discovery documents: {0}")]
    Hub(#[from] HubError),
    /// The metadata cannot be used.
    #[error("reading the hub's provider metadata: {0}")]
    Metadata(Arc<DiscoveryError>),
    /// The metadata names no issuer that a target could trust.
    #[error("reading the hub's provider metadata: its issuer {0}")]
    Issuer(#[from] keyferry_core::issuer::IssuerError),
    /// The key set cannot be used.
    #[error("reading the hub's key set: {0}")]
    Keys(Arc<JwksError>),
    /// The task that read them died.
    #[error("reading the hub's discovery documents: the reading task ended without an answer")]
    Lost,
}

impl PublishError {
    /// The stable code.
    pub fn reason(&self) -> Reason {
        match self {
            PublishError::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => Reason::HubDiscoveryForbidden,
            PublishError::Hub(HubError::Unreachable(_) | HubError::Unwell(_)) | PublishError::Lost => Reason::HubUnreachable,
            _ => Reason::HubDiscoveryInvalid,
        }
    }
}

/// Writes what is published. There is one of it.
#[derive(Clone)]
pub struct Publisher {
    source: Arc<dyn IssuerDocuments>,
    public_url: PublicUrl,
    pinned: Option<Issuer>,
    published: PublicationReader,
    flights: Arc<Flights<(), Result<(), PublishError>>>,
    unknown_key: Arc<Mutex<Option<Duration>>>,
}

impl Publisher {
    /// A publisher of the documents of `source` under `public_url`; the issuer is `pinned`, or the first one that the hub states.
    pub fn new(source: Arc<dyn IssuerDocuments>, public_url: PublicUrl, pinned: Option<Issuer>) -> Publisher {
        Publisher {
            source,
            public_url,
            pinned,
            published: PublicationReader::default(),
            flights: Arc::default(),
            unknown_key: Arc::default(),
        }
    }

    /// The reading half.
    pub fn reader(&self) -> PublicationReader {
        self.published.clone()
    }

    /// Reads the hub's documents and publishes them if they are sound. Many callers at once share one reading.
    ///
    /// # Errors
    /// [`PublishError`]; what was published before stays.
    pub async fn refresh(&self) -> Result<(), PublishError> {
        let this = self.clone();
        let read = self.flights.join((), || async move {
            let documents = this.source.fetch().await?;
            this.publish(&documents)
        });
        read.await.unwrap_or(Err(PublishError::Lost))
    }

    /// Reads the hub's documents because a token names a key that is not published; at most once in five seconds.
    ///
    /// # Errors
    /// [`Reason::HubUnreachable`] when the hub did not answer: the key may be good.
    pub async fn refresh_for_unknown_key(&self, now: Moment) -> Result<(), Reason> {
        {
            let mut again_from = self.unknown_key.lock().unwrap_or_else(PoisonError::into_inner);
            // One that is under way is waited for.
            if again_from.is_some_and(|from| now.mono < from) && self.flights.is_empty() {
                return Ok(());
            }
            *again_from = Some(now.mono.saturating_add(UNKNOWN_KEY_PAUSE));
        }
        match self.refresh().await {
            Err(error) if error.reason() == Reason::HubUnreachable => Err(Reason::HubUnreachable),
            _ => Ok(()),
        }
    }

    fn publish(&self, documents: &UpstreamDocuments) -> Result<(), PublishError> {
        let before = self.published.current();
        let issuer = match before.as_ref().map(|before| &before.issuer).or(self.pinned.as_ref()) {
            Some(issuer) => issuer.clone(),
            None => stated_issuer(&documents.metadata)?,
        };
        ProviderMetadata::from_upstream(&documents.metadata, issuer.as_str()).map_err(|error| PublishError::Metadata(Arc::new(error)))?;
        let (keys, rejected) =
            PublicKeySet::from_upstream(&documents.jwks, KeySetLimits::default()).map_err(|error| PublishError::Keys(Arc::new(error)))?;
        for key in &rejected {
            tracing::warn!(why = %key.why.code(), "a key of the hub is not published");
        }
        if before.is_some_and(|before| before.keys == keys) {
            return Ok(());
        }
        let metadata = Document::new(discovery::render(issuer.as_str(), &self.public_url.jwks_uri(), &keys));
        let jwks = Document::new(keys.to_bytes());
        tracing::info!(issuer = %issuer, keys = keys.len(), etag = %jwks.etag, "publishing the hub's keys");
        self.published.0.store(Some(Arc::new(Published { issuer, keys, metadata, jwks })));
        Ok(())
    }
}

fn stated_issuer(metadata: &[u8]) -> Result<Issuer, PublishError> {
    let limits = JsonLimits { bytes: discovery::MAX_DISCOVERY_BYTES, depth: json::MAX_JSON_DEPTH };
    let stated = json::read_object(metadata, limits).ok().and_then(|object| object.get("issuer")?.as_str().map(str::to_owned));
    Ok(Issuer::new(stated.unwrap_or_default())?)
}
