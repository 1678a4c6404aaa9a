//! How many used tokens are remembered, and for how long.

#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::reason::Reason;
use keyferry_core::caller::ExternalIdentity;
use keyferry_core::caller::external::accept_external;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::testing::NOW;
use keyferry_keys::verify;
use serde_json::json;

use super::super::tests::{issuers, signer};
use super::{CLEANUP_BATCH, UsedOfEntry, UsedTokens};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn identity_at(audience: &str, id: &str, life: i64) -> ExternalIdentity {
    let mut issuers = issuers("Once");
    let mut other = issuers.first().unwrap().clone();
    other.audience = Audience::new("https://other.example.com").unwrap();
    issuers.push(other);
    let token = signer().token(&json!({
        "iss": "https://ci.example.com", "aud": audience, "jti": id,
        "sub": "s", "iat": NOW, "exp": NOW + life, "repository_id": "42",
        "ref": "refs/heads/main", "event_name": "push",
    }));
    let jwt = UnverifiedJwt::parse_id_token(&token).unwrap();
    let signature = verify::verify_signature(&jwt, &signer().set()).unwrap();
    accept_external(&signature, &issuers, at(0)).unwrap()
}

fn identity(id: &str, life: i64) -> ExternalIdentity {
    identity_at("https://keys.example.com", id, life)
}

fn of_share(share: usize) -> UsedTokens {
    UsedTokens {
        share,
        ..UsedTokens::new(2, &[7; 32])
    }
}

#[test]
fn a_full_memory_forgets_no_token_that_could_still_be_used() {
    let used = of_share(2);
    let add = |id: &str, life, now| used.add_token(&identity(id, life), at(now));
    assert_eq!(add("a", 60, 0), Ok(()));
    assert_eq!(add("b", 120, 0), Ok(()));
    assert_eq!(add("c", 120, 59), Err(Reason::RateLimited));
    assert!(used.is_used(&identity("a", 60)) && used.is_used(&identity("b", 120)));
    assert_eq!(add("c", 120, 60), Ok(()), "the first has expired");
    assert_eq!(add("b", 120, 60), Err(Reason::CallerTokenReused));
}

#[test]
fn one_entry_cannot_use_up_the_memory_of_another() {
    let used = of_share(1);
    let other = |id: &str| identity_at("https://other.example.com", id, 60);
    assert_eq!(used.add_token(&identity("a", 60), at(0)), Ok(()));
    assert_eq!(
        used.add_token(&identity("b", 60), at(0)),
        Err(Reason::RateLimited)
    );
    assert!(!used.is_used(&other("a")), "another token of that jti");
    assert_eq!(used.add_token(&other("a"), at(0)), Ok(()));
    assert!(used.is_used(&other("a")));
}

#[test]
fn expired_tokens_are_removed_at_most_once_a_second() {
    let mut entry = UsedOfEntry::default();
    let mut add = |number: u8, expires, now| entry.add_hash([number; 16], expires, now, 1);
    assert_eq!(add(1, 5, 0), Ok(()));
    assert_eq!(add(2, 9, 4), Err(Reason::RateLimited));
    assert_eq!(add(2, 9, 5), Ok(()));
    assert_eq!(add(3, 9, 9), Ok(()), "the second one has expired");
    // Expired already when it was added, in a second in which the removal has run.
    assert_eq!(add(4, 8, 9), Err(Reason::RateLimited));
    let cleaned = entry.cleaned;
    assert_eq!(cleaned, Some(9));
    entry.used.insert([9; 16], 0);
    entry.added = CLEANUP_BATCH;
    assert_eq!(entry.add_hash([5; 16], 20, 9, 9), Ok(()));
    assert!(
        entry.used.contains_key(&[9; 16]),
        "not again in this second"
    );
    assert_eq!(entry.add_hash([6; 16], 20, 10, 9), Ok(()));
    assert!(!entry.used.contains_key(&[9; 16]));
}

#[test]
fn a_long_jti_takes_no_more_memory() {
    let used = of_share(2);
    let long = "j".repeat(1000);
    assert_eq!(used.add_token(&identity(&long, 60), at(0)), Ok(()));
    assert!(used.is_used(&identity(&long, 60)));
    let entry = used.entries.first().unwrap().lock();
    assert_eq!(entry.used.keys().map(|hash| hash.len()).sum::<usize>(), 16);
}
