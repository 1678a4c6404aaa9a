//! The Secret in which replicas share their record of the hub's keys, and the Secret with the key
//! of its seal.

use std::sync::Arc;

use keyferry_core::key_journal::{JournalError, KeyJournal, SealKey};
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;
use zeroize::Zeroizing;

use crate::ports::{HubError, SecretData, SecretStore};
use crate::random::Random;

/// The Secret that holds the record.
const RECORD: &str = "keyferry-keys";
/// The Secret that holds the key of its seal. Made once and never changed.
const SEAL: &str = "keyferry-seal";
/// How often a lost race is run again before the next round.
pub const ATTEMPTS: usize = 4;

/// Why the record could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecordError {
    /// The hub did not let us.
    #[error("reading and writing the record of keys, Secret {RECORD}: {0}")]
    Hub(#[from] HubError),
    /// The Secret of the seal holds no key.
    #[error(
        "reading the key of the seal, Secret {SEAL}: it holds no 32 bytes under the key `key`; \
         delete it and {RECORD}, and restart every replica"
    )]
    Seal,
    /// The system has no random numbers.
    #[error("making the key of the seal: the system gives no random numbers")]
    Random,
    /// There is no record, and this process only reads.
    #[error(
        "reading the record of keys, Secret {RECORD}: there is none; Keyferry has not run there"
    )]
    Absent,
    /// The record has no valid seal, and this process cannot write it anew.
    #[error(
        "reading the record of keys, Secret {RECORD}: its seal is missing or wrong; a running \
         Keyferry writes it anew within 10 s"
    )]
    NotBelieved,
    /// What was to be written is no record that could be read again, so what stands there stays.
    #[error(
        "writing the record of keys, Secret {RECORD}: it was not written, for it could not be read \
         again: {0}"
    )]
    Unwritable(JournalError),
    /// Others were faster again and again.
    #[error("writing the record of keys, Secret {RECORD}: it changed each time")]
    Contended,
}

impl RecordError {
    /// The stable code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => {
                Reason::KeyRecordForbidden
            }
            _ => Reason::KeyRecordUnread,
        }
    }
}

/// What was found in the Secret.
pub struct Found {
    version: String,
    /// The record, if the bytes are one.
    pub journal: Result<KeyJournal, JournalError>,
    /// Whether the seal is that of the bytes. If not, nothing of the record is to be believed.
    pub sealed: bool,
}

impl Found {
    /// The record, where it can be believed.
    pub fn believed(&self) -> Option<&KeyJournal> {
        self.journal.as_ref().ok().filter(|_| self.sealed)
    }
}

/// See the module.
pub struct KeyRecordStore {
    secrets: Arc<dyn SecretStore>,
    /// Makes the key of the seal where there is none yet; without it this store only reads.
    random: Option<Arc<dyn Random>>,
    seal: tokio::sync::OnceCell<SealKey>,
}

impl KeyRecordStore {
    /// A store in these Secrets; `random` makes the key of the seal where there is none yet.
    pub fn new(secrets: Arc<dyn SecretStore>, random: Arc<dyn Random>) -> Self {
        Self {
            secrets,
            random: Some(random),
            seal: tokio::sync::OnceCell::new(),
        }
    }

    /// A store of what a running Keyferry has made: it makes no key of the seal.
    pub fn existing(secrets: Arc<dyn SecretStore>) -> Self {
        Self {
            secrets,
            random: None,
            seal: tokio::sync::OnceCell::new(),
        }
    }

    /// Whether it may begin a record.
    pub fn may_begin(&self) -> bool {
        self.random.is_some()
    }

    /// Reads the record; nothing if there is none yet.
    ///
    /// # Errors
    /// [`RecordError`].
    pub async fn read(&self) -> Result<Option<Found>, RecordError> {
        let seal = self.seal().await?;
        let Some(secret) = self.secrets.get(&name(RECORD)?).await? else {
            return Ok(None);
        };
        let empty = Zeroizing::new(Vec::new());
        let member = |key: &str| secret.data.get(key).unwrap_or(&empty);
        let (bytes, tag) = (member("journal.json"), member("seal"));
        let sealed = std::str::from_utf8(tag).is_ok_and(|tag| seal.is_seal_of(tag, bytes));
        Ok(Some(Found {
            version: secret.version.clone(),
            journal: KeyJournal::from_bytes(bytes),
            sealed,
        }))
    }

    /// Writes `journal` in the place of what was found; false if it is no longer that.
    ///
    /// # Errors
    /// [`RecordError`].
    pub async fn write(
        &self,
        found: Option<&Found>,
        journal: &KeyJournal,
    ) -> Result<bool, RecordError> {
        let bytes = journal.to_bytes().map_err(RecordError::Unwritable)?;
        let tag = Zeroizing::new(self.seal().await?.seal(&bytes).into_bytes());
        let data = SecretData::from([
            ("journal.json".to_owned(), Zeroizing::new(bytes)),
            ("seal".to_owned(), tag),
        ]);
        let name = name(RECORD)?;
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

    async fn seal(&self) -> Result<&SealKey, RecordError> {
        self.seal
            .get_or_try_init(async || self.make_or_read_seal().await)
            .await
    }

    async fn make_or_read_seal(&self) -> Result<SealKey, RecordError> {
        let name = name(SEAL)?;
        for _ in 0..ATTEMPTS {
            if let Some(secret) = self.secrets.get(&name).await? {
                let key = secret.data.get("key").ok_or(RecordError::Seal)?;
                return SealKey::new(key).map_err(|_| RecordError::Seal);
            }
            let mut key = Zeroizing::new(vec![0; 32]);
            let random = self.random.as_ref().ok_or(RecordError::Absent)?;
            if !random.fill(&mut key) {
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

fn name(text: &str) -> Result<ObjectName, RecordError> {
    ObjectName::new(text).map_err(|_| RecordError::Seal)
}
