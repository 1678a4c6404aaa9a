#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use keyferry_api::issuer::Issuer;
use keyferry_keys::jwks::PublicKey;
use keyferry_keys::key_journal::Revocation;

use super::*;

const ACTIVATION_DELAY: Duration = Duration::from_secs(120);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A record of a P-256 key, whose `kid` is derived from the key.
fn record(point: &[u8], published: i64, signed_until: Option<i64>) -> KeyRecord {
    let key = PublicKey::of_es256_point(point).unwrap();
    let (signed_since, signed_until) = (
        signed_until.map(|_| at(published + 20)),
        signed_until.map(at),
    );
    KeyRecord {
        key,
        published_at: at(published),
        first: false,
        confirmed_at: at(published),
        signed_since,
        signed_until,
        withdrawn_at: None,
    }
}

fn points() -> [Vec<u8>; 2] {
    let point = || {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        key.public_key_raw().to_vec()
    };
    [point(), point()]
}

fn journal(records: Vec<KeyRecord>) -> KeyJournal {
    let mut journal = KeyJournal::empty(Issuer::new("https://hub.example.test").unwrap());
    journal.keys.extend(
        records
            .into_iter()
            .map(|record| (record.key.kid().to_owned(), record)),
    );
    journal
}

fn of<'a>(rows: &'a [Row], record: &KeyRecord) -> &'a Row {
    rows.iter().find(|row| row.kid == record.key.kid()).unwrap()
}

#[test]
fn an_old_key_may_go_when_its_last_token_has_ended() {
    let [old, new] = points();
    let (old, mut new) = (record(&old, 0, Some(5_000)), record(&new, 1_000, None));
    let now = at(1_050);
    let listed = rows(
        &journal(vec![old.clone(), new.clone()]),
        ACTIVATION_DELAY,
        None,
        now,
    );
    assert_eq!(
        (of(&listed, &old).signs, of(&listed, &new).signs),
        (Signs::LastSeen, Signs::NotSeen)
    );
    assert_eq!(of(&listed, &old).signs_since, Some(at(20)));
    let printed = table(&listed, &journal(vec![old.clone(), new.clone()]), now);
    assert!(
        printed
            .iter()
            .any(|row| row[3] == format!("since {}", when(at(20), now))),
        "{printed:?}"
    );
    assert_eq!(
        of(&listed, &old).remove_after,
        None,
        "nothing shows that the hub signs with another key"
    );
    new.signed_until = Some(at(1_500));
    let listed = rows(
        &journal(vec![old.clone(), new.clone()]),
        ACTIVATION_DELAY,
        None,
        now,
    );
    assert_eq!(
        (of(&listed, &old).signs, of(&listed, &new).signs),
        (Signs::Before, Signs::LastSeen)
    );
    assert_eq!(
        (
            of(&listed, &old).remove_after,
            of(&listed, &new).remove_after
        ),
        (Some(at(5_000)), None)
    );
    let idle = KeyRecord {
        signed_until: None,
        ..old.clone()
    };
    let listed = rows(&journal(vec![idle, new]), ACTIVATION_DELAY, None, now);
    assert_eq!(
        of(&listed, &old).remove_after,
        Some(at(1_120)),
        "not before the new key is active"
    );
}

#[test]
fn what_comes_is_not_told_as_past_and_a_revocation_has_its_date() {
    let [one, other] = points();
    let (one, other) = (record(&one, 0, None), record(&other, 10, None));
    let mut journal = journal(vec![one.clone()]);
    journal.revoked.insert(
        other.key.kid().to_owned(),
        Revocation {
            thumbprint: other.key.thumbprint(),
            at: at(20),
        },
    );
    let now = at(27);
    let listed = rows(&journal, ACTIVATION_DELAY, None, now);
    let text = timeline(&listed, &journal, now);
    assert!(
        text.contains("in 93 s") && text.contains("activates: its tokens may be issued then"),
        "{text}"
    );
    assert!(!text.contains("active:"), "{text}");
    let table = table(&listed, &journal, now);
    assert_eq!(table[1][5], "in 93 s");
    let revoked = table.iter().find(|row| row[0] == other.key.kid()).unwrap();
    assert_eq!(
        (revoked[2].as_str(), revoked[9].as_str()),
        ("revoked", when(at(20), now).as_str())
    );
    assert_eq!(
        [when(at(27), now), when(at(627), now), when(at(7_287), now)]
            .map(|text| text.starts_with("in")),
        [false, true, true]
    );
    assert_eq!(when(at(7_287), now), "in 2 h 1 min");
}

#[test]
fn delivered_objects_are_counted_where_they_are_known() {
    let [one, other] = points();
    let (one, other) = (record(&one, 0, None), record(&other, 10, None));
    let journal = journal(vec![one.clone(), other.clone()]);
    let delivered = BTreeMap::from([(one.key.kid().to_owned(), 3)]);
    let listed = rows(&journal, ACTIVATION_DELAY, Some(&delivered), at(30));
    assert_eq!(
        (
            of(&listed, &one).delivered_objects,
            of(&listed, &other).delivered_objects
        ),
        (Some(3), Some(0))
    );
    assert!(table(&listed, &journal, at(30))[0].contains(&"OBJECTS".to_owned()));
    assert!(
        !table(
            &rows(&journal, ACTIVATION_DELAY, None, at(30)),
            &journal,
            at(30)
        )[0]
        .contains(&"OBJECTS".to_owned())
    );
}
