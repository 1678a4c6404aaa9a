//! How many used tokens are remembered, and for how long.

#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use keyferry_api::reason::Reason;
use keyferry_core::caller::ExternalIdentity;
use keyferry_core::caller::external::accept;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::testing::NOW;
use keyferry_keys::verify;
use serde_json::json;

use super::super::tests::{issuers, signer};
use super::UsedTokens;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn identity(id: &str, life: i64) -> ExternalIdentity {
    let token = signer().token(&json!({
        "iss": "https://ci.example.com", "aud": "https://keys.example.com", "jti": id,
        "sub": "s", "iat": NOW, "exp": NOW + life, "repository_id": "42",
        "ref": "refs/heads/main", "event_name": "push",
    }));
    let jwt = UnverifiedJwt::parse_id_token(&token).unwrap();
    let signature = verify::verify(&jwt, &signer().set()).unwrap();
    accept(&signature, &issuers("Once"), at(0)).unwrap()
}

#[test]
fn a_full_memory_forgets_no_token_that_could_still_be_used() {
    let used = UsedTokens::default();
    let add = |id: &str, life, now| used.add_within(2, &identity(id, life), at(now));
    assert_eq!(add("a", 60, 0), Ok(()));
    assert_eq!(add("b", 120, 0), Ok(()));
    assert_eq!(add("c", 120, 59), Err(Reason::RateLimited));
    assert!(used.has(&identity("a", 60)) && used.has(&identity("b", 120)));
    assert_eq!(add("c", 120, 60), Ok(()), "the first has expired");
    assert_eq!(add("b", 120, 60), Err(Reason::CallerTokenReused));
}
