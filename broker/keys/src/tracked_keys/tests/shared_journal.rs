//! What a replica adopts from the key journal, and how replicas that write to it agree.

use std::time::Duration;

use keyferry_api::moment::Moment;

use super::{ACTIVATION_DELAY, at, kids, reading, store, tracked, world_with_active_keys};
use crate::jwt::SigningAlgorithm::{Es256, Rs256};
use crate::tracked_keys::{KeyActivation, KeyEvent, Origin};

#[test]
fn another_replica_adopts_what_the_record_says() {
    let (_, stored) = world_with_active_keys();
    let mut other = tracked(true);
    assert!(!other.is_current(at(50)));
    other.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(50));
    assert!(other.is_current(at(80)) && !other.is_current(at(81)));
    assert_eq!(kids(&other, at(50)), ["RS256"]);
    assert_eq!(
        (
            other.unconfirmed_keys(at(50)),
            other.authenticating_keys(at(50)).len()
        ),
        (1, 0),
        "the hub did not show it to this process"
    );
    other.apply_reading(&reading(&[&[Rs256]]), false, at(51));
    assert_eq!(
        (
            other.unconfirmed_keys(at(51)),
            other.authenticating_keys(at(51)).len()
        ),
        (0, 1)
    );
    assert_eq!(other.activation("RS256", at(51)), KeyActivation::Active);
    assert_eq!(other.draft_journal(stored.as_ref(), at(52)), None);
}

#[test]
fn an_unconfirmed_key_is_served_no_longer_than_a_token_lives() {
    let (_, stored) = world_with_active_keys();
    let mut other = tracked(true);
    other.adopt_journal(&stored.unwrap(), Origin::StateDirectory, at(50));
    assert_eq!(kids(&other, at(86_399)), ["RS256"]);
    assert_eq!(other.published_keys(at(86_401)), None);
}

#[test]
fn what_a_replica_publishes_reaches_the_others_and_is_active_by_its_write() {
    let (mut one, mut stored) = world_with_active_keys();
    let mut two = tracked(true);
    two.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(50));
    two.apply_reading(&reading(&[&[Rs256]]), false, at(50));
    one.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(60));
    one.publish_signing_key("ES256", at(60));
    store(&mut one, &mut stored, at(60));
    assert_eq!(
        two.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(68)),
        vec![KeyEvent::Published("ES256".to_owned())]
    );
    assert_eq!(
        two.activation("ES256", at(68)),
        KeyActivation::After(ACTIVATION_DELAY - Duration::from_secs(8))
    );
    // The leader withdraws and retires; the other follows.
    one.apply_reading(&reading(&[&[Es256]]), true, at(240));
    one.apply_reading(&reading(&[&[Es256]]), true, at(300));
    store(&mut one, &mut stored, at(300));
    two.apply_reading(&reading(&[&[Es256]]), false, at(301));
    assert_eq!(
        two.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(302)),
        vec![KeyEvent::Retired("RS256".to_owned())]
    );
    assert_eq!(kids(&two, at(302)), ["ES256"]);
}

#[test]
fn alone_the_state_directory_tells_what_was() {
    let mut one = tracked(false);
    one.apply_reading(&reading(&[&[Rs256]]), true, at(0));
    assert_eq!(
        one.activation("RS256", at(0)),
        KeyActivation::Active,
        "nobody published before"
    );
    one.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(500));
    one.publish_signing_key("ES256", at(500));
    let state = one.draft_journal(None, at(510)).unwrap().journal().clone();
    let mut next = tracked(false);
    next.adopt_journal(&state, Origin::StateDirectory, at(520));
    next.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(521));
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
        tracked.apply_reading(&reading(&[&[Es256]]), true, at(second));
    }
    assert_eq!(kids(&tracked, at(175)), ["ES256"]);
    // The journal still contains the key, and is read before it is written.
    let events = tracked.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(180));
    assert_eq!(
        (events, kids(&tracked, at(180))),
        (vec![], vec!["ES256".to_owned()])
    );
    assert!(store(&mut tracked, &mut stored, at(181)));
    assert!(!stored.as_ref().unwrap().keys.contains_key("RS256"));
    assert_eq!(
        tracked.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(190)),
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
    tracked.note_signature("RS256", at(100).wall, at(4000).wall);
    for second in [100, 115, 175] {
        tracked.apply_reading(&reading(&[&[Es256]]), true, at(second));
    }
    for round in 0_u64..60 {
        let now = at(200 + 600 * round);
        tracked.note_signature("ES256", now.wall, at(200 + 600 * round + 3600).wall);
        store(&mut tracked, &mut stored, now);
        tracked.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, now);
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
    other.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, behind(50));
    other.apply_reading(&reading(&[&[Rs256]]), false, behind(50));
    other.apply_reading(&reading(&[&[Rs256, Es256]]), false, behind(100));
    ahead.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(100));
    other.publish_signing_key("ES256", behind(100));
    assert!(store(&mut other, &mut stored, behind(101)));
    let mut writes = 0;
    for round in 0..20 {
        let second = 105 + 10 * round;
        for (tracked, now) in [(&mut ahead, at(second)), (&mut other, behind(second))] {
            tracked.apply_reading(&reading(&[&[Rs256, Es256]]), false, now);
            assert_eq!(
                tracked
                    .adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, now)
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

/// Who starts believes the time in the journal, so it must not be that of a clock that jumped back.
#[test]
fn a_clock_that_jumps_back_dates_no_key_back() {
    let (mut wrong, mut stored) = world_with_active_keys();
    let half_a_day_back = |seconds: u64| Moment {
        wall: at(seconds).wall - Duration::from_secs(43_200),
        mono: at(seconds).mono,
    };
    wrong.apply_reading(&reading(&[&[Rs256, Es256]]), false, half_a_day_back(100));
    wrong.publish_signing_key("ES256", half_a_day_back(100));
    assert!(store(&mut wrong, &mut stored, half_a_day_back(101)));
    let mut other = tracked(true);
    other.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(110));
    other.apply_reading(&reading(&[&[Rs256, Es256]]), false, at(110));
    assert_eq!(
        other.activation("ES256", at(110)),
        KeyActivation::After(ACTIVATION_DELAY - Duration::from_secs(9))
    );
}

#[test]
fn who_read_the_record_long_ago_does_not_rewrite_it_before_others_could() {
    let (mut one, mut stored) = world_with_active_keys();
    let mut two = tracked(true);
    two.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(50));
    one.apply_reading(&reading(&[&[Rs256, Es256]]), true, at(60));
    one.publish_signing_key("ES256", at(60));
    store(&mut one, &mut stored, at(60));

    // What the second one would write lacks a key that is about to sign.
    let broken = stored.clone().unwrap();
    two.adopt_journal(&broken, Origin::Unsealed, at(81));
    assert!(!two.is_current(at(81)));
    assert_eq!(two.draft_journal(None, at(81)), None);
    one.adopt_journal(&broken, Origin::Unsealed, at(82));
    stored = None;
    assert!(store(&mut one, &mut stored, at(82)));
    two.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(83));
    assert_eq!(kids(&two, at(83)), ["ES256", "RS256"]);

    // Nobody else has rewritten it, or restored it after somebody deleted it.
    let mut gone = two.clone();
    two.adopt_journal(&broken, Origin::Unsealed, at(114));
    gone.adopt_none(at(114));
    for waiting in [&mut two, &mut gone] {
        assert_eq!(waiting.draft_journal(None, at(114)), None);
    }
    two.adopt_journal(&broken, Origin::Unsealed, at(145));
    gone.adopt_none(at(145));
    for waiting in [&mut two, &mut gone] {
        assert!(waiting.is_current(at(145)));
        assert!(waiting.draft_journal(None, at(145)).is_some());
    }
}
