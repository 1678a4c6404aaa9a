#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;

use super::{KeyActivation, KeyEvent, Origin, Reading, TrackedKeys};
use crate::jwks::{PublicKey, PublicKeySet};
use crate::jwt::SigningAlgorithm::{self, Es256, Es384, Rs256};
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
    )
}

fn kids(tracked: &TrackedKeys, now: Moment) -> Vec<String> {
    tracked
        .served(now)
        .map(|set| set.kids().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Writes the draft, if there is one, to a store that never fails.
fn store(tracked: &mut TrackedKeys, stored: &mut Option<KeyJournal>, now: Moment) -> bool {
    let Some(draft) = tracked.draft(stored.as_ref(), now) else {
        return false;
    };
    tracked.written(&draft, now);
    *stored = Some(draft.journal().clone());
    true
}

/// The tracked keys whose first key set has been recorded, and the stored journal.
fn world_with_active_keys() -> (TrackedKeys, Option<KeyJournal>) {
    let (mut tracked, mut stored) = (tracked(true), None);
    tracked.adopt_none(at(0));
    tracked.observe(&reading(&[&[Rs256]]), true, at(0));
    assert!(store(&mut tracked, &mut stored, at(1)));
    (tracked, stored)
}

#[test]
fn the_first_set_is_active_once_it_is_recorded() {
    let mut tracked = tracked(true);
    assert_eq!(tracked.served(at(0)), None);
    tracked.adopt_none(at(0));
    assert_eq!(
        tracked.observe(&reading(&[&[Rs256, Es256]]), true, at(0)),
        vec![
            KeyEvent::Published("ES256".to_owned()),
            KeyEvent::Published("RS256".to_owned())
        ]
    );
    assert_eq!(
        tracked.activation("RS256", at(0)),
        KeyActivation::After(ACTIVATION_DELAY),
        "no other replica can know it yet"
    );
    let mut stored = None;
    assert!(store(&mut tracked, &mut stored, at(1)));
    assert_eq!(tracked.activation("RS256", at(1)), KeyActivation::Active);
    assert!(
        !store(&mut tracked, &mut stored, at(2)),
        "nothing new is nothing to write"
    );
    assert_eq!(
        tracked.activation("nobody", at(1)),
        KeyActivation::Unpublished
    );
}

#[test]
fn the_hub_seen_before_the_record_makes_no_difference() {
    let mut tracked = tracked(true);
    tracked.observe(&reading(&[&[Rs256]]), true, at(0));
    tracked.adopt_none(at(5));
    store(&mut tracked, &mut None, at(5));
    assert_eq!(tracked.activation("RS256", at(5)), KeyActivation::Active);
}

#[test]
fn a_new_key_is_active_only_after_its_delay_whatever_the_wall_clock_does() {
    let (mut tracked, mut stored) = world_with_active_keys();
    let both = reading(&[&[Rs256, Es256]]);
    assert_eq!(tracked.observe(&both, true, at(100)), vec![], "seen once");
    assert_eq!(kids(&tracked, at(100)), ["RS256"]);
    assert_eq!(
        tracked.observe(&both, true, at(115)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        tracked.activation("ES256", at(500)),
        KeyActivation::After(ACTIVATION_DELAY),
        "not recorded"
    );
    store(&mut tracked, &mut stored, at(120));
    assert_eq!(
        tracked.activation("ES256", at(120 + 119)),
        KeyActivation::After(Duration::from_secs(1))
    );
    let jumped = Moment {
        wall: at(100_000).wall,
        mono: Duration::from_secs(130),
    };
    assert_eq!(
        tracked.activation("ES256", jumped),
        KeyActivation::After(Duration::from_secs(110))
    );
    assert_eq!(tracked.activation("ES256", at(240)), KeyActivation::Active);
}

#[test]
fn a_token_that_the_hub_signed_vouches_for_a_key_that_it_lists() {
    let (mut tracked, _) = world_with_active_keys();
    assert_eq!(tracked.vouch("ES256", at(10)), vec![], "not listed");
    tracked.observe(&reading(&[&[Rs256, Es256]]), true, at(10));
    assert_eq!(
        tracked.vouch("ES256", at(10)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(tracked.vouch("ES256", at(11)), vec![]);
}

#[test]
fn a_key_that_flashes_up_once_is_never_published() {
    let (mut tracked, _) = world_with_active_keys();
    for round in 0_u64..20 {
        let flash: &[SigningAlgorithm] = if round % 2 == 0 {
            &[Rs256, Es256]
        } else {
            &[Rs256]
        };
        let mut reading = reading(&[flash, &[Rs256]]);
        // The other endpoint comes and goes: that must not keep the candidate alive.
        if round % 3 == 0 {
            reading.answered.pop();
            reading.silent = 1;
        }
        assert_eq!(
            tracked.observe(&reading, true, at(100 + 15 * round)),
            vec![]
        );
    }
    assert_eq!(kids(&tracked, at(1000)), ["RS256"]);
}

#[test]
fn a_lagging_endpoint_makes_nothing_flap() {
    let (mut tracked, _) = world_with_active_keys();
    tracked.signed("RS256", at(100).wall, at(5000).wall);
    for round in 0_u64..10 {
        tracked.observe(&reading(&[&[Rs256], &[Es256]]), true, at(100 + 15 * round));
    }
    assert_eq!(kids(&tracked, at(300)), ["ES256", "RS256"]);
}

#[test]
fn a_withdrawn_key_is_held_while_a_token_lives_and_not_longer() {
    let (mut tracked, mut stored) = world_with_active_keys();
    tracked.signed("RS256", at(100).wall, at(4000).wall);
    let without = reading(&[&[Es256]]);
    assert_eq!(
        tracked.observe(&without, false, at(100)),
        vec![],
        "who does not lead withdraws nothing"
    );
    assert_eq!(
        tracked.observe(&without, true, at(115)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        tracked.observe(&without, true, at(174)),
        vec![],
        "it may be another apiserver that answers next time"
    );
    assert_eq!(
        tracked.observe(&without, true, at(175)),
        vec![KeyEvent::Withdrawn("RS256".to_owned())]
    );
    store(&mut tracked, &mut stored, at(176));
    assert_eq!(kids(&tracked, at(3999)), ["ES256", "RS256"]);
    assert_eq!(kids(&tracked, at(4000)), ["ES256"]);
    assert_eq!(
        tracked.observe(&without, true, at(4001)),
        vec![KeyEvent::Retired("RS256".to_owned())]
    );

    let (mut unused, _) = world_with_active_keys();
    assert_eq!(
        unused.observe(&without, true, at(100)),
        vec![],
        "not as long as there is no other"
    );
    assert_eq!(kids(&unused, at(100)), ["RS256"]);
    unused.observe(&without, true, at(115));
    let events = unused.observe(&without, true, at(175));
    assert!(
        events.contains(&KeyEvent::Retired("RS256".to_owned())),
        "nobody needs it: {events:?}"
    );
}

#[test]
fn behind_a_load_balancer_nothing_flaps() {
    let (mut tracked, _) = world_with_active_keys();
    tracked.observe(&reading(&[&[Rs256, Es256]]), true, at(100));
    tracked.vouch("ES256", at(100));
    for round in 0_u64..40 {
        let lagging = round % 4 != 0;
        let answer: &[SigningAlgorithm] = if lagging { &[Rs256] } else { &[Rs256, Es256] };
        let reading = Reading {
            answered: vec![(
                "the one address".to_owned(),
                PublicKeySet::from_keys(answer.iter().map(|one| key(*one))).unwrap(),
            )],
            silent: 0,
        };
        assert_eq!(
            tracked.observe(&reading, true, at(115 + 15 * round)),
            vec![]
        );
    }
}

#[test]
fn a_silent_endpoint_withdraws_nothing() {
    let (mut tracked, _) = world_with_active_keys();
    let mut partial = reading(&[&[Es256]]);
    partial.silent = 1;
    tracked.observe(&partial, true, at(100));
    assert_eq!(
        tracked.observe(&partial, true, at(115)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        tracked.observe(
            &Reading {
                answered: Vec::new(),
                silent: 2
            },
            true,
            at(130)
        ),
        vec![]
    );
    assert_eq!(
        kids(&tracked, at(100_000)),
        ["ES256", "RS256"],
        "the last good set of a running process has no age limit"
    );
}

#[test]
fn other_bytes_under_a_known_kid_are_not_published() {
    let (mut tracked, _) = world_with_active_keys();
    let mut entry = test_keys::key(Es256).entry();
    entry["kid"] = "RS256".into();
    let bytes = serde_json::to_vec(&serde_json::json!({ "keys": [entry] })).unwrap();
    let (rogue, _) =
        PublicKeySet::from_upstream(&bytes, crate::jwks::KeySetLimits::default()).unwrap();
    let mut both = reading(&[&[Rs256]]);
    both.answered.push(("rogue".to_owned(), rogue));
    let before = tracked.served(at(10)).unwrap().to_bytes();
    assert_eq!(
        tracked.observe(&both, true, at(10)),
        vec![KeyEvent::Replaced("RS256".to_owned())]
    );
    assert_eq!(tracked.served(at(10)).unwrap().to_bytes(), before);
}

#[test]
fn another_replica_adopts_what_the_record_says() {
    let (_, stored) = world_with_active_keys();
    let mut other = tracked(true);
    assert!(!other.is_current(at(50)));
    other.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(50));
    assert!(other.is_current(at(80)) && !other.is_current(at(81)));
    assert_eq!(kids(&other, at(50)), ["RS256"]);
    assert_eq!(
        (
            other.unconfirmed(at(50)),
            other.authenticating(at(50)).len()
        ),
        (1, 0),
        "the hub did not show it to this process"
    );
    other.observe(&reading(&[&[Rs256]]), false, at(51));
    assert_eq!(
        (
            other.unconfirmed(at(51)),
            other.authenticating(at(51)).len()
        ),
        (0, 1)
    );
    assert_eq!(other.activation("RS256", at(51)), KeyActivation::Active);
    assert_eq!(other.draft(stored.as_ref(), at(52)), None);
}

#[test]
fn an_unconfirmed_key_is_served_no_longer_than_a_token_lives() {
    let (_, stored) = world_with_active_keys();
    let mut other = tracked(true);
    other.adopt(&stored.unwrap(), Origin::StateDirectory, at(50));
    assert_eq!(kids(&other, at(86_399)), ["RS256"]);
    assert_eq!(other.served(at(86_401)), None);
}

#[test]
fn what_a_replica_publishes_reaches_the_others_and_is_active_by_its_write() {
    let (mut one, mut stored) = world_with_active_keys();
    let mut two = tracked(true);
    two.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(50));
    two.observe(&reading(&[&[Rs256]]), false, at(50));
    one.observe(&reading(&[&[Rs256, Es256]]), true, at(60));
    one.vouch("ES256", at(60));
    store(&mut one, &mut stored, at(60));
    assert_eq!(
        two.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(68)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        two.activation("ES256", at(68)),
        KeyActivation::After(ACTIVATION_DELAY - Duration::from_secs(8))
    );
    // The leader withdraws and retires; the other follows.
    one.observe(&reading(&[&[Es256]]), true, at(240));
    one.observe(&reading(&[&[Es256]]), true, at(300));
    store(&mut one, &mut stored, at(300));
    two.observe(&reading(&[&[Es256]]), false, at(301));
    assert_eq!(
        two.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(302)),
        vec![KeyEvent::Retired("RS256".to_owned())]
    );
    assert_eq!(kids(&two, at(302)), ["ES256"]);
}

#[test]
fn a_revoked_key_goes_at_once_and_never_comes_back() {
    let (mut tracked, stored) = world_with_active_keys();
    let before = stored.clone().unwrap();
    let revoked = before.with_revoked("RS256", at(10).wall).unwrap();
    assert_eq!(
        tracked.adopt(&revoked, Origin::Sealed, at(11)),
        vec![KeyEvent::Revoked("RS256".to_owned())]
    );
    assert_eq!(tracked.activation("RS256", at(11)), KeyActivation::Revoked);
    assert!(
        tracked.served(at(11)).unwrap().is_empty(),
        "an empty set, by hand alone"
    );
    for round in 0..5 {
        let events = tracked.observe(&reading(&[&[Rs256]]), true, at(20 + 15 * round));
        assert_eq!(events, vec![KeyEvent::RevokedListed("RS256".to_owned())]);
    }
    assert_eq!(
        tracked.adopt(&before, Origin::Sealed, at(200)),
        vec![KeyEvent::RecordRolledBack],
        "a record from before"
    );
    assert!(tracked.served(at(200)).unwrap().is_empty());
    let again = tracked.draft(Some(&before), at(201)).unwrap();
    assert!(
        again.journal().revoked.contains_key("RS256")
            && again.journal().sequence > revoked.sequence
    );
}

#[test]
fn a_forged_record_changes_nothing_but_raises_the_alarm() {
    let (mut tracked, stored) = world_with_active_keys();
    let good = stored.unwrap();
    let bytes = |tracked: &TrackedKeys| tracked.served(at(20)).unwrap().to_bytes();
    let before = bytes(&tracked);
    let mut rogue = good.clone();
    let mut record = rogue.keys["RS256"].clone();
    record.key = key(Es256);
    rogue.keys.insert("ES256".to_owned(), record);
    rogue.sequence += 1;
    assert!(matches!(
        tracked.adopt(&rogue, Origin::Unsealed, at(20)).as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(bytes(&tracked), before);
    assert!(
        tracked.draft(Some(&rogue), at(20)).is_some(),
        "it is written anew"
    );

    let mut dated_back = good.clone();
    dated_back.keys.get_mut("RS256").unwrap().published_at =
        Timestamp::from_second(START - 3600).unwrap();
    assert!(matches!(
        tracked
            .adopt(&dated_back, Origin::Sealed, at(20))
            .as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert!(tracked.draft(Some(&dated_back), at(20)).is_some());

    let mut elsewhere = good;
    elsewhere.issuer = Issuer::new("https://other.example.test").unwrap();
    assert!(matches!(
        tracked.adopt(&elsewhere, Origin::Sealed, at(20)).as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(bytes(&tracked), before);
}

#[test]
fn a_new_key_cannot_have_been_published_before_it_was_last_seen_missing() {
    let (mut tracked, stored) = world_with_active_keys();
    tracked.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(100));
    let mut record = stored.unwrap();
    let mut early = record.keys["RS256"].clone();
    early.key = key(Es384);
    early.published_at = at(5).wall;
    early.first = true;
    record.keys.insert("ES384".to_owned(), early);
    record.sequence += 1;
    let events = tracked.adopt(&record, Origin::Sealed, at(110));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, KeyEvent::RecordTampered(_))),
        "{events:?}"
    );
    assert_eq!(
        tracked.activation("ES384", at(110)),
        KeyActivation::After(ACTIVATION_DELAY)
    );
}

#[test]
fn a_deleted_record_is_written_anew_and_deactivates_no_key() {
    let (mut tracked, _) = world_with_active_keys();
    assert_eq!(
        tracked.adopt_none(at(50)),
        vec![KeyEvent::RecordTampered("it is gone")]
    );
    assert_eq!(tracked.activation("RS256", at(50)), KeyActivation::Active);
    let mut stored = None;
    assert!(store(&mut tracked, &mut stored, at(51)));
    assert_eq!(stored.unwrap().keys["RS256"].published_at, at(1).wall);
}

#[test]
fn alone_the_state_directory_tells_what_was() {
    let mut one = tracked(false);
    one.observe(&reading(&[&[Rs256]]), true, at(0));
    assert_eq!(
        one.activation("RS256", at(0)),
        KeyActivation::Active,
        "nobody published before"
    );
    one.observe(&reading(&[&[Rs256, Es256]]), true, at(500));
    one.vouch("ES256", at(500));
    let state = one.draft(None, at(510)).unwrap().journal().clone();
    let mut next = tracked(false);
    next.adopt(&state, Origin::StateDirectory, at(520));
    next.observe(&reading(&[&[Rs256, Es256]]), true, at(521));
    assert_eq!(next.activation("RS256", at(521)), KeyActivation::Active);
    assert_eq!(
        next.activation("ES256", at(521)),
        KeyActivation::After(Duration::from_secs(99))
    );
}

#[test]
fn what_was_retired_is_not_brought_back_by_the_record() {
    let (mut tracked, mut stored) = world_with_active_keys();
    for second in [100, 115, 130, 175] {
        tracked.observe(&reading(&[&[Es256]]), true, at(second));
    }
    assert_eq!(kids(&tracked, at(175)), ["ES256"]);
    // The journal still contains the key, and is read before it is written.
    let events = tracked.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(180));
    assert_eq!(
        (events, kids(&tracked, at(180))),
        (vec![], vec!["ES256".to_owned()])
    );
    assert!(store(&mut tracked, &mut stored, at(181)));
    assert!(!stored.as_ref().unwrap().keys.contains_key("RS256"));
    assert_eq!(
        tracked.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(190)),
        vec![]
    );
    assert!(
        !store(&mut tracked, &mut stored, at(191)),
        "and that is the end of it"
    );
}

#[test]
fn a_held_key_is_held_for_its_tokens_and_no_longer_however_often_the_record_is_written() {
    let (mut tracked, mut stored) = world_with_active_keys();
    tracked.signed("RS256", at(100).wall, at(4000).wall);
    for second in [100, 115, 175] {
        tracked.observe(&reading(&[&[Es256]]), true, at(second));
    }
    for round in 0_u64..60 {
        let now = at(200 + 600 * round);
        tracked.signed("ES256", now.wall, at(200 + 600 * round + 3600).wall);
        store(&mut tracked, &mut stored, now);
        tracked.adopt(stored.as_ref().unwrap(), Origin::Sealed, now);
    }
    let stored = stored.unwrap();
    assert_eq!(
        stored.keys["RS256"].signed_until,
        Some(at(4600).wall),
        "rounded up once"
    );
    assert_eq!(stored.keys["RS256"].signed_since, Some(at(100).wall));
    assert_eq!(
        stored.keys["ES256"].signed_since,
        Some(at(200).wall),
        "the first token counts, in whatever replica it was seen"
    );
    assert_eq!(kids(&tracked, at(4600)), ["ES256"]);
}

#[test]
fn replicas_whose_clocks_differ_agree_in_the_end() {
    let (mut ahead, mut stored) = world_with_active_keys();
    // 20 s behind, on its own clock.
    let behind = |seconds: u64| Moment {
        wall: at(seconds - 20).wall,
        mono: at(seconds).mono,
    };
    let mut other = tracked(true);
    other.adopt(stored.as_ref().unwrap(), Origin::Sealed, behind(50));
    other.observe(&reading(&[&[Rs256]]), false, behind(50));
    other.observe(&reading(&[&[Rs256, Es256]]), false, behind(100));
    ahead.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(100));
    other.vouch("ES256", behind(100));
    assert!(store(&mut other, &mut stored, behind(101)));
    let mut writes = 0;
    for round in 0..20 {
        let second = 105 + 10 * round;
        for (tracked, now) in [(&mut ahead, at(second)), (&mut other, behind(second))] {
            tracked.observe(&reading(&[&[Rs256, Es256]]), false, now);
            assert_eq!(
                tracked
                    .adopt(stored.as_ref().unwrap(), Origin::Sealed, now)
                    .iter()
                    .filter(|event| matches!(event, KeyEvent::RecordTampered(_)))
                    .count(),
                0
            );
            writes += usize::from(store(tracked, &mut stored, now));
        }
    }
    assert!(writes <= 2, "{writes} writes of what nobody changed");
}

#[test]
fn nothing_of_the_hub_is_served_before_it_is_known_what_was_revoked() {
    let (_, stored) = world_with_active_keys();
    let revoked = stored.unwrap().with_revoked("RS256", at(10).wall).unwrap();
    let mut fresh = tracked(true);
    fresh.observe(&reading(&[&[Rs256, Es256]]), false, at(50));
    assert_eq!(fresh.served(at(50)), None);
    assert!(matches!(
        fresh.adopt(&revoked, Origin::Unsealed, at(51)).as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(
        (
            fresh.served(at(51)),
            fresh.is_current(at(51)),
            fresh.draft(None, at(51))
        ),
        (None, false, None),
        "nor from what is not believed"
    );
    fresh.adopt(&revoked, Origin::Sealed, at(60));
    assert_eq!(kids(&fresh, at(60)), ["ES256"]);
}

#[test]
fn a_state_directory_is_no_word_to_other_replicas() {
    let (_, stored) = world_with_active_keys();
    let mut rogue = stored.clone().unwrap();
    let mut record = rogue.keys["RS256"].clone();
    record.key = key(Es384);
    record.confirmed_at = at(1_000_000).wall;
    rogue.keys.insert("ES384".to_owned(), record);
    let mut tracked = tracked(true);
    tracked.adopt(&rogue, Origin::StateDirectory, at(50));
    tracked.adopt(stored.as_ref().unwrap(), Origin::Sealed, at(51));
    tracked.observe(&reading(&[&[Rs256]]), true, at(52));
    assert!(
        tracked
            .draft(stored.as_ref(), at(53))
            .is_none_or(|draft| !draft.journal().keys.contains_key("ES384"))
    );
    assert_eq!(
        kids(&tracked, at(50 + 86_400)),
        ["RS256"],
        "not even a confirmation in the future keeps it"
    );
}

#[test]
fn after_a_revocation_no_set_is_the_first_one() {
    let (mut tracked, stored) = world_with_active_keys();
    tracked.adopt(
        &stored.unwrap().with_revoked("RS256", at(10).wall).unwrap(),
        Origin::Sealed,
        at(11),
    );
    tracked.observe(&reading(&[&[Es256]]), true, at(20));
    store(&mut tracked, &mut None, at(21));
    assert!(matches!(
        tracked.activation("ES256", at(21)),
        KeyActivation::After(_)
    ));
}
