//! What this process writes to the shared key journal and to its state directory.

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::moment::Moment;

use super::TrackedKeys;
use crate::key_journal::KeyJournal;

/// How much newer a confirmation must be to be worth a write.
const CONFIRMATION_STEP: Duration = Duration::from_secs(3600);
/// How much later than its true value a token's expiry is recorded, so that not every token causes
/// a write.
const SIGNED_STEP: Duration = Duration::from_secs(600);

/// A key journal to be written. Pass it to [`TrackedKeys::note_written`] once the write has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    journal: KeyJournal,
}

impl Draft {
    /// The journal to write.
    pub fn journal(&self) -> &KeyJournal {
        &self.journal
    }
}

impl TrackedKeys {
    /// The journal for this process's own disk. Its times are rounded to ten minutes, so that it
    /// rarely changes.
    pub fn snapshot_journal(&self) -> KeyJournal {
        let mut journal = KeyJournal::empty(self.issuer.clone());
        journal.sequence = self.sequence;
        journal.revoked.clone_from(&self.revoked);
        for (kid, entry) in &self.entries {
            let mut record = entry.record.clone();
            record.confirmed_at = round_time(record.confirmed_at, 0);
            record.signed_until = record.signed_until.map(|until| round_time(until, 1));
            journal.keys.insert(kid.clone(), record);
        }
        journal
    }

    /// The journal to write, or `None` if no write is needed.
    ///
    /// No write is needed if `stored` is good enough to keep. Nothing can be written before the
    /// journal is known, while there is nothing to record, or in the place of a journal that is gone
    /// or not believed by a process that has not read it lately.
    pub fn draft_journal(&self, stored: Option<&KeyJournal>, now: Moment) -> Option<Draft> {
        let mut journal = KeyJournal::empty(self.issuer.clone());
        journal.revoked.clone_from(&self.revoked);
        // A key that is only in the state directory, and that the hub has not shown, is not passed
        // on to other replicas.
        for (kid, entry) in self
            .entries
            .iter()
            .filter(|(_, entry)| entry.recorded || entry.confirmed)
        {
            let mut record = entry.record.clone();
            if !entry.recorded {
                record.published_at = self.later_clock(now);
            }
            journal.keys.insert(kid.clone(), record);
        }
        if !self.knows_record || journal.keys.is_empty() && journal.revoked.is_empty() {
            return None;
        }
        // It would lack what others have written since.
        if self.lost_since.is_some() && !self.is_current(now) {
            return None;
        }
        let last_sequence = stored
            .map_or(0, |stored| stored.sequence)
            .max(self.sequence);
        match stored {
            Some(stored)
                if stored.sequence >= self.sequence && is_worth_keeping(stored, &journal) =>
            {
                None
            }
            _ => {
                for (kid, record) in &mut journal.keys {
                    let written = stored.and_then(|stored| stored.keys.get(kid)?.signed_until);
                    if record.signed_until > written {
                        record.signed_until = record
                            .signed_until
                            .and_then(|until| until.saturating_add(SIGNED_STEP).ok());
                    }
                }
                journal.sequence = last_sequence.saturating_add(1);
                Some(Draft { journal })
            }
        }
    }

    /// Notes that the draft was written. The activation delay of the keys that it added starts now.
    pub fn note_written(&mut self, draft: &Draft, now: Moment) {
        self.sequence = self.sequence.max(draft.journal.sequence);
        self.read_at = Some(now);
        self.lost_since = None;
        self.retired
            .retain(|kid, _| draft.journal.keys.contains_key(kid));
        for (kid, record) in &draft.journal.keys {
            let Some(entry) = self.entries.get_mut(kid) else {
                continue;
            };
            if !entry.recorded && entry.record.key == record.key {
                entry.recorded = true;
                entry.restored = false;
                entry.record.published_at = record.published_at;
                (entry.age, entry.since) = (Duration::ZERO, now.mono);
            }
        }
    }
}

/// Rounds `time` down to ten minutes and adds `steps` times ten minutes.
fn round_time(time: Timestamp, steps: i64) -> Timestamp {
    let step = i64::try_from(SIGNED_STEP.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(
        (time.as_second().div_euclid(step).saturating_add(steps)).saturating_mul(step),
    )
    .unwrap_or(time)
}

fn is_worth_keeping(stored: &KeyJournal, wanted: &KeyJournal) -> bool {
    let same_keys = stored.revoked == wanted.revoked
        && stored.issuer == wanted.issuer
        && stored.keys.keys().eq(wanted.keys.keys());
    same_keys
        && stored
            .keys
            .iter()
            .zip(&wanted.keys)
            .all(|((_, stored), (_, wanted))| {
                let newer =
                    Duration::try_from(wanted.confirmed_at.duration_since(stored.confirmed_at))
                        .unwrap_or_default();
                stored.key == wanted.key
                    && stored.published_at == wanted.published_at
                    && stored.withdrawn_at == wanted.withdrawn_at
                    && newer < CONFIRMATION_STEP
                    && stored.signed_until >= wanted.signed_until
            })
}
