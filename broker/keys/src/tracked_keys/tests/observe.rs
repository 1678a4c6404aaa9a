//! When a key that the hub lists is published and active, and when a missing one is withdrawn.

use std::time::Duration;

use keyferry_api::moment::Moment;

use super::{ACTIVATION_DELAY, at, key, kids, reading, store, tracked, world_with_active_keys};
use crate::jwks::PublicKeySet;
use crate::jwt::SigningAlgorithm::{self, Es256, Rs256};
use crate::testing as test_keys;
use crate::tracked_keys::{KeyActivation, KeyEvent, Reading};

#[test]
fn the_first_set_is_active_once_it_is_recorded() {
    let mut tracked = tracked(true);
    assert_eq!(tracked.published_keys(at(0)), None);
    tracked.adopt_none(at(0));
    assert_eq!(
        tracked.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(0)),
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
    tracked.apply_reading(&reading(&[&[Rs256]]), true, at(0));
    tracked.adopt_none(at(5));
    store(&mut tracked, &mut None, at(5));
    assert_eq!(tracked.activation("RS256", at(5)), KeyActivation::Active);
}

#[test]
fn a_new_key_is_active_only_after_its_delay_whatever_the_wall_clock_does() {
    let (mut tracked, mut stored) = world_with_active_keys();
    let both = reading(&[&[Rs256, Es256]]);
    assert_eq!(
        tracked.apply_reading(&both, true, at(100)),
        vec![],
        "seen once"
    );
    assert_eq!(kids(&tracked, at(100)), ["RS256"]);
    assert_eq!(
        tracked.apply_reading(&both, true, at(115)),
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
    assert_eq!(
        tracked.publish_signing_key("ES256", at(10)),
        vec![],
        "not listed"
    );
    tracked.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(10));
    assert_eq!(
        tracked.publish_signing_key("ES256", at(10)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(tracked.publish_signing_key("ES256", at(11)), vec![]);
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
            tracked.apply_reading(&reading, true, at(100 + 15 * round)),
            vec![]
        );
    }
    assert_eq!(kids(&tracked, at(1000)), ["RS256"]);
}

#[test]
fn a_lagging_endpoint_makes_nothing_flap() {
    let (mut tracked, _) = world_with_active_keys();
    tracked.note_signature("RS256", at(100).wall, at(5000).wall);
    for round in 0_u64..10 {
        tracked.apply_reading(&reading(&[&[Rs256], &[Es256]]), true, at(100 + 15 * round));
    }
    assert_eq!(kids(&tracked, at(300)), ["ES256", "RS256"]);
}

#[test]
fn a_withdrawn_key_is_held_while_a_token_lives_and_not_longer() {
    let (mut tracked, mut stored) = world_with_active_keys();
    tracked.note_signature("RS256", at(100).wall, at(4000).wall);
    let without = reading(&[&[Es256]]);
    assert_eq!(
        tracked.apply_reading(&without, false, at(100)),
        vec![],
        "who does not lead withdraws nothing"
    );
    assert_eq!(
        tracked.apply_reading(&without, true, at(115)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        tracked.apply_reading(&without, true, at(174)),
        vec![],
        "it may be another apiserver that answers next time"
    );
    assert_eq!(
        tracked.apply_reading(&without, true, at(175)),
        vec![KeyEvent::Withdrawn("RS256".to_owned())]
    );
    store(&mut tracked, &mut stored, at(176));
    // Half a day ahead, by a wall clock that jumps.
    let ahead = Moment {
        wall: at(43_200).wall,
        mono: at(200).mono,
    };
    assert_eq!(tracked.apply_reading(&without, true, ahead), vec![]);
    assert_eq!(kids(&tracked, ahead), ["ES256", "RS256"]);
    assert_eq!(kids(&tracked, at(3999)), ["ES256", "RS256"]);
    assert_eq!(kids(&tracked, at(4000)), ["ES256"]);
    assert_eq!(
        tracked.apply_reading(&without, true, at(4001)),
        vec![KeyEvent::Retired("RS256".to_owned())]
    );

    let (mut unused, _) = world_with_active_keys();
    assert_eq!(
        unused.apply_reading(&without, true, at(100)),
        vec![],
        "not as long as there is no other"
    );
    assert_eq!(kids(&unused, at(100)), ["RS256"]);
    unused.apply_reading(&without, true, at(115));
    let events = unused.apply_reading(&without, true, at(175));
    assert!(
        events.contains(&KeyEvent::Retired("RS256".to_owned())),
        "nobody needs it: {events:?}"
    );
}

/// The monotonic clock stands still while a machine sleeps, and what the hub did meanwhile counts.
#[test]
fn after_a_sleep_a_key_is_withdrawn_as_soon_as_before() {
    let (mut tracked, _) = world_with_active_keys();
    tracked.note_signature("RS256", at(100).wall, at(100_000).wall);
    let awake = |seconds: u64| Moment {
        wall: at(seconds + 30_000).wall,
        mono: at(seconds).mono,
    };
    tracked.apply_reading(&reading(&[&[Rs256, Es256]]), true, awake(100));
    tracked.publish_signing_key("ES256", awake(100));
    let without = reading(&[&[Es256]]);
    assert_eq!(tracked.apply_reading(&without, true, awake(115)), vec![]);
    assert_eq!(
        tracked.apply_reading(&without, true, awake(175)),
        vec![KeyEvent::Withdrawn("RS256".to_owned())]
    );
}

#[test]
fn behind_a_load_balancer_nothing_flaps() {
    let (mut tracked, _) = world_with_active_keys();
    tracked.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(100));
    tracked.publish_signing_key("ES256", at(100));
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
            tracked.apply_reading(&reading, true, at(115 + 15 * round)),
            vec![]
        );
    }
}

#[test]
fn a_silent_endpoint_withdraws_nothing() {
    let (mut tracked, _) = world_with_active_keys();
    let mut partial = reading(&[&[Es256]]);
    partial.silent = 1;
    tracked.apply_reading(&partial, true, at(100));
    assert_eq!(
        tracked.apply_reading(&partial, true, at(115)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        tracked.apply_reading(
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
    let before = tracked.published_keys(at(10)).unwrap().to_bytes();
    assert_eq!(
        tracked.apply_reading(&both, true, at(10)),
        vec![KeyEvent::Replaced("RS256".to_owned())]
    );
    assert_eq!(tracked.published_keys(at(10)).unwrap().to_bytes(), before);
}
