//! Synchronises the tracked keys with the shared key journal and the state directory.

use std::path::PathBuf;

use keyferry_api::reason::Reason;
use keyferry_hub::key_record_store::{
    KeyRecordStore, MAX_WRITE_ATTEMPTS, RecordError, StoredRecord,
};
use keyferry_keys::key_journal::KeyJournal;
use keyferry_keys::tracked_keys::{Draft, Origin, TrackedKeys};
use keyferry_platform::state_directory::StateDirectory;

use super::{EventSource, Publisher};

/// Where the key journal is stored.
#[derive(Default)]
pub struct KeyRecords {
    shared: Option<KeyRecordStore>,
    state: Option<StateDirectory>,
}

impl KeyRecords {
    /// Stores the key journal nowhere.
    pub fn none() -> Self {
        Self::default()
    }

    /// Shares the key journal with other replicas.
    #[must_use]
    pub fn shared(store: KeyRecordStore) -> Self {
        Self {
            shared: Some(store),
            state: None,
        }
    }

    /// Also stores the key journal in a local directory.
    #[must_use]
    pub fn with_state(mut self, directory: Option<PathBuf>) -> Self {
        self.state = directory.map(StateDirectory::new);
        self
    }

    /// Whether other replicas share the key journal.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

impl Publisher {
    /// Restores the key journal from the state directory, so that the last valid documents are
    /// served before the hub answers.
    pub fn restore_journal(&self) {
        let Some(state) = &self.parts.records.state else {
            return;
        };
        let Some(journal) = state.read_journal() else {
            return;
        };
        if self
            .parts
            .pinned
            .as_ref()
            .is_some_and(|pinned| *pinned != journal.issuer)
        {
            tracing::warn!(reason = %Reason::KeyRecordTampered, "the state directory holds keys of \
                another issuer; they are not used");
            return;
        }
        self.start_tracking(journal.issuer.clone());
        self.change_keys(EventSource::Record, |tracked, now| {
            tracked.adopt_journal(&journal, Origin::StateDirectory, now)
        });
    }

    /// Reads the shared key journal, adopts what is new, and writes what it lacks. Repeats this if
    /// another replica writes first.
    ///
    /// # Errors
    /// [`RecordError`]; then new keys do not become active, and half a minute later nothing is
    /// minted.
    pub async fn sync_journal(&self) -> Result<(), RecordError> {
        let _alone = self.syncing.lock().await;
        self.republish();
        let outcome = match &self.parts.records.shared {
            Some(store) => self.sync_with(store).await,
            None => Ok(()),
        };
        self.keep_state();
        outcome
    }

    /// Runs [`Publisher::sync_journal`] if a new key waits to be recorded: every second of delay also
    /// delays its activation.
    pub async fn sync_if_changed(&self) {
        let is_new = self
            .lock_keys()
            .as_ref()
            .is_some_and(TrackedKeys::has_unrecorded);
        if !is_new {
            self.keep_state();
        } else if let Err(error) = self.sync_journal().await {
            tracing::warn!(reason = %error.reason(), %error, "a new key is published but does not \
                become active until that is recorded");
        }
    }

    async fn sync_with(&self, store: &KeyRecordStore) -> Result<(), RecordError> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let found = store.read_record().await?;
            if !store.may_begin() {
                let found = found.ok_or(RecordError::Absent)?;
                found.sealed_journal().ok_or(RecordError::NotBelieved)?;
                self.adopt_record(Some(&found));
                return Ok(());
            }
            self.adopt_record(found.as_ref());
            let Some(draft) =
                self.draft_journal(found.as_ref().and_then(StoredRecord::sealed_journal))
            else {
                return Ok(());
            };
            if store.write_record(found.as_ref(), draft.journal()).await? {
                self.change_keys(EventSource::Record, |tracked, now| {
                    tracked.note_written(&draft, now);
                    Vec::new()
                });
                return Ok(());
            }
        }
        Err(RecordError::Contended)
    }

    fn adopt_record(&self, found: Option<&StoredRecord>) {
        // No keys are tracked before the hub states its issuer; but a sealed journal names the issuer
        // as well.
        if let Some(journal) = found.and_then(StoredRecord::sealed_journal)
            && self
                .parts
                .pinned
                .as_ref()
                .is_none_or(|pinned| *pinned == journal.issuer)
        {
            self.start_tracking(journal.issuer.clone());
        }
        self.change_keys(EventSource::Record, |tracked, now| match found {
            None => tracked.adopt_none(now),
            Some(StoredRecord {
                journal: Ok(journal),
                sealed,
                ..
            }) => tracked.adopt_journal(
                journal,
                if *sealed {
                    Origin::Sealed
                } else {
                    Origin::Unsealed
                },
                now,
            ),
            Some(StoredRecord {
                journal: Err(_), ..
            }) => tracked.adopt_unreadable(now),
        });
    }

    fn draft_journal(&self, stored: Option<&KeyJournal>) -> Option<Draft> {
        self.lock_keys()
            .as_ref()
            .and_then(|tracked| tracked.draft_journal(stored, self.parts.clock.now()))
    }

    fn keep_state(&self) {
        let Some(state) = &self.parts.records.state else {
            return;
        };
        let snapshot = self.lock_keys().as_ref().map(TrackedKeys::snapshot_journal);
        if let Some(journal) = snapshot
            && let Err(error) = state.write_journal(&journal)
        {
            tracing::error!(%error, "the state directory cannot be written; after a restart \
                nothing is published until the hub answers");
        }
    }
}
