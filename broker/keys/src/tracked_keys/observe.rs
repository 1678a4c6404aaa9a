//! Applies a reading of the hub's key endpoints: publishes new keys, withdraws keys that no endpoint
//! lists, and retires keys that no valid token needs. `keyferry revoke` is another path.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyferry_api::moment::Moment;

use super::{Candidate, KeyEvent, TrackedKeys};
use crate::jwks::{PublicKey, PublicKeySet};

/// How long an endpoint must have listed a new key before the key is published without a token
/// signed by it. This keeps out a key that appears only briefly.
const CANDIDACY_PERIOD: Duration = Duration::from_secs(10);

/// How long complete readings must lack a key before it is withdrawn. Behind a load balancer, each
/// reading may reach another apiserver.
pub(super) const ABSENCE_BEFORE_WITHDRAWAL: Duration = Duration::from_secs(60);

/// One reading of the keys at every endpoint of the hub.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The endpoints that answered, by address, with the keys that each lists.
    pub answered: Vec<(String, PublicKeySet)>,
    /// How many endpoints gave no usable answer. If any did, no key is withdrawn.
    pub silent: usize,
}

impl TrackedKeys {
    /// Applies a reading of the hub. Only the leader (`leads`) withdraws keys.
    pub fn apply_reading(&mut self, reading: &Reading, leads: bool, now: Moment) -> Vec<KeyEvent> {
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
        // Candidates of an endpoint that did not answer wait until it answers again.
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
        // Never withdraws the last keys: they stay until a key that the hub lists is published.
        let replaced = self.listed.keys().any(|kid| self.entries.contains_key(kid));
        if leads && reading.silent == 0 && replaced {
            self.withdraw_keys(now, &mut events);
        }
        events
    }

    /// Publishes the key `kid` at once, if the hub lists it. The caller has just received a token
    /// that the hub signed with it.
    pub fn publish_signing_key(&mut self, kid: &str, now: Moment) -> Vec<KeyEvent> {
        match self.listed.get(kid) {
            Some(key) if !self.entries.contains_key(kid) && !self.is_revoked(key) => {
                self.insert_key(key.clone(), false, now);
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
        let confirmed_at = self.later_clock(now);
        if let Some(entry) = self.entries.get_mut(key.kid()) {
            entry.confirmed = true;
            entry.record.confirmed_at = confirmed_at;
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

    /// Publishes the candidates that were listed for long enough. The first set is published whole,
    /// because there is no older set to compare it with.
    fn publish_candidates(
        &mut self,
        first_set: bool,
        heard: &impl Fn(&String) -> bool,
        now: Moment,
        events: &mut Vec<KeyEvent>,
    ) {
        // The endpoint must have listed the key again: elapsed time alone is not enough.
        let ripe = |((endpoint, _), candidate): &(&(String, String), &Candidate)| {
            first_set
                || heard(endpoint) && now.mono.saturating_sub(candidate.since) >= CANDIDACY_PERIOD
        };
        let keys: BTreeMap<String, PublicKey> = self
            .candidates
            .iter()
            .filter(ripe)
            .map(|((_, kid), candidate)| (kid.clone(), candidate.key.clone()))
            .collect();
        for (kid, key) in keys {
            self.insert_key(key, first_set, now);
            events.push(KeyEvent::Published(kid));
        }
    }

    /// Withdraws keys that no endpoint lists, and retires those that no valid token needs. Call it
    /// only after every endpoint has answered.
    fn withdraw_keys(&mut self, now: Moment, events: &mut Vec<KeyEvent>) {
        let gone: BTreeSet<String> = self
            .entries
            .keys()
            .filter(|kid| !self.listed.contains_key(*kid))
            .cloned()
            .collect();
        let (ends_by, recorded_at) = (self.earlier_clock(now), self.later_clock(now));
        for kid in gone {
            let Some(entry) = self.entries.get_mut(&kid) else {
                continue;
            };
            let missing_since = *entry.missing_since.get_or_insert(now.mono);
            // Another replica may have seen the key at the hub more recently.
            let unseen = Duration::try_from(recorded_at.duration_since(entry.record.confirmed_at))
                .unwrap_or_default();
            if entry.record.withdrawn_at.is_none()
                && now.mono.saturating_sub(missing_since).min(unseen) < ABSENCE_BEFORE_WITHDRAWAL
            {
                continue;
            }
            if entry.record.withdrawn_at.is_none() {
                entry.record.withdrawn_at = Some(recorded_at);
                events.push(KeyEvent::Withdrawn(kid.clone()));
            }
            if !entry.is_served(ends_by) {
                self.entries.remove(&kid);
                self.retired.insert(kid.clone(), recorded_at);
                events.push(KeyEvent::Retired(kid));
            }
        }
    }
}
