//! The record of the hub's keys, read and changed by a person with rights in Keyferry's namespace.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_core::key_journal::KeyJournal;
use keyferry_core::name::Namespace;

use crate::key_record_store::{ATTEMPTS, Found, KeyRecordStore, RecordError};
use crate::kube::client::{HubAccess, HubClient};
use crate::kube::secret_store::KubeSecretStore;

/// Why the record could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The hub's client cannot be made.
    #[error(transparent)]
    Hub(#[from] crate::kube::client::ClientError),
    /// The Secrets.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Keyferry has not run yet, or elsewhere.
    #[error("looking for the record of keys: namespace {0} has none; Keyferry has not run there")]
    None(Namespace),
    /// It is not to be believed.
    #[error(
        "reading the record of keys: its seal is missing or wrong; a running Keyferry writes it \
         anew within 10 s"
    )]
    NotBelieved,
    /// No such key.
    #[error("revoking a key: there is no kid {kid:?} in the record; it has {known}")]
    Unknown {
        /// What was asked for.
        kid: String,
        /// The kids that there are.
        known: String,
    },
}

/// The records of one installation.
pub struct KeyRecordsClient {
    store: KeyRecordStore,
    namespace: Namespace,
}

impl KeyRecordsClient {
    /// Those in `namespace` of the hub.
    ///
    /// # Errors
    /// [`KeysError::Hub`].
    pub async fn connect(hub: &HubAccess, namespace: Namespace) -> Result<Self, KeysError> {
        let client = HubClient::new(hub.config().await?)?;
        let secrets = Arc::new(KubeSecretStore::new(client, namespace.clone()));
        let store = KeyRecordStore::existing(secrets);
        Ok(Self { store, namespace })
    }

    /// The record.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn read(&self) -> Result<KeyJournal, KeysError> {
        self.find()
            .await
            .and_then(|found| found.believed().cloned().ok_or(KeysError::NotBelieved))
    }

    /// Withdraws `kid` for ever. Every replica follows within ten seconds.
    ///
    /// # Errors
    /// [`KeysError`]; then nothing was changed.
    pub async fn revoke(&self, kid: &str, now: Timestamp) -> Result<KeyJournal, KeysError> {
        for _ in 0..ATTEMPTS {
            let found = self.find().await?;
            let journal = found.believed().ok_or(KeysError::NotBelieved)?;
            let unknown = || KeysError::Unknown {
                kid: kid.to_owned(),
                known: journal
                    .keys
                    .keys()
                    .map(|kid| format!("{kid:?}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            let revoked = journal.with_revoked(kid, now).ok_or_else(unknown)?;
            if self.store.write(Some(&found), &revoked).await? {
                return Ok(revoked);
            }
        }
        Err(RecordError::Contended.into())
    }

    async fn find(&self) -> Result<Found, KeysError> {
        self.store
            .read()
            .await?
            .ok_or_else(|| KeysError::None(self.namespace.clone()))
    }
}
