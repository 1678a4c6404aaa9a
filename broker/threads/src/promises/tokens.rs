//! A token for one use: of all requests with it, one is granted.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use keyferry_api::config;
use keyferry_core::caller::ExternalIdentity;
use keyferry_core::caller::external::accept_external;
use keyferry_keys::jwt::{SigningAlgorithm, UnverifiedJwt};
use keyferry_keys::testing::{NOW, key};
use keyferry_keys::verify;
use serde_json::json;
use shuttle::thread;

use super::count_broken;
use crate::used_tokens::UsedTokens;

const REQUESTS: usize = 3;

/// The server adds each token before it grants the request.
pub fn added_before_the_grant(schedules: usize) -> usize {
    one_is_granted(schedules, |used, token| {
        used.add_token(token, time_of_tests()).is_ok()
    })
}

/// The mistake: asked first, and added afterwards.
pub fn asked_before_it_is_added(schedules: usize) -> usize {
    one_is_granted(schedules, |used, token| {
        let is_new = !used.is_used(token);
        let _ = used.add_token(token, time_of_tests());
        is_new
    })
}

fn one_is_granted(schedules: usize, grants: fn(&UsedTokens, &ExternalIdentity) -> bool) -> usize {
    count_broken(schedules, move || {
        let used = Arc::new(UsedTokens::new(1, &[7; 32]));
        let request = || {
            let used = Arc::clone(&used);
            thread::spawn(move || grants(&used, &TOKEN))
        };
        let requests: Vec<_> = (0..REQUESTS).map(|_| request()).collect();
        let granted = requests
            .into_iter()
            .filter_map(|request| request.join().ok())
            .filter(|granted| *granted)
            .count();
        granted == 1
    })
}

#[allow(clippy::unwrap_used, reason = "a time of the tests")]
fn time_of_tests() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// Verified once: no schedule is about signatures.
static TOKEN: LazyLock<ExternalIdentity> = LazyLock::new(verified_token);

#[allow(clippy::unwrap_used, reason = "a token of the tests")]
fn verified_token() -> ExternalIdentity {
    let text = "apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://keyferry.example.com
discovery: {tls: {certFile: a, keyFile: b}}
api: {tls: {certFile: a, keyFile: b}}
externalIssuers:
  - url: https://ci.example.com
    audience: https://keys.example.com
    tokenUse: Once
    rules: [{claims: {repository_id: '42', ref: refs/heads/main}}]
    serviceAccount: {namespace: tenant-a, name: reconciler}
";
    let issuers = config::read(text).unwrap().server.external_issuers;
    let signer = key(SigningAlgorithm::Es256);
    let token = signer.token(&json!({
        "iss": "https://ci.example.com", "aud": "https://keys.example.com", "jti": "run-1",
        "sub": "s", "iat": NOW, "exp": NOW + 300, "repository_id": "42",
        "ref": "refs/heads/main", "event_name": "push",
    }));
    let jwt = UnverifiedJwt::parse_id_token(&token).unwrap();
    let keys = signer.set();
    let signature = verify::verify_signature(&jwt, &keys).unwrap();
    accept_external(&signature, &issuers, time_of_tests()).unwrap()
}
