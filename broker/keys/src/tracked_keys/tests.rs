//! Keys that are observed at the hub, written to the key journal, and adopted from it.

#![allow(clippy::unwrap_used)]

mod observe;
mod revocation;
mod shared_journal;

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;

use super::{Reading, TrackedKeys};
use crate::jwks::{PublicKey, PublicKeySet};
use crate::jwt::SigningAlgorithm::{self, Rs256};
use crate::key_journal::KeyJournal;
use crate::testing as test_keys;

const ACTIVATION_DELAY: Duration = Duration::from_secs(120);
const START: i64 = 1_800_000_000;

fn at(seconds: u64) -> Moment {
    Moment {
        wall: Timestamp::from_second(START + i64::try_from(seconds).unwrap()).unwrap(),
        mono: Duration::from_secs(seconds),
    }
}

fn key(algorithm: SigningAlgorithm) -> PublicKey {
    test_keys::key(algorithm)
        .set()
        .keys()
        .next()
        .unwrap()
        .clone()
}

fn reading(sets: &[&[SigningAlgorithm]]) -> Reading {
    let set = |algorithms: &[SigningAlgorithm]| {
        PublicKeySet::from_keys(algorithms.iter().map(|algorithm| key(*algorithm))).unwrap()
    };
    Reading {
        answered: sets
            .iter()
            .enumerate()
            .map(|(index, algorithms)| (index.to_string(), set(algorithms)))
            .collect(),
        silent: 0,
    }
}

fn tracked(shared: bool) -> TrackedKeys {
    TrackedKeys::new(
        Issuer::new("https://hub.example.test").unwrap(),
        ACTIVATION_DELAY,
        shared,
        at(0),
    )
}

fn kids(tracked: &TrackedKeys, now: Moment) -> Vec<String> {
    tracked
        .published_keys(now)
        .map(|set| set.kids().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Writes the draft, if there is one, to a store that never fails.
fn store(tracked: &mut TrackedKeys, stored: &mut Option<KeyJournal>, now: Moment) -> bool {
    let Some(draft) = tracked.draft_journal(stored.as_ref(), now) else {
        return false;
    };
    tracked.note_written(&draft, now);
    *stored = Some(draft.journal().clone());
    true
}

/// The tracked keys whose first key set has been recorded, and the stored journal.
fn world_with_active_keys() -> (TrackedKeys, Option<KeyJournal>) {
    let (mut tracked, mut stored) = (tracked(true), None);
    tracked.adopt_none(at(0));
    tracked.apply_reading(&reading(&[&[Rs256]]), true, at(0));
    assert!(store(&mut tracked, &mut stored, at(1)));
    (tracked, stored)
}
