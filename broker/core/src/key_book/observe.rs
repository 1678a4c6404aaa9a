//! What a look at the hub changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Candidate, KeyBook, KeyEvent};
use crate::jwks::{PublicKey, PublicKeySet};
use crate::moment::Moment;

/// How long an endpoint must have listed a new key before it is published unasked: one that flashes
/// up once is not.
const CANDIDACY: Duration = Duration::from_secs(10);

/// How long complete readings must lack a key before it is withdrawn: behind a load balancer each
/// may reach another apiserver.
pub(super) const ABSENCE: Duration = Duration::from_secs(60);

/// One look at every endpoint of the hub.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The endpoints that answered, each by its address, and what they list.
    pub answered: Vec<(String, PublicKeySet)>,
    /// How many gave no usable answer. Then nothing is withdrawn.
    pub silent: usize,
}

impl KeyBook {
    /// Takes in a look at the hub. Only who leads may withdraw.
    pub fn observe(&mut self, reading: &Reading, leads: bool, now: Moment) -> Vec<KeyEvent> {
        let mut events = Vec::new();
        let mut candidates = BTreeMap::new();
        let mut listed = BTreeMap::new();
        let first_set = self.entries.is_empty();
        for (endpoint, set) in &reading.answered {
            for key in set.keys() {
                if self.is_acceptable(key, &listed, &mut events) {
                    listed.insert(key.kid().to_owned(), key.clone());
                    self.confirm_or_note(endpoint, key, &mut candidates, now);
                }
            }
        }
        if reading.answered.is_empty() {
            return events;
        }
        // The candidates of an endpoint that gave no answer wait for it to speak again.
        let heard = |endpoint: &String| {
            reading
                .answered
                .iter()
                .any(|(answered, _)| answered == endpoint)
        };
        candidates.extend(
            std::mem::take(&mut self.candidates)
                .into_iter()
                .filter(|((endpoint, _), _)| !heard(endpoint)),
        );
        self.candidates = candidates;
        self.listed = listed;
        self.listed_at = now.mono;
        self.publish_candidates(first_set, &heard, now, &mut events);
        // Never down to nothing: as long as no key that the hub lists is published, the others
        // stay.
        let replaced = self.listed.keys().any(|kid| self.entries.contains_key(kid));
        if leads && reading.silent == 0 && replaced {
            self.withdraw(now, &mut events);
        }
        events
    }

    /// The hub has just signed a token for us with `kid`. If it also lists the key, the key is
    /// published at once.
    pub fn vouch(&mut self, kid: &str, now: Moment) -> Vec<KeyEvent> {
        match self.listed.get(kid) {
            Some(key) if !self.entries.contains_key(kid) && !self.is_revoked(key) => {
                self.insert(key.clone(), false, now);
                vec![KeyEvent::Published(kid.to_owned())]
            }
            _ => Vec::new(),
        }
    }

    fn is_acceptable(
        &self,
        key: &PublicKey,
        listed: &BTreeMap<String, PublicKey>,
        events: &mut Vec<KeyEvent>,
    ) -> bool {
        if self.is_revoked(key) {
            events.push(KeyEvent::RevokedListed(key.kid().to_owned()));
            return false;
        }
        let pinned = self
            .entries
            .get(key.kid())
            .map(|entry| &entry.record.key)
            .or_else(|| listed.get(key.kid()));
        let replaced = pinned.is_some_and(|pinned| pinned != key);
        if replaced {
            events.push(KeyEvent::Replaced(key.kid().to_owned()));
        }
        !replaced
    }

    fn confirm_or_note(
        &mut self,
        endpoint: &str,
        key: &PublicKey,
        candidates: &mut BTreeMap<(String, String), Candidate>,
        now: Moment,
    ) {
        if let Some(entry) = self.entries.get_mut(key.kid()) {
            entry.confirmed = true;
            entry.record.confirmed_at = now.wall;
            entry.record.withdrawn_at = None;
            entry.missing_since = None;
            return;
        }
        let place = (endpoint.to_owned(), key.kid().to_owned());
        let before = self
            .candidates
            .get(&place)
            .filter(|before| before.key == *key);
        let since = before.map_or(now.mono, |before| before.since);
        candidates.insert(
            place,
            Candidate {
                key: key.clone(),
                since,
            },
        );
    }

    /// The first set is published whole: there is nothing older that it could be told from.
    fn publish_candidates(
        &mut self,
        first_set: bool,
        heard: &impl Fn(&String) -> bool,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        // A second sight is needed: time alone ripens nothing.
        let ripe = |((endpoint, _), candidate): &(&(String, String), &Candidate)| {
            first_set || heard(endpoint) && now.mono.saturating_sub(candidate.since) >= CANDIDACY
        };
        let keys: BTreeMap<String, PublicKey> = self
            .candidates
            .iter()
            .filter(ripe)
            .map(|((_, kid), candidate)| (kid.clone(), candidate.key.clone()))
            .collect();
        for (kid, key) in keys {
            self.insert(key, first_set, now);
            events.push(KeyEvent::Published(kid));
        }
    }

    /// Every endpoint answered, so what none lists is withdrawn, and what nobody needs any more is
    /// retired.
    fn withdraw(&mut self, now: Moment, events: &mut Vec<KeyEvent>) {
        let gone: BTreeSet<String> = self
            .entries
            .keys()
            .filter(|kid| !self.listed.contains_key(*kid))
            .cloned()
            .collect();
        for kid in gone {
            let Some(entry) = self.entries.get_mut(&kid) else {
                continue;
            };
            let missing_since = *entry.missing_since.get_or_insert(now.mono);
            // Another replica may have seen it since.
            let unseen = Duration::try_from(now.wall.duration_since(entry.record.confirmed_at))
                .unwrap_or_default();
            if entry.record.withdrawn_at.is_none()
                && now.mono.saturating_sub(missing_since).min(unseen) < ABSENCE
            {
                continue;
            }
            if entry.record.withdrawn_at.is_none() {
                entry.record.withdrawn_at = Some(now.wall);
                events.push(KeyEvent::Withdrawn(kid.clone()));
            }
            if !entry.is_served(now.wall) {
                self.entries.remove(&kid);
                self.retired.insert(kid.clone(), now.wall);
                events.push(KeyEvent::Retired(kid));
            }
        }
    }
}
