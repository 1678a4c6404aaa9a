//! Mappings and rules by expression, tested through a whole verification.

use super::*;
use crate::config::{ExtraMapping, UserValidationRule};

fn name(expression: &'static str) -> impl Fn(&mut JwtAuthenticator) {
    move |jwt| {
        jwt.claim_mappings.username.claim.clear();
        jwt.claim_mappings.username.prefix = None;
        jwt.claim_mappings.username.expression = expression.to_owned();
    }
}

fn groups(expression: &'static str) -> impl Fn(&mut JwtAuthenticator) {
    move |jwt| jwt.claim_mappings.groups.expression = expression.to_owned()
}

fn rule(expression: &str, message: &str) -> ClaimValidationRule {
    ClaimValidationRule {
        expression: expression.to_owned(),
        message: message.to_owned(),
        ..Default::default()
    }
}

#[test]
fn usernames() {
    assert_eq!(
        user(outcome(name("'h:' + claims.sub"), json!({}))).username,
        "h:s"
    );
    let (code, message) = rejected(outcome(name("claims.zzz"), json!({})));
    assert_eq!(code, Code::UsernameExpressionFailed);
    assert_eq!(
        message,
        "oidc: error evaluating username claim expression: expression 'claims.zzz' resulted in \
         error: no such key: zzz"
    );
    assert_eq!(
        rejected(outcome(name("claims.n"), json!({"n": 5}))).0,
        Code::UsernameNotString
    );
    assert_eq!(
        rejected(outcome(name("claims.?sub"), json!({}))).0,
        Code::UsernameNotString
    );
    assert_eq!(
        rejected(outcome(name("claims.e"), json!({"e": ""}))).0,
        Code::UsernameEmpty
    );
}

#[test]
fn group_lists() {
    let of = |expression, claims| user(outcome(groups(expression), claims)).groups;
    assert_eq!(of("claims.g", json!({"g": ["a", "", "b"]})), ["a", "b"]);
    assert_eq!(of("claims.g", json!({"g": "a"})), ["a"]);
    assert_eq!(of("claims.g", json!({"g": ""})), [""; 0]);
    assert_eq!(of("claims.g + ['z']", json!({"g": ["a"]})), ["a", "z"]);
    let code = |expression, claims| rejected(outcome(groups(expression), claims)).0;
    assert_eq!(
        code("claims.g", json!({"g": ["a", null]})),
        Code::GroupsNotStrings
    );
    assert_eq!(code("claims.g", json!({"g": 5})), Code::GroupsNotStrings);
    assert_eq!(code("claims.zzz", json!({})), Code::GroupsExpressionFailed);
    assert_eq!(
        code("'a,b'.split(',')", json!({})),
        Code::GroupsNotStrings,
        "Go's own list of strings is no list of values"
    );
}

#[test]
fn extra_values() {
    let extra = |expression: &'static str| {
        move |jwt: &mut JwtAuthenticator| {
            jwt.claim_mappings.extra.push(ExtraMapping {
                key: "a.b/c".to_owned(),
                value_expression: expression.to_owned(),
            });
        }
    };
    assert_eq!(
        user(outcome(extra("claims.sub"), json!({})))
            .extra
            .get("a.b/c")
            .unwrap(),
        &["s"]
    );
    assert!(
        !user(outcome(extra("''"), json!({})))
            .extra
            .contains_key("a.b/c")
    );
    let (code, message) = rejected(outcome(extra("claims.zzz"), json!({})));
    assert_eq!(
        (code, message.as_str()),
        (
            Code::ExtraExpressionFailed,
            "expression 'claims.zzz' resulted in error: no such key: zzz"
        )
    );
    assert_eq!(
        rejected(outcome(extra("claims.exp"), json!({}))).0,
        Code::ExtraNotStrings
    );
}

#[test]
fn a_rule_that_fails_beats_one_that_is_false() {
    let rules = |list: Vec<ClaimValidationRule>| {
        move |jwt: &mut JwtAuthenticator| jwt.claim_validation_rules.clone_from(&list)
    };
    let (code, message) = rejected(outcome(
        rules(vec![rule("claims.sub == 'x'", "no")]),
        json!({}),
    ));
    assert_eq!(code, Code::ClaimRuleFalse);
    assert_eq!(
        message,
        "oidc: error evaluating claim validation expression: validation expression 'claims.sub == \
         'x'' failed: no"
    );
    let both = rules(vec![
        rule("claims.sub == 'x'", ""),
        rule("claims.zzz == 'y'", ""),
    ]);
    assert_eq!(rejected(outcome(both, json!({}))).0, Code::ClaimRuleFailed);
    assert!(matches!(
        outcome(
            rules(vec![rule("claims.exp - claims.iat <= 3600", "")]),
            json!({})
        ),
        Outcome::Accepted(_)
    ));
}

#[test]
fn mapping_errors_beat_every_rule() {
    let both = |jwt: &mut JwtAuthenticator| {
        jwt.claim_validation_rules = vec![rule("false", "")];
        jwt.claim_mappings.uid.claim = "zzz".to_owned();
    };
    assert_eq!(rejected(outcome(both, json!({}))).0, Code::UidClaimMissing);
}

#[test]
fn user_rules_see_the_mapped_user() {
    let rule = |expression: &'static str| {
        move |jwt: &mut JwtAuthenticator| {
            jwt.user_validation_rules.push(UserValidationRule {
                expression: expression.to_owned(),
                message: "m".to_owned(),
            });
        }
    };
    assert!(matches!(
        outcome(
            rule("user.username == 'hub:s' && user.uid == ''"),
            json!({})
        ),
        Outcome::Accepted(_)
    ));
    let (code, message) = rejected(outcome(rule("user.username.startsWith('x')"), json!({})));
    assert_eq!(code, Code::UserRuleFalse);
    assert_eq!(
        message,
        "oidc: error evaluating user info validation rule: validation expression \
         'user.username.startsWith('x')' failed: m"
    );
}

#[test]
fn numbers_are_ints_up_to_1_33() {
    let hub = Hub::new();
    let token = hub.token(&claims(json!({"n": 5})));
    let verdict = |minor| {
        let mut jwt = authenticator();
        jwt.claim_validation_rules = vec![rule("claims.n + 1 == 6", "")];
        matches!(ask(jwt, minor, &token, &hub.keys()), Outcome::Accepted(_))
    };
    assert!(verdict(Minor::V1_33));
    assert!(!verdict(Minor::V1_34));
}

#[test]
fn validation_of_expressions() {
    let errors = |change: &dyn Fn(&mut JwtAuthenticator)| {
        let mut jwt = authenticator();
        change(&mut jwt);
        match validate_configuration(
            &AuthenticationConfiguration {
                jwt: vec![jwt],
                anonymous: None,
            },
            Minor::V1_36,
            &[],
        ) {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid
                .errors
                .into_iter()
                .map(|error| (error.code, error.path))
                .collect(),
        }
    };
    let username = "jwt[0].claimMappings.username.expression".to_owned();
    assert_eq!(
        errors(&name("claims.email")),
        [(Code::EmailVerifiedUnused, username.clone())]
    );
    assert_eq!(
        errors(&name("has(claims.email) ? claims.email : 'x'")),
        [(Code::EmailVerifiedUnused, username.clone())]
    );
    assert_eq!(
        errors(&name("claims['email']")),
        [],
        "the index escapes the check"
    );
    assert_eq!(
        errors(&name("claims.email_verified == true ? claims.email : 'x'")),
        []
    );
    assert_eq!(
        errors(&name("claims.")),
        [(Code::ExpressionNotCompiled, username)]
    );
    let checked = |jwt: &mut JwtAuthenticator| {
        name("claims.email")(jwt);
        jwt.claim_validation_rules = vec![rule("claims.email_verified == true", "")];
    };
    assert_eq!(errors(&checked), []);
    let constant = |text: &'static str| {
        move |jwt: &mut JwtAuthenticator| jwt.claim_validation_rules = vec![rule(text, "")]
    };
    let path = "jwt[0].claimValidationRules[0].expression".to_owned();
    assert_eq!(
        errors(&constant("uint('x') == 1u")),
        [(Code::ExpressionNotCompiled, path.clone())],
        "the program cannot be made"
    );
    assert_eq!(
        errors(&constant("uint('x')")),
        [(Code::ExpressionNotBool, path.clone())],
        "its type is asked first"
    );
    assert_eq!(
        errors(&constant("dyn(uint('x'))")),
        [(Code::ExpressionNotBool, path)]
    );
    let not_bool = |jwt: &mut JwtAuthenticator| {
        jwt.claim_validation_rules = vec![rule("claims.email_verified", "")]
    };
    assert_eq!(
        errors(&not_bool),
        [(
            Code::ExpressionNotBool,
            "jwt[0].claimValidationRules[0].expression".to_owned()
        )]
    );
}
