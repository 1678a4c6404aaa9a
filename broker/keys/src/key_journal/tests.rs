#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::{JournalError, KeyJournal, KeyRecord, Revocation, SealKey};
use crate::jwt::SigningAlgorithm;
use crate::testing as test_keys;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn journal() -> KeyJournal {
    let mut journal = KeyJournal::empty(Issuer::new("https://hub.example.test").unwrap());
    journal.sequence = 7;
    for (algorithm, withdrawn_at) in [
        (SigningAlgorithm::Rs256, None),
        (SigningAlgorithm::Es256, Some(at(30))),
    ] {
        let key = test_keys::key(algorithm)
            .set()
            .keys()
            .next()
            .unwrap()
            .clone();
        let record = KeyRecord {
            key,
            published_at: at(10),
            first: withdrawn_at.is_none(),
            confirmed_at: at(20),
            signed_since: withdrawn_at.map(|_| at(15)),
            signed_until: withdrawn_at.map(|_| at(40)),
            withdrawn_at,
        };
        journal.keys.insert(record.key.kid().to_owned(), record);
    }
    journal
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let journal = journal().with_revoked("ES256", at(50)).unwrap();
    assert_eq!(
        (journal.sequence, journal.keys.len(), journal.revoked.len()),
        (8, 1, 1)
    );
    assert_eq!(
        KeyJournal::from_bytes(&journal.to_bytes().unwrap()),
        Ok(journal.clone())
    );
    assert!(journal.with_revoked("nobody", at(60)).is_none());
    assert_eq!(
        journal.with_revoked("ES256", at(60)).unwrap().revoked["ES256"].at,
        at(50),
        "the first revocation stands"
    );
}

#[test]
fn what_is_no_record_is_not_read() {
    let good = String::from_utf8(journal().to_bytes().unwrap()).unwrap();
    let cases = [
        (
            good.replace("\"version\":1", "\"version\":2"),
            JournalError::Version,
        ),
        (good.replace("\"first\"", "\"last\""), JournalError::Shape),
        (
            good.replace("https://hub", "http://hub"),
            JournalError::Issuer,
        ),
        (good.replace("P-256", "P-384"), JournalError::Key),
        (
            good.replace("\"kid\":\"ES256\"", "\"kid\":\"RS256\""),
            JournalError::Entries,
        ),
    ];
    for (text, expected) in cases {
        assert_ne!(text, good);
        assert_eq!(KeyJournal::from_bytes(text.as_bytes()), Err(expected));
    }
    let private = good.replacen("\"use\":\"sig\"", "\"use\":\"sig\",\"d\":\"AA\"", 1);
    assert_eq!(
        KeyJournal::from_bytes(private.as_bytes()),
        Err(JournalError::Key),
        "a private member"
    );
}

/// A kid that is both a key's and revoked, or is there twice, has no one meaning.
#[test]
fn a_kid_is_there_once_and_the_entries_have_a_limit() {
    let revocation = |at_second| Revocation {
        thumbprint: "t".to_owned(),
        at: at(at_second),
    };
    let mut both = journal();
    both.revoked.insert("ES256".to_owned(), revocation(50));
    assert_eq!(both.to_bytes(), Err(JournalError::Entries));
    let mut twice = journal();
    for kid in ["gone-1", "gone-2"] {
        twice.revoked.insert(kid.to_owned(), revocation(50));
    }
    let text = String::from_utf8(twice.to_bytes().unwrap()).unwrap();
    let text = text.replace("gone-2", "gone-1");
    assert_eq!(
        KeyJournal::from_bytes(text.as_bytes()),
        Err(JournalError::Entries)
    );
    let mut full = journal();
    for number in 0..498 {
        full.revoked
            .insert(format!("gone-{number}"), revocation(50));
    }
    assert_eq!(
        KeyJournal::from_bytes(&full.to_bytes().unwrap()),
        Ok(full.clone()),
        "2 keys and 498 revocations"
    );
    full.revoked.insert("one-more".to_owned(), revocation(50));
    assert_eq!(full.to_bytes(), Err(JournalError::Entries));
}

#[test]
fn a_seal_holds_for_these_bytes_and_this_key() {
    let (one, other) = (
        SealKey::new(&Zeroizing::new(vec![1; 32])).unwrap(),
        SealKey::new(&Zeroizing::new(vec![2; 32])).unwrap(),
    );
    let bytes = journal().to_bytes().unwrap();
    let seal = one.seal_bytes(&bytes);
    assert!(one.is_seal_of(&seal, &bytes));
    assert!(
        !other.is_seal_of(&seal, &bytes)
            && !one.is_seal_of(&seal, b"{}")
            && !one.is_seal_of("", &bytes)
    );
    assert!(SealKey::new(&Zeroizing::new(vec![1; 31])).is_err());
    assert_eq!(format!("{one:?}"), "SealKey(..)");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(place in 0_usize..2000, byte: u8) {
        let mut bytes = journal().to_bytes().unwrap();
        let length = bytes.len();
        bytes[place % length] = byte;
        if let Ok(read) = KeyJournal::from_bytes(&bytes) {
            prop_assert_eq!(KeyJournal::from_bytes(&read.to_bytes().unwrap()), Ok(read));
        }
    }
}
