//! What the shared record, or the state directory, changes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::{Entry, KeyBook, KeyEvent};
use crate::key_journal::{KeyJournal, KeyRecord};
use crate::moment::Moment;

/// Where a record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The shared Secret, with its seal.
    Sealed,
    /// The shared Secret, without a valid seal: nothing of it is believed.
    Unsealed,
    /// This process's own directory: keys, but no news about what other replicas do.
    StateDirectory,
}

/// How far the clocks of replicas may be apart.
const SKEW: Duration = Duration::from_secs(60);

fn apart(one: Timestamp, other: Timestamp) -> Duration {
    one.duration_since(other).unsigned_abs()
}

/// The earlier of two times that may be unknown.
fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// How a record was come by.
#[derive(Clone, Copy)]
struct Reading {
    /// When the one before was read.
    before: Option<Moment>,
    /// Whether nothing was known until now, and there was nothing to know.
    blank: bool,
    origin: Origin,
}

impl KeyBook {
    /// The shared record was looked for and is not there. The first time, that means that nothing
    /// was ever published.
    pub fn adopt_none(&mut self, now: Moment) -> Vec<KeyEvent> {
        if self.read_at.replace(now).is_some() {
            let known = self.entries.values().any(|entry| entry.recorded);
            return if known {
                vec![KeyEvent::RecordTampered("it is gone")]
            } else {
                Vec::new()
            };
        }
        self.knows_record = true;
        self.nothing_before = self.sequence == 0 && self.revoked.is_empty();
        let nothing_before = self.nothing_before;
        for entry in self.entries.values_mut().filter(|entry| entry.in_first_set) {
            entry.record.first = nothing_before;
        }
        Vec::new()
    }

    /// The shared record was read, and its bytes are none.
    pub fn adopt_unreadable(&mut self, now: Moment) -> Vec<KeyEvent> {
        self.adopt_unbelievable("it cannot be read", now)
    }

    /// A process that knows what the record said writes it anew. One that does not cannot tell what
    /// was revoked: it waits for another.
    fn adopt_unbelievable(&mut self, why: &'static str, now: Moment) -> Vec<KeyEvent> {
        if self.knows_record {
            self.read_at = Some(now);
        }
        vec![KeyEvent::RecordTampered(why)]
    }

    /// Takes in a record that was read.
    pub fn adopt(&mut self, journal: &KeyJournal, origin: Origin, now: Moment) -> Vec<KeyEvent> {
        let mut events = Vec::new();
        let before = self.read_at;
        if origin == Origin::Unsealed {
            return self.adopt_unbelievable("its seal is missing or wrong", now);
        }
        if origin == Origin::Sealed {
            self.read_at = Some(now);
            self.knows_record = true;
        }
        // Whatever else is wrong with it, what it revokes stays revoked.
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
            // This process has retired it and not yet written that.
            return;
        }
        match self.entries.get(kid) {
            Some(own) if own.record.key != stored.key && own.recorded => {
                events.push(KeyEvent::RecordTampered(
                    "it holds other bytes under a known kid",
                ));
            }
            // What this process alone saw, or had in its directory, gives way to what all replicas
            // agreed on.
            Some(own) if own.record.key != stored.key => {
                events.push(KeyEvent::Replaced(kid.to_owned()));
                self.entries.remove(kid);
                self.insert_stored(kid, stored, found, now, events);
            }
            Some(own) if own.recorded || found.origin == Origin::StateDirectory => {
                self.merge(kid, stored, now, events)
            }
            _ => self.insert_stored(kid, stored, found, now, events),
        }
    }

    /// Takes in what other replicas know of a key that is recorded already.
    fn merge(&mut self, kid: &str, stored: &KeyRecord, now: Moment, events: &mut Vec<KeyEvent>) {
        let listed = self.is_listed(kid, now);
        let Some(own) = self.entries.get_mut(kid) else {
            return;
        };
        let confirmed_at = stored.confirmed_at.min(now.wall);
        if confirmed_at > own.record.confirmed_at {
            // Another replica has seen it since.
            own.record.confirmed_at = confirmed_at;
            own.missing_since = None;
            own.record.withdrawn_at = stored.withdrawn_at;
        } else if !listed {
            own.record.withdrawn_at = own.record.withdrawn_at.or(stored.withdrawn_at);
        }
        own.record.signed_since = earliest(own.record.signed_since, stored.signed_since);
        own.record.signed_until = own.record.signed_until.max(stored.signed_until);
        if apart(own.record.published_at, stored.published_at) > SKEW {
            events.push(KeyEvent::RecordTampered(
                "it gives a key another time of publication",
            ));
        }
        // The later time wins, so that replicas whose clocks differ agree. How old the key is here
        // is counted here.
        if stored.published_at <= now.wall.saturating_add(SKEW).unwrap_or(now.wall) {
            own.record.published_at = own.record.published_at.max(stored.published_at);
        }
    }

    /// A key that the record holds and this process did not have, or did not know to be recorded.
    fn insert_stored(
        &mut self,
        kid: &str,
        stored: &KeyRecord,
        found: Reading,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        let sealed = found.origin == Origin::Sealed;
        // A replica may have published it before this process saw it, but not before this process
        // last saw it missing.
        let not_before = found
            .before
            .filter(|_| sealed)
            .map_or(Timestamp::MIN, |read| read.wall);
        let dated_back = found.before.is_some()
            && stored.published_at < not_before
            && apart(stored.published_at, not_before) > SKEW;
        let dated_on =
            stored.published_at > now.wall && apart(stored.published_at, now.wall) > SKEW;
        let impossible = dated_back || dated_on;
        if impossible {
            events.push(KeyEvent::RecordTampered(
                "it gives a new key a time of publication that cannot be",
            ));
        }
        let published_at = if impossible {
            now.wall
        } else {
            stored.published_at
        };
        let own = self.entries.remove(kid);
        // Or a replica was faster with the first set of all, which this process had in hand too, or
        // nothing yet.
        let beaten = self.nothing_before && own.as_ref().is_some_and(|own| own.record.first);
        let first =
            stored.first && (found.before.is_none() || beaten || found.blank) && !impossible;
        let age = Duration::try_from(now.wall.duration_since(published_at.max(not_before)))
            .unwrap_or_default();
        let confirmed = self.listed.get(kid) == Some(&stored.key);
        let confirmed_at = stored.confirmed_at.min(now.wall);
        let record = KeyRecord {
            published_at,
            first,
            confirmed_at: own.as_ref().map_or(confirmed_at, |own| {
                own.record.confirmed_at.max(confirmed_at)
            }),
            signed_since: earliest(
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

    /// What the leader retired goes here too, unless the hub still shows it to this process.
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
