//! Revoked keys, and key journals that are forged, deleted or rolled back.

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;

use super::{
    ACTIVATION_DELAY, START, at, key, kids, reading, store, tracked, world_with_active_keys,
};
use crate::jwt::SigningAlgorithm::{Es256, Es384, Rs256};
use crate::tracked_keys::{KeyActivation, KeyEvent, Origin, TrackedKeys};

#[test]
fn a_revoked_key_goes_at_once_and_never_comes_back() {
    let (mut tracked, stored) = world_with_active_keys();
    let before = stored.clone().unwrap();
    let revoked = before.with_revoked("RS256", at(10).wall).unwrap();
    assert_eq!(
        tracked.adopt_journal(&revoked, Origin::Sealed, at(11)),
        vec![KeyEvent::Revoked("RS256".to_owned())]
    );
    assert_eq!(tracked.activation("RS256", at(11)), KeyActivation::Revoked);
    assert!(
        tracked.published_keys(at(11)).unwrap().is_empty(),
        "an empty set, by hand alone"
    );
    for round in 0..5 {
        let events = tracked.apply_reading(&reading(&[&[Rs256]]), true, at(20 + 15 * round));
        assert_eq!(events, vec![KeyEvent::RevokedListed("RS256".to_owned())]);
    }
    assert_eq!(
        tracked.adopt_journal(&before, Origin::Sealed, at(200)),
        vec![KeyEvent::RecordRolledBack],
        "a record from before"
    );
    assert!(tracked.published_keys(at(200)).unwrap().is_empty());
    let again = tracked.draft_journal(Some(&before), at(201)).unwrap();
    assert!(
        again.journal().revoked.contains_key("RS256")
            && again.journal().sequence > revoked.sequence
    );
}

#[test]
fn a_forged_record_changes_nothing_but_raises_the_alarm() {
    let (mut tracked, stored) = world_with_active_keys();
    let good = stored.unwrap();
    let bytes = |tracked: &TrackedKeys| tracked.published_keys(at(20)).unwrap().to_bytes();
    let before = bytes(&tracked);
    let mut rogue = good.clone();
    let mut record = rogue.keys["RS256"].clone();
    record.key = key(Es256);
    rogue.keys.insert("ES256".to_owned(), record);
    rogue.sequence += 1;
    assert!(matches!(
        tracked
            .adopt_journal(&rogue, Origin::Unsealed, at(20))
            .as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(bytes(&tracked), before);
    assert!(
        tracked.draft_journal(Some(&rogue), at(20)).is_some(),
        "it is written again"
    );

    let mut dated_back = good.clone();
    dated_back.keys.get_mut("RS256").unwrap().published_at =
        Timestamp::from_second(START - 3600).unwrap();
    assert!(matches!(
        tracked
            .adopt_journal(&dated_back, Origin::Sealed, at(20))
            .as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert!(tracked.draft_journal(Some(&dated_back), at(20)).is_some());

    let mut elsewhere = good;
    elsewhere.issuer = Issuer::new("https://other.example.test").unwrap();
    assert!(matches!(
        tracked
            .adopt_journal(&elsewhere, Origin::Sealed, at(20))
            .as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(bytes(&tracked), before);
}

#[test]
fn a_new_key_cannot_have_been_published_before_it_was_last_seen_missing() {
    let (mut tracked, stored) = world_with_active_keys();
    tracked.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(100));
    let mut record = stored.unwrap();
    let mut early = record.keys["RS256"].clone();
    early.key = key(Es384);
    early.published_at = at(5).wall;
    early.first = true;
    record.keys.insert("ES384".to_owned(), early);
    record.sequence += 1;
    let events = tracked.adopt_journal(&record, Origin::Sealed, at(110));
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
fn a_deleted_record_is_written_again_and_deactivates_no_key() {
    let (mut tracked, _) = world_with_active_keys();
    assert_eq!(
        tracked.adopt_none(at(20)),
        vec![KeyEvent::RecordTampered("it is gone")]
    );
    assert_eq!(tracked.activation("RS256", at(20)), KeyActivation::Active);
    let mut stored = None;
    assert!(store(&mut tracked, &mut stored, at(21)));
    assert_eq!(stored.unwrap().keys["RS256"].published_at, at(1).wall);
}

#[test]
fn nothing_of_the_hub_is_served_before_it_is_known_what_was_revoked() {
    let (_, stored) = world_with_active_keys();
    let revoked = stored.unwrap().with_revoked("RS256", at(10).wall).unwrap();
    let mut fresh = tracked(true);
    fresh.apply_reading(&reading(&[&[Rs256, Es256]]), false, at(50));
    assert_eq!(fresh.published_keys(at(50)), None);
    assert!(matches!(
        fresh
            .adopt_journal(&revoked, Origin::Unsealed, at(51))
            .as_slice(),
        [KeyEvent::RecordTampered(_)]
    ));
    assert_eq!(
        (
            fresh.published_keys(at(51)),
            fresh.is_current(at(51)),
            fresh.draft_journal(None, at(51))
        ),
        (None, false, None),
        "nor from what is not believed"
    );
    fresh.adopt_journal(&revoked, Origin::Sealed, at(60));
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
    tracked.adopt_journal(&rogue, Origin::StateDirectory, at(50));
    tracked.adopt_journal(stored.as_ref().unwrap(), Origin::Sealed, at(51));
    tracked.apply_reading(&reading(&[&[Rs256]]), true, at(52));
    assert!(
        tracked
            .draft_journal(stored.as_ref(), at(53))
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
    tracked.adopt_journal(
        &stored.unwrap().with_revoked("RS256", at(10).wall).unwrap(),
        Origin::Sealed,
        at(11),
    );
    tracked.apply_reading(&reading(&[&[Es256]]), true, at(20));
    store(&mut tracked, &mut None, at(21));
    assert!(matches!(
        tracked.activation("ES256", at(21)),
        KeyActivation::After(_)
    ));
}
