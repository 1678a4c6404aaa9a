//! Stores the key journal that replicas share, in one Secret, and the key of its seal in another.

use std::sync::Arc;

use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_keys::key_journal::{JournalError, KeyJournal, SealKey};
use keyferry_platform::random::Random;
use zeroize::Zeroizing;

use crate::ports::{HubError, SecretData, SecretStore};

/// The Secret that contains the key journal.
const JOURNAL_SECRET: &str = "keyferry-keys";
/// The Secret that contains the key of the seal. Created once and never changed.
const SEAL_SECRET: &str = "keyferry-seal";
/// How often a write is tried again after a conflict, before the next round.
pub const MAX_WRITE_ATTEMPTS: usize = 4;

/// Why the key journal could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecordError {
    /// The hub refused the call, or it failed.
    #[error("reading and writing the key journal, Secret {JOURNAL_SECRET}: {0}")]
    Hub(#[from] HubError),
    /// The Secret of the seal contains no valid key.
    #[error(
        "reading the key of the seal, Secret {SEAL_SECRET}: it holds no 32 bytes under the key `key`; \
         delete it and {JOURNAL_SECRET}, and restart every replica"
    )]
    Seal,
    /// The system has no random numbers.
    #[error("making the key of the seal: the system gives no random numbers")]
    Random,
    /// There is no key journal, and this process may only read.
    #[error(
        "reading the key journal, Secret {JOURNAL_SECRET}: not found; Keyferry has not run there"
    )]
    Absent,
    /// The key journal has no valid seal, and this process cannot rewrite it.
    #[error(
        "reading the key journal, Secret {JOURNAL_SECRET}: its seal is missing or wrong; a running \
         Keyferry rewrites it within 10 s, or within a minute after an outage of the hub"
    )]
    NotBelieved,
    /// The new key journal could not be read back, so the stored one was kept.
    #[error(
        "writing the key journal, Secret {JOURNAL_SECRET}: it was not written, because re-reading it \
         failed: {0}"
    )]
    Unwritable(JournalError),
    /// Other replicas won the race in every attempt.
    #[error("writing the key journal, Secret {JOURNAL_SECRET}: it changed each time")]
    Contended,
}

impl RecordError {
    /// Returns the stable reason code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => {
                Reason::KeyRecordForbidden
            }
            _ => Reason::KeyRecordUnread,
        }
    }
}

/// The content of the key journal's Secret.
pub struct StoredRecord {
    version: String,
    /// The key journal, if the bytes can be parsed.
    pub journal: Result<KeyJournal, JournalError>,
    /// Whether the seal matches the bytes. If not, nothing in the journal may be trusted.
    pub sealed: bool,
}

impl StoredRecord {
    /// Returns the key journal if its seal is valid.
    pub fn sealed_journal(&self) -> Option<&KeyJournal> {
        self.journal.as_ref().ok().filter(|_| self.sealed)
    }
}

/// Reads and writes the shared key journal.
pub struct KeyRecordStore {
    secrets: Arc<dyn SecretStore>,
    /// Creates the key of the seal if there is none; without it, this store only reads.
    random: Option<Arc<dyn Random>>,
    seal: tokio::sync::OnceCell<SealKey>,
}

impl KeyRecordStore {
    /// Creates a store in these Secrets; `random` draws the key of the seal if there is none yet.
    pub fn new(secrets: Arc<dyn SecretStore>, random: Arc<dyn Random>) -> Self {
        Self {
            secrets,
            random: Some(random),
            seal: tokio::sync::OnceCell::new(),
        }
    }

    /// Creates a read-only store for the journal of a running Keyferry: it never creates the key of
    /// the seal.
    pub fn read_only(secrets: Arc<dyn SecretStore>) -> Self {
        Self {
            secrets,
            random: None,
            seal: tokio::sync::OnceCell::new(),
        }
    }

    /// Whether this store may create the first key journal.
    pub fn may_begin(&self) -> bool {
        self.random.is_some()
    }

    /// Reads the key journal; `None` if there is none yet.
    ///
    /// # Errors
    /// [`RecordError`].
    pub async fn read_record(&self) -> Result<Option<StoredRecord>, RecordError> {
        let seal = self.seal_key().await?;
        let Some(secret) = self.secrets.get(&object_name(JOURNAL_SECRET)?).await? else {
            return Ok(None);
        };
        let empty = Zeroizing::new(Vec::new());
        let member = |key: &str| secret.data.get(key).unwrap_or(&empty);
        let (bytes, tag) = (member("journal.json"), member("seal"));
        let sealed = std::str::from_utf8(tag).is_ok_and(|tag| seal.is_seal_of(tag, bytes));
        Ok(Some(StoredRecord {
            version: secret.version.clone(),
            journal: KeyJournal::from_bytes(bytes),
            sealed,
        }))
    }

    /// Replaces what was read by `journal`; returns false if the Secret has changed since.
    ///
    /// # Errors
    /// [`RecordError`].
    pub async fn write_record(
        &self,
        found: Option<&StoredRecord>,
        journal: &KeyJournal,
    ) -> Result<bool, RecordError> {
        let bytes = journal.to_bytes().map_err(RecordError::Unwritable)?;
        let tag = Zeroizing::new(self.seal_key().await?.seal_bytes(&bytes).into_bytes());
        let data = SecretData::from([
            ("journal.json".to_owned(), Zeroizing::new(bytes)),
            ("seal".to_owned(), tag),
        ]);
        let name = object_name(JOURNAL_SECRET)?;
        let written = match found {
            Some(found) => self.secrets.replace(&name, &found.version, &data).await,
            None => self.secrets.create(&name, &data).await,
        };
        match written {
            Ok(()) => Ok(true),
            Err(HubError::Conflict(_) | HubError::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn seal_key(&self) -> Result<&SealKey, RecordError> {
        self.seal
            .get_or_try_init(async || self.make_or_read_seal().await)
            .await
    }

    async fn make_or_read_seal(&self) -> Result<SealKey, RecordError> {
        let name = object_name(SEAL_SECRET)?;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            if let Some(secret) = self.secrets.get(&name).await? {
                let key = secret.data.get("key").ok_or(RecordError::Seal)?;
                return SealKey::new(key).map_err(|_| RecordError::Seal);
            }
            let mut key = Zeroizing::new(vec![0; 32]);
            let random = self.random.as_ref().ok_or(RecordError::Absent)?;
            if !random.fill_bytes(&mut key) {
                return Err(RecordError::Random);
            }
            match self
                .secrets
                .create(&name, &SecretData::from([("key".to_owned(), key)]))
                .await
            {
                Ok(()) | Err(HubError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Contended)
    }
}

fn object_name(text: &str) -> Result<ObjectName, RecordError> {
    ObjectName::new(text).map_err(|_| RecordError::Seal)
}
