//! Reads and changes the journal of the hub's keys, for a user with rights in Keyferry's namespace.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::name::Namespace;
use keyferry_hub::client::HubAccess;
use keyferry_hub::key_record_store::{
    KeyRecordStore, MAX_WRITE_ATTEMPTS, RecordError, StoredRecord,
};
use keyferry_hub::secret_store::KubeSecretStore;
use keyferry_keys::key_journal::KeyJournal;

/// Why the key journal could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The client of the hub cannot be created.
    #[error(transparent)]
    Hub(#[from] keyferry_hub::client::ClientError),
    /// The Secrets of the journal cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The namespace has no key journal: Keyferry has not run there.
    #[error("reading the key journal: namespace {0} has none; Keyferry has not run there")]
    None(Namespace),
    /// The journal's seal is missing or wrong, so it is not trusted.
    #[error(
        "reading the key journal: its seal is missing or wrong; a running Keyferry rewrites it \
         within 10 s"
    )]
    NotBelieved,
    /// The journal has no key with this kid.
    #[error("revoking a key: there is no kid {kid:?} in the record; it has {known}")]
    Unknown {
        /// The requested kid.
        kid: String,
        /// The kids in the journal.
        known: String,
    },
}

/// The key journal of one installation.
pub struct KeyRecordsClient {
    store: KeyRecordStore,
    namespace: Namespace,
}

impl KeyRecordsClient {
    /// Opens the journal in `namespace` of the hub.
    ///
    /// # Errors
    /// [`KeysError::Hub`].
    pub async fn connect(hub: &HubAccess, namespace: Namespace) -> Result<Self, KeysError> {
        let client = hub.client().await?;
        let secrets = Arc::new(KubeSecretStore::new(client, namespace.clone()));
        let store = KeyRecordStore::read_only(secrets);
        Ok(Self { store, namespace })
    }

    /// Reads the journal.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn read_journal(&self) -> Result<KeyJournal, KeysError> {
        self.find_record().await.and_then(|found| {
            found
                .sealed_journal()
                .cloned()
                .ok_or(KeysError::NotBelieved)
        })
    }

    /// Revokes `kid` for ever. Every replica follows within ten seconds.
    ///
    /// # Errors
    /// [`KeysError`]; then nothing was changed.
    pub async fn revoke_key(&self, kid: &str, now: Timestamp) -> Result<KeyJournal, KeysError> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let found = self.find_record().await?;
            let journal = found.sealed_journal().ok_or(KeysError::NotBelieved)?;
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
            if self.store.write_record(Some(&found), &revoked).await? {
                return Ok(revoked);
            }
        }
        Err(RecordError::Contended.into())
    }

    async fn find_record(&self) -> Result<StoredRecord, KeysError> {
        self.store
            .read_record()
            .await?
            .ok_or_else(|| KeysError::None(self.namespace.clone()))
    }
}
