//! What outlives this process: the Secret that replicas share, and the state directory.

use std::path::PathBuf;
use std::sync::Arc;

use keyferry_core::key_book::{Draft, Origin};
use keyferry_core::key_ledger::{KeyLedger, LedgerError, SealKey};
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;
use zeroize::Zeroizing;

use super::{Place, Publisher};
use crate::ports::{HubError, SecretData, SecretStore};
use crate::random::Random;
use crate::state_directory::StateDirectory;

/// The Secret that holds the record.
const RECORD: &str = "keyferry-keys";
/// The Secret that holds the key of its seal. Made once and never changed.
const SEAL: &str = "keyferry-seal";
/// How often a lost race for the record is run again before the next round.
const ATTEMPTS: usize = 4;

/// Where records lie.
#[derive(Default)]
pub struct KeyRecords {
    secrets: Option<(Arc<dyn SecretStore>, Arc<dyn Random>)>,
    state: Option<StateDirectory>,
    seal: tokio::sync::OnceCell<SealKey>,
}

/// Why the shared record could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecordError {
    /// The hub did not let us.
    #[error("reading and writing the record of keys, Secret {RECORD}: {0}")]
    Hub(#[from] HubError),
    /// The Secret of the seal holds no key.
    #[error(
        "reading the key of the seal, Secret {SEAL}: it holds no 32 bytes under the key `key`; delete it, and the record is sealed anew"
    )]
    Seal,
    /// The system has no random numbers.
    #[error("making the key of the seal: the system gives no random numbers")]
    Random,
    /// Other replicas were faster again and again.
    #[error("writing the record of keys, Secret {RECORD}: it changed each time")]
    Contended,
}

impl RecordError {
    /// The stable code.
    pub fn reason(&self) -> Reason {
        match self {
            RecordError::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => Reason::KeyRecordForbidden,
            _ => Reason::KeyRecordUnread,
        }
    }
}

/// What was found in the Secret.
struct Found {
    version: String,
    ledger: Result<KeyLedger, LedgerError>,
    origin: Origin,
}

impl KeyRecords {
    /// Nothing outlives this process.
    pub fn none() -> KeyRecords {
        KeyRecords::default()
    }

    /// A Secret that replicas share.
    #[must_use]
    pub fn shared(secrets: Arc<dyn SecretStore>, random: Arc<dyn Random>) -> KeyRecords {
        KeyRecords { secrets: Some((secrets, random)), ..KeyRecords::default() }
    }

    /// Also a directory of this process's own.
    #[must_use]
    pub fn with_state(mut self, directory: Option<PathBuf>) -> KeyRecords {
        self.state = directory.map(StateDirectory::new);
        self
    }

    /// Whether other replicas share the record.
    pub fn is_shared(&self) -> bool {
        self.secrets.is_some()
    }

    async fn seal(&self, secrets: &dyn SecretStore, random: &dyn Random) -> Result<&SealKey, RecordError> {
        self.seal.get_or_try_init(async || make_or_read_seal(secrets, random).await).await
    }
}

async fn make_or_read_seal(secrets: &dyn SecretStore, random: &dyn Random) -> Result<SealKey, RecordError> {
    let name = name(SEAL)?;
    for _ in 0..ATTEMPTS {
        if let Some(secret) = secrets.get(&name).await? {
            let key = secret.data.get("key").ok_or(RecordError::Seal)?;
            return SealKey::new(key).map_err(|_| RecordError::Seal);
        }
        let mut key = Zeroizing::new(vec![0; 32]);
        if !random.fill(&mut key) {
            return Err(RecordError::Random);
        }
        match secrets.create(&name, &SecretData::from([("key".to_owned(), key)])).await {
            Ok(()) | Err(HubError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RecordError::Contended)
}

fn name(text: &str) -> Result<ObjectName, RecordError> {
    ObjectName::new(text).map_err(|_| RecordError::Seal)
}

impl Publisher {
    /// Takes in what the state directory holds, so that the last good documents are served before the hub is heard.
    pub fn restore(&self) {
        let Some(state) = &self.parts.records.state else { return };
        let Some(ledger) = state.read() else { return };
        if self.parts.pinned.as_ref().is_some_and(|pinned| *pinned != ledger.issuer) {
            tracing::warn!(reason = %Reason::KeyRecordTampered, "the state directory holds keys of another issuer; they are not used");
            return;
        }
        self.open_book(ledger.issuer.clone());
        self.change(Place::Record, |book, now| book.adopt(&ledger, Origin::StateDirectory, now));
    }

    /// Reads the shared record, takes in what is new, and writes what it lacks, as often as somebody else is faster.
    ///
    /// # Errors
    /// [`RecordError`]; then new keys do not settle, and half a minute later nothing is minted.
    pub async fn sync(&self) -> Result<(), RecordError> {
        let outcome = match &self.parts.records.secrets {
            Some((secrets, random)) => self.sync_with(&**secrets, &**random).await,
            None => Ok(()),
        };
        self.keep_state();
        outcome
    }

    /// As [`Publisher::sync`], where a new key waits for it: every second until then is one more that it takes to settle.
    pub async fn sync_if_changed(&self) {
        let is_new = self.lock().as_ref().is_some_and(keyferry_core::key_book::KeyBook::has_unrecorded);
        if is_new && let Err(error) = self.sync().await {
            tracing::warn!(reason = %error.reason(), %error, "a new key is published but does not settle until that is recorded");
        } else if !self.parts.records.is_shared() {
            self.keep_state();
        }
    }

    async fn sync_with(&self, secrets: &dyn SecretStore, random: &dyn Random) -> Result<(), RecordError> {
        let seal = self.parts.records.seal(secrets, random).await?;
        let name = name(RECORD)?;
        for _ in 0..ATTEMPTS {
            let found = find(secrets, &name, seal).await?;
            self.adopt(found.as_ref());
            let stored = found.as_ref().filter(|found| found.origin == Origin::Sealed).and_then(|found| found.ledger.as_ref().ok());
            let Some(draft) = self.draft(stored) else { return Ok(()) };
            match write(secrets, &name, found.as_ref(), &draft, seal).await {
                Ok(()) => {
                    self.change(Place::Record, |book, now| {
                        book.written(&draft, now);
                        Vec::new()
                    });
                    return Ok(());
                }
                Err(HubError::Conflict(_) | HubError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Contended)
    }

    fn adopt(&self, found: Option<&Found>) {
        // Before the hub stated its issuer there is no book; a sealed record names it just as well.
        if let Some(Found { ledger: Ok(ledger), origin: Origin::Sealed, .. }) = found
            && self.parts.pinned.as_ref().is_none_or(|pinned| *pinned == ledger.issuer)
        {
            self.open_book(ledger.issuer.clone());
        }
        self.change(Place::Record, |book, now| match found {
            None => book.adopt_none(now),
            Some(Found { ledger: Ok(ledger), origin, .. }) => book.adopt(ledger, *origin, now),
            Some(Found { ledger: Err(_), .. }) => book.adopt_unreadable(now),
        });
    }

    fn draft(&self, stored: Option<&KeyLedger>) -> Option<Draft> {
        self.lock().as_ref().and_then(|book| book.draft(stored, self.parts.clock.now()))
    }

    fn keep_state(&self) {
        let Some(state) = &self.parts.records.state else { return };
        let snapshot = self.lock().as_ref().map(keyferry_core::key_book::KeyBook::snapshot);
        if let Some(ledger) = snapshot
            && let Err(error) = state.write(&ledger)
        {
            tracing::error!(%error, "the state directory cannot be written; after a restart nothing is published until the hub is heard");
        }
    }
}

async fn find(secrets: &dyn SecretStore, name: &ObjectName, seal: &SealKey) -> Result<Option<Found>, RecordError> {
    let Some(secret) = secrets.get(name).await? else { return Ok(None) };
    let empty = Zeroizing::new(Vec::new());
    let member = |key: &str| secret.data.get(key).unwrap_or(&empty);
    let (bytes, tag) = (member("ledger.json"), member("seal"));
    let sealed = std::str::from_utf8(tag).is_ok_and(|tag| seal.is_seal_of(tag, bytes));
    let origin = if sealed { Origin::Sealed } else { Origin::Unsealed };
    Ok(Some(Found { ledger: KeyLedger::from_bytes(bytes), origin, version: secret.version.clone() }))
}

async fn write(secrets: &dyn SecretStore, name: &ObjectName, found: Option<&Found>, draft: &Draft, seal: &SealKey) -> Result<(), HubError> {
    let bytes = draft.ledger().to_bytes();
    let tag = Zeroizing::new(seal.seal(&bytes).into_bytes());
    let data = SecretData::from([("ledger.json".to_owned(), Zeroizing::new(bytes)), ("seal".to_owned(), tag)]);
    match found {
        Some(found) => secrets.replace(name, &found.version, &data).await,
        None => secrets.create(name, &data).await,
    }
}
