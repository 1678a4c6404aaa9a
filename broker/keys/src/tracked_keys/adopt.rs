//! Applies what the shared key journal or the state directory says about the hub's keys.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::moment::Moment;

use super::{Entry, KeyEvent, RECORD_PATIENCE, TrackedKeys};
use crate::key_journal::{KeyJournal, KeyRecord};

/// Where a key journal was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The shared Secret, with a valid seal.
    Sealed,
    /// The shared Secret, without a valid seal: nothing in it is trusted.
    Unsealed,
    /// This process's own directory. It has keys, but no news of what other replicas do.
    StateDirectory,
}

/// Largest accepted difference between the clocks of two replicas.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

fn time_apart(one: Timestamp, other: Timestamp) -> Duration {
    one.duration_since(other).unsigned_abs()
}

/// The earlier of two times that may be unknown.
fn earlier_of(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// The circumstances in which a journal was read.
#[derive(Clone, Copy)]
struct Reading {
    /// When the previous journal was read, by the earlier clock.
    before: Option<Timestamp>,
    /// Whether no key was known until now and none had been published before.
    blank: bool,
    origin: Origin,
}

impl Reading {
    /// The earliest time at which a key that is new in this journal can have been published. A
    /// replica may have published it before this process saw it, but not before this process last
    /// read a journal without it.
    fn earliest_publication(self) -> Timestamp {
        self.before
            .filter(|_| self.origin == Origin::Sealed)
            .unwrap_or(Timestamp::MIN)
    }

    /// Whether a new key cannot have been published then: too early, or in the future.
    fn is_impossible(self, published_at: Timestamp, now: Timestamp) -> bool {
        let earliest = self.earliest_publication();
        let dated_back = self.before.is_some()
            && published_at < earliest
            && time_apart(published_at, earliest) > MAX_CLOCK_SKEW;
        let dated_on = published_at > now && time_apart(published_at, now) > MAX_CLOCK_SKEW;
        dated_back || dated_on
    }
}

impl TrackedKeys {
    /// Handles a shared journal that does not exist.
    ///
    /// At the first reading this means that no key was ever published. Later it is an alarm if the
    /// journal had a key.
    pub fn adopt_none(&mut self, now: Moment) -> Vec<KeyEvent> {
        if self.read_at.is_some() {
            let known = self.entries.values().any(|entry| entry.recorded);
            if known {
                return self.adopt_unbelievable("it is gone", now);
            }
            self.read_at = Some(now);
            return Vec::new();
        }
        self.read_at = Some(now);
        self.lost_since = None;
        self.knows_record = true;
        self.nothing_before = self.sequence == 0 && self.revoked.is_empty();
        let nothing_before = self.nothing_before;
        for entry in self.entries.values_mut().filter(|entry| entry.in_first_set) {
            entry.record.first = nothing_before;
        }
        Vec::new()
    }

    /// Handles a shared journal that cannot be parsed.
    pub fn adopt_unreadable(&mut self, now: Moment) -> Vec<KeyEvent> {
        self.adopt_unbelievable("it cannot be read", now)
    }

    /// Rejects a journal. A process that has read a valid one lately rewrites it. One that has read
    /// none does not know which keys are revoked, so it waits for one that does. So does one that
    /// read it long ago, but only for a while: perhaps no other process has read it since.
    fn adopt_unbelievable(&mut self, why: &'static str, now: Moment) -> Vec<KeyEvent> {
        let since = *self.lost_since.get_or_insert(now.mono);
        let has_waited = now.mono.saturating_sub(since) > RECORD_PATIENCE;
        if self.knows_record && (has_waited || self.is_current(now)) {
            self.read_at = Some(now);
        }
        vec![KeyEvent::RecordTampered(why)]
    }

    /// Applies a journal that was read from `origin`.
    pub fn adopt_journal(
        &mut self,
        journal: &KeyJournal,
        origin: Origin,
        now: Moment,
    ) -> Vec<KeyEvent> {
        let mut events = Vec::new();
        let before = self.read_at.map(|read| self.earlier_clock(read));
        if origin == Origin::Unsealed {
            return self.adopt_unbelievable("its seal is missing or wrong", now);
        }
        if origin == Origin::Sealed {
            self.read_at = Some(now);
            self.lost_since = None;
            self.knows_record = true;
        }
        // Revocations apply even if the rest of the journal is rejected.
        self.adopt_revocations(journal, &mut events);
        if journal.issuer != self.issuer {
            events.push(KeyEvent::RecordTampered("it names another issuer"));
            return events;
        }
        if journal.sequence < self.sequence {
            events.push(KeyEvent::RecordRolledBack);
            return events;
        }
        let blank = self.nothing_before && self.entries.is_empty();
        for (kid, record) in &journal.keys {
            if !self.is_revoked(&record.key) {
                let found = Reading {
                    before,
                    blank,
                    origin,
                };
                self.adopt_key(kid, record, found, now, &mut events);
            }
        }
        if origin == Origin::Sealed {
            self.drop_retired(journal, now, &mut events);
        }
        self.sequence = journal.sequence;
        events
    }

    fn adopt_revocations(&mut self, journal: &KeyJournal, events: &mut Vec<KeyEvent>) {
        for (kid, revocation) in &journal.revoked {
            if self
                .revoked
                .insert(kid.clone(), revocation.clone())
                .is_none()
            {
                events.push(KeyEvent::Revoked(kid.clone()));
            }
        }
        let revoked: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| self.is_revoked(&entry.record.key))
            .map(|(kid, _)| kid.clone())
            .collect();
        for kid in revoked {
            self.entries.remove(&kid);
        }
        let revoked: BTreeMap<_, _> = std::mem::take(&mut self.listed)
            .into_iter()
            .filter(|(_, key)| !self.is_revoked(key))
            .collect();
        self.listed = revoked;
    }

    fn adopt_key(
        &mut self,
        kid: &str,
        stored: &KeyRecord,
        found: Reading,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        if self
            .retired
            .get(kid)
            .is_some_and(|retired| stored.confirmed_at <= *retired)
        {
            // This process retired the key and has not written that to the journal yet.
            return;
        }
        match self.entries.get(kid) {
            Some(own) if own.record.key != stored.key && own.recorded => {
                events.push(KeyEvent::RecordTampered(
                    "it holds other bytes under a known kid",
                ));
            }
            // A key that only this process saw, or had in its directory, yields to the journal that
            // all replicas share.
            Some(own) if own.record.key != stored.key => {
                events.push(KeyEvent::Replaced(kid.to_owned()));
                self.entries.remove(kid);
                self.insert_stored(kid, stored, found, now, events);
            }
            Some(own) if own.recorded || found.origin == Origin::StateDirectory => {
                self.merge_record(kid, stored, now, events)
            }
            _ => self.insert_stored(kid, stored, found, now, events),
        }
    }

    /// Merges a journal's record of a key into this process's own record of it.
    fn merge_record(
        &mut self,
        kid: &str,
        stored: &KeyRecord,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        let (listed, now) = (self.is_listed(kid, now), self.later_clock(now));
        let Some(own) = self.entries.get_mut(kid) else {
            return;
        };
        let confirmed_at = stored.confirmed_at.min(now);
        if confirmed_at > own.record.confirmed_at {
            // Another replica saw the key at the hub later than this one.
            own.record.confirmed_at = confirmed_at;
            own.missing_since = None;
            own.record.withdrawn_at = stored.withdrawn_at;
        } else if !listed {
            own.record.withdrawn_at = own.record.withdrawn_at.or(stored.withdrawn_at);
        }
        own.record.signed_since = earlier_of(own.record.signed_since, stored.signed_since);
        own.record.signed_until = own.record.signed_until.max(stored.signed_until);
        if time_apart(own.record.published_at, stored.published_at) > MAX_CLOCK_SKEW {
            events.push(KeyEvent::RecordTampered(
                "it gives a key a different publication time",
            ));
        }
        // The later time wins, so that replicas whose clocks differ agree. It does not change the
        // key's age, which this process counts itself.
        if stored.published_at <= now.saturating_add(MAX_CLOCK_SKEW).unwrap_or(now) {
            own.record.published_at = own.record.published_at.max(stored.published_at);
        }
    }

    /// Inserts a journal's key that this process did not have, or did not know to be recorded.
    fn insert_stored(
        &mut self,
        kid: &str,
        stored: &KeyRecord,
        found: Reading,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        let sealed = found.origin == Origin::Sealed;
        let not_before = found.earliest_publication();
        let recorded_at = self.later_clock(now);
        let impossible = found.is_impossible(stored.published_at, recorded_at);
        if impossible {
            events.push(KeyEvent::RecordTampered(
                "it gives a new key an impossible publication time",
            ));
        }
        let published_at = if impossible {
            recorded_at
        } else {
            stored.published_at
        };
        let own = self.entries.remove(kid);
        // `first` also holds if another replica recorded the first set before this process did.
        // This process then had the key in its own first set (`beaten`) or knew no key yet
        // (`blank`).
        let beaten = self.nothing_before && own.as_ref().is_some_and(|own| own.record.first);
        let first =
            stored.first && (found.before.is_none() || beaten || found.blank) && !impossible;
        let age = self
            .earlier_clock(now)
            .duration_since(published_at.max(not_before));
        let age = Duration::try_from(age).unwrap_or_default();
        let confirmed = self.listed.get(kid) == Some(&stored.key);
        let confirmed_at = stored.confirmed_at.min(recorded_at);
        let record = KeyRecord {
            published_at,
            first,
            confirmed_at: own.as_ref().map_or(confirmed_at, |own| {
                own.record.confirmed_at.max(confirmed_at)
            }),
            signed_since: earlier_of(
                stored.signed_since,
                own.as_ref().and_then(|own| own.record.signed_since),
            ),
            signed_until: stored
                .signed_until
                .max(own.as_ref().and_then(|own| own.record.signed_until)),
            withdrawn_at: stored.withdrawn_at.filter(|_| !self.is_listed(kid, now)),
            key: stored.key.clone(),
        };
        if own.is_none() {
            events.push(KeyEvent::Published(kid.to_owned()));
        }
        let entry = Entry {
            record,
            in_first_set: own.as_ref().is_some_and(|own| own.in_first_set),
            age,
            since: now.mono,
            confirmed: confirmed || own.is_some_and(|own| own.confirmed),
            recorded: sealed || !self.shared,
            restored: !sealed,
            missing_since: None,
        };
        self.entries.insert(kid.to_owned(), entry);
        self.retired.remove(kid);
        self.candidates.retain(|(_, candidate), _| candidate != kid);
    }

    /// Removes the keys that the leader retired, unless the hub still lists them to this process.
    fn drop_retired(&mut self, journal: &KeyJournal, now: Moment, events: &mut Vec<KeyEvent>) {
        self.retired.retain(|kid, _| journal.keys.contains_key(kid));
        let gone: Vec<String> = self
            .entries
            .iter()
            .filter(|(kid, entry)| {
                entry.recorded && !journal.keys.contains_key(*kid) && !self.is_listed(kid, now)
            })
            .map(|(kid, _)| kid.clone())
            .collect();
        for kid in gone {
            self.entries.remove(&kid);
            events.push(KeyEvent::Retired(kid));
        }
    }
}
