//! What the shared record, or the state directory, changes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::{Entry, KeyBook, KeyEvent};
use crate::key_ledger::{KeyLedger, KeyRecord};
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
    /// The shared record was looked for and is not there. The first time, that means that nothing was ever published.
    pub fn adopt_none(&mut self, now: Moment) -> Vec<KeyEvent> {
        if self.read_at.replace(now).is_some() {
            let known = self.entries.values().any(|entry| entry.recorded);
            return if known { vec![KeyEvent::RecordTampered("it is gone")] } else { Vec::new() };
        }
        self.nothing_before = true;
        for entry in self.entries.values_mut().filter(|entry| entry.in_first_set) {
            entry.record.first = true;
        }
        Vec::new()
    }

    /// The shared record was read, and its bytes are none.
    pub fn adopt_unreadable(&mut self, now: Moment) -> Vec<KeyEvent> {
        self.read_at = Some(now);
        vec![KeyEvent::RecordTampered("it cannot be read")]
    }

    /// Takes in a record that was read.
    pub fn adopt(&mut self, ledger: &KeyLedger, origin: Origin, now: Moment) -> Vec<KeyEvent> {
        let mut events = Vec::new();
        let before = self.read_at;
        if origin != Origin::StateDirectory {
            self.read_at = Some(now);
        }
        if origin == Origin::Unsealed {
            return vec![KeyEvent::RecordTampered("its seal is missing or wrong")];
        }
        if ledger.issuer != self.issuer {
            return vec![KeyEvent::RecordTampered("it names another issuer")];
        }
        self.adopt_revocations(ledger, &mut events);
        if ledger.sequence < self.sequence {
            events.push(KeyEvent::RecordRolledBack);
            return events;
        }
        let blank = self.nothing_before && self.entries.is_empty();
        for (kid, record) in &ledger.keys {
            if !self.is_revoked(&record.key) {
                let found = Reading { before, blank, origin };
                self.adopt_key(kid, record, found, now, &mut events);
            }
        }
        if origin == Origin::Sealed {
            self.drop_retired(ledger, &mut events);
        }
        self.sequence = ledger.sequence;
        events
    }

    fn adopt_revocations(&mut self, ledger: &KeyLedger, events: &mut Vec<KeyEvent>) {
        for (kid, revocation) in &ledger.revoked {
            if self.revoked.insert(kid.clone(), revocation.clone()).is_none() {
                events.push(KeyEvent::Revoked(kid.clone()));
            }
        }
        let revoked: Vec<String> =
            self.entries.iter().filter(|(_, entry)| self.is_revoked(&entry.record.key)).map(|(kid, _)| kid.clone()).collect();
        for kid in revoked {
            self.entries.remove(&kid);
        }
        let revoked: BTreeMap<_, _> = std::mem::take(&mut self.listed).into_iter().filter(|(_, key)| !self.is_revoked(key)).collect();
        self.listed = revoked;
    }

    fn adopt_key(
        &mut self,
        kid: &str,
        stored: &KeyRecord,
        Reading { before: read_before, blank, origin }: Reading,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        if let Some(own) = self.entries.get_mut(kid) {
            if own.record.key != stored.key {
                events.push(KeyEvent::RecordTampered("it holds other bytes under a known kid"));
                return;
            }
            if !self.listed.contains_key(kid) {
                own.record.withdrawn_at = own.record.withdrawn_at.or(stored.withdrawn_at);
            }
            own.record.signed_until = own.record.signed_until.max(stored.signed_until);
            own.record.confirmed_at = own.record.confirmed_at.max(stored.confirmed_at.min(now.wall));
            if own.recorded && own.record.published_at != stored.published_at {
                events.push(KeyEvent::RecordTampered("it gives a key another time of publication"));
                return;
            }
            if own.recorded || origin == Origin::StateDirectory {
                return;
            }
            own.recorded = true;
        }
        // A replica may have published it before this process saw it, but not before this process last saw it missing.
        let earliest = read_before.filter(|_| origin == Origin::Sealed).map_or(Timestamp::MIN, |read| read.wall);
        let dated_back =
            stored.published_at < earliest || stored.published_at > now.wall.saturating_add(Duration::from_secs(60)).unwrap_or(now.wall);
        if dated_back {
            events.push(KeyEvent::RecordTampered("it gives a new key a time of publication that cannot be"));
        }
        let published_at = if dated_back { now.wall } else { stored.published_at };
        // Or a replica was faster with the first set of all, which this process had in hand too, or nothing yet.
        let beaten = self.nothing_before && self.entries.get(kid).is_some_and(|own| own.record.first);
        let first = stored.first && (read_before.is_none() || beaten || blank) && !dated_back;
        let age = Duration::try_from(now.wall.duration_since(published_at)).unwrap_or_default();
        match self.entries.get_mut(kid) {
            Some(own) => {
                own.record.published_at = published_at;
                own.record.first = first;
                (own.age, own.since) = (age, now.mono);
            }
            None => {
                let record = KeyRecord { published_at, first, ..stored.clone() };
                let recorded = origin == Origin::Sealed || !self.shared;
                let confirmed = self.listed.get(kid) == Some(&stored.key);
                let entry = Entry { record, in_first_set: false, age, since: now.mono, confirmed, recorded, missing_since: None };
                self.entries.insert(kid.to_owned(), entry);
                self.candidates.retain(|(_, candidate), _| candidate != kid);
                events.push(KeyEvent::Published(kid.to_owned()));
            }
        }
    }

    /// What the leader retired goes here too, unless the hub still shows it to this process.
    fn drop_retired(&mut self, ledger: &KeyLedger, events: &mut Vec<KeyEvent>) {
        let gone: Vec<String> = self
            .entries
            .iter()
            .filter(|(kid, entry)| entry.recorded && !ledger.keys.contains_key(*kid) && !self.listed.contains_key(*kid))
            .map(|(kid, _)| kid.clone())
            .collect();
        for kid in gone {
            self.entries.remove(&kid);
            events.push(KeyEvent::Retired(kid));
        }
    }
}
