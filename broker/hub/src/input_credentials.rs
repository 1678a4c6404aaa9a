//! The credentials for fleet inputs: their Secrets on the hub, and the book that requests are
//! verified with.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_core::inputs::credential::{
    CredentialBook, CredentialHashes, CredentialSecretError, InputCaller, PREVIOUS_KEY, SHA256_KEY,
    UNTIL_KEY,
};
use keyferry_core::inputs::presented::PresentedCredential;

use super::client::HubClient;
use super::secret::Secret;
use crate::ports::HubError;

/// Why a credential's Secret gives no hashes.
#[derive(Debug, thiserror::Error)]
pub enum InputSecretError {
    /// The hub did not return it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Its content cannot be used.
    #[error(transparent)]
    Content(#[from] CredentialSecretError),
}

/// The hashes of a Secret, and a fault in its previous one.
pub type ReadHashes = (CredentialHashes, Option<CredentialSecretError>);

/// Reads the Secrets of credentials for fleet inputs.
pub trait InputSecrets: Send + Sync {
    /// Reads one Secret.
    fn read_hashes<'a>(
        &'a self,
        secret: &'a ObjectName,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<ReadHashes, InputSecretError>>;
}

/// Reads them from Keyferry's namespace, by name.
pub struct KubeInputSecrets {
    client: HubClient,
    namespace: Namespace,
}

impl KubeInputSecrets {
    /// Creates the reader for Secrets in `namespace`.
    pub fn new(client: HubClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }
}

impl InputSecrets for KubeInputSecrets {
    fn read_hashes<'a>(
        &'a self,
        secret: &'a ObjectName,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<ReadHashes, InputSecretError>> {
        Box::pin(async move {
            let path = format!("/api/v1/namespaces/{}/secrets/{secret}", self.namespace);
            let secret: Secret = self.client.get_object(&path, "Secret").await?;
            // Only hashes and a time are read. A token in the same Secret is never read.
            let text = |key: &str| {
                let bytes = secret.entry(key)?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Ok::<_, HubError>(bytes.map(|bytes| text(&bytes)))
            };
            let (current, previous, until) =
                (text(SHA256_KEY)?, text(PREVIOUS_KEY)?, text(UNTIL_KEY)?);
            let entry = |key: &str| match key {
                SHA256_KEY => current.clone(),
                PREVIOUS_KEY => previous.clone(),
                _ => until.clone(),
            };
            Ok(CredentialHashes::read(entry, now)?)
        })
    }
}

/// Verifies presented credentials.
#[derive(Clone, Default)]
pub struct CredentialReader(Arc<ArcSwapOption<CredentialBook>>);

/// Replaces the book of credentials. Each process has one.
#[derive(Default)]
pub struct CredentialWriter(CredentialReader);

/// The Secrets of the credentials have not been read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReadYet;

impl CredentialReader {
    /// Verifies what a machine presented.
    ///
    /// # Errors
    /// [`NotReadYet`].
    pub fn verify(
        &self,
        presented: &PresentedCredential,
        now: Timestamp,
    ) -> Result<Option<InputCaller>, NotReadYet> {
        let book = self.0.load();
        let book = book.as_ref().ok_or(NotReadYet)?;
        Ok(book.verify(presented, now))
    }

    /// Whether the Secrets have been read.
    pub fn is_read(&self) -> bool {
        self.0.load().is_some()
    }
}

impl CredentialWriter {
    /// Returns a reader.
    pub fn reader(&self) -> CredentialReader {
        self.0.clone()
    }

    /// Replaces the book.
    pub fn replace(&self, book: CredentialBook) {
        self.0.0.store(Some(Arc::new(book)));
    }
}
