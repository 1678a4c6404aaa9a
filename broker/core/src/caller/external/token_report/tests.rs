#![allow(clippy::unwrap_used)]

use keyferry_api::config::{ExternalIssuer, TokenUse};
use keyferry_keys::jwt::{SigningAlgorithm, UnverifiedJwt};
use keyferry_keys::testing::{NOW, key};
use keyferry_keys::verify::ClaimsError;
use serde_json::{Value, json};

use super::{AcceptedToken, UnacceptedToken, report_token};
use crate::caller::external::tests::{SYSTEM_CASES, claims_of, entry_of, now, set_claim};

fn report(issuers: &[ExternalIssuer], claims: &Value) -> Result<AcceptedToken, UnacceptedToken> {
    let token = key(SigningAlgorithm::Es256).token(claims);
    report_token(
        &UnverifiedJwt::parse_id_token(&token).unwrap(),
        issuers,
        now(),
    )
}

#[test]
fn a_token_of_each_system_is_reported_with_its_rule_or_its_claim() {
    for case in &SYSTEM_CASES {
        let (system, rule, _) = case;
        let issuers = [
            entry_of(*system, &[("sub", "another")]),
            entry_of(*system, rule),
        ];
        let accepted = report(&issuers, &claims_of(case)).unwrap();
        assert_eq!(accepted.rule, "externalIssuers[1].rules[0]", "{system:?}");
        assert_eq!(accepted.account, "tenant-a/deployer");
        assert_eq!(accepted.untimely, None);
        for (name, value) in *rule {
            let mut claims = claims_of(case);
            set_claim(&mut claims, name, json!("x"));
            let only = [entry_of(*system, rule)];
            assert_eq!(
                report(&only, &claims).unwrap_err().problem,
                format!(
                    "no rule accepts it; the nearest, externalIssuers[0].rules[0], wants \
                     \"{value}\" as {name}, and the token has \"x\""
                ),
            );
        }
    }
}

#[test]
fn what_is_wrong_before_any_rule_is_said_first() {
    let case = &SYSTEM_CASES[2];
    let rule = case.1;
    let mut issuers = [entry_of(case.0, rule)];
    issuers[0].token_use = TokenUse::Once;
    let changed = |name: &str, value: Value| {
        let mut claims = claims_of(case);
        if name != "jti" {
            claims["jti"] = json!("one");
            claims[name] = value;
        }
        report(&issuers, &claims)
    };
    for (name, value, problem) in [
        (
            "iss",
            json!("https://ci.example.com/"),
            "its iss \"https://ci.example.com/\" differs from externalIssuers[0].url in its \
             spelling",
        ),
        (
            "iss",
            json!("https://c.example.com"),
            "no entry has its iss \"https://c.example.com\" as url",
        ),
        (
            "aud",
            json!(["https://keys.example.com", "b\u{202e}"]),
            "its aud is \"https://keys.example.com\", \"b\\u{202e}\", and \
             externalIssuers[0].audience is \"https://keys.example.com\"",
        ),
        (
            "exp",
            json!(NOW + 7200),
            "it lives 7200 s, and externalIssuers[0].maxTokenLifetime is 3600 s",
        ),
        ("exp", json!(NOW - 1), "token expires before it was issued"),
        ("iss", json!(""), "token has a claim iss of the wrong form"),
        (
            "jti",
            Value::Null,
            "it has no jti, and externalIssuers[0].tokenUse is Once",
        ),
        (
            "kubernetes.io",
            json!({}),
            "it is the token of a ServiceAccount, and externalIssuers[0].system is not Kubernetes",
        ),
        (
            "pipeline_id",
            Value::Null,
            "no rule accepts it; the nearest, externalIssuers[0].rules[0], wants \"1f0a\" as \
             pipeline_id, and the token has \"(no text)\"",
        ),
    ] {
        assert_eq!(changed(name, value).unwrap_err().problem, problem, "{name}");
    }
}

/// A job's token has expired before a person looks at it, and its rule is what they ask about.
#[test]
fn an_expired_token_is_compared_all_the_same() {
    let case = &SYSTEM_CASES[2];
    let issuers = [entry_of(case.0, case.1)];
    let mut claims = claims_of(case);
    (claims["iat"], claims["exp"]) = (json!(NOW - 900), json!(NOW - 600));
    let accepted = report(&issuers, &claims).unwrap();
    assert_eq!(accepted.untimely, Some(ClaimsError::Expired));
    claims["build_branch"] = json!("next");
    let refused = report(&issuers, &claims).unwrap_err();
    assert!(refused.problem.contains("as build_branch"), "{refused:?}");
}
