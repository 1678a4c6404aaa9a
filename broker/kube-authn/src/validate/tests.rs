#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::*;
use crate::config::{
    AnonymousCondition, ClaimValidationRule, ExtraMapping, JwtAuthenticator, UserValidationRule,
};

fn plain() -> AuthenticationConfiguration {
    let mut jwt = JwtAuthenticator::default();
    jwt.issuer.url = "https://hub".to_owned();
    jwt.issuer.audiences = vec!["a".to_owned()];
    jwt.claim_mappings.username.claim = "sub".to_owned();
    jwt.claim_mappings.username.prefix = Some("hub:".to_owned());
    AuthenticationConfiguration {
        jwt: vec![jwt],
        anonymous: None,
    }
}

/// Returns the errors of the plain configuration after a change, in the words of 1.33 and of 1.36.
fn errors(change: impl Fn(&mut JwtAuthenticator)) -> (Vec<String>, Vec<String>) {
    let mut configuration = plain();
    change(&mut configuration.jwt[0]);
    let words = |minor| match validate_configuration(
        &configuration,
        minor,
        &["https://own".to_owned(), "https://b".to_owned()],
    ) {
        Ok(_) => Vec::new(),
        Err(invalid) => invalid.errors.iter().map(ToString::to_string).collect(),
    };
    (words(Minor::V1_33), words(Minor::V1_36))
}

fn same(change: impl Fn(&mut JwtAuthenticator), expected: &[&str]) {
    let (old, new) = errors(change);
    assert_eq!(old, expected);
    assert_eq!(new, expected);
}

#[test]
fn a_plain_configuration_is_taken() {
    same(|_| {}, &[]);
    assert!(
        validate_configuration(&AuthenticationConfiguration::default(), Minor::V1_33, &[]).is_ok()
    );
}

#[test]
fn urls() {
    let url =
        |text: &'static str| move |jwt: &mut JwtAuthenticator| jwt.issuer.url = text.to_owned();
    let (old, new) = errors(url(""));
    assert_eq!(
        (old[0].as_str(), new[0].as_str()),
        (
            "jwt[0].issuer.url: Required value: URL is required",
            "jwt[0].issuer.url: Required value"
        )
    );
    same(
        url("http://a"),
        &["jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https"],
    );
    same(
        url("ftp://u@a?q#f"),
        &[
            "jwt[0].issuer.url: Invalid value: \"ftp://u@a?q#f\": URL scheme must be https",
            "jwt[0].issuer.url: Invalid value: \"ftp://u@a?q#f\": URL must not contain a username \
             or password",
            "jwt[0].issuer.url: Invalid value: \"ftp://u@a?q#f\": URL must not contain a query",
            "jwt[0].issuer.url: Invalid value: \"ftp://u@a?q#f\": URL must not contain a fragment",
        ],
    );
    same(
        url("https://a:x"),
        &[
            "jwt[0].issuer.url: Invalid value: \"https://a:x\": parse \"https://a:x\": invalid \
             port \":x\" after host",
        ],
    );
    same(
        url("https://own"),
        &[
            "jwt[0].issuer.url: Invalid value: \"https://own\": URL must not overlap with \
             disallowed issuers: [https://b https://own]",
        ],
    );
    for text in [
        "https://",
        "https:///x",
        "https://a?",
        "https://a#",
        "HTTPS://a",
        "https://a:99999",
        "https://a/",
    ] {
        same(url(text), &[]);
    }
}

#[test]
fn discovery_urls() {
    let discovery = |text: &'static str| {
        move |jwt: &mut JwtAuthenticator| jwt.issuer.discovery_url = text.to_owned()
    };
    same(
        discovery("https://hub//"),
        &[
            "jwt[0].issuer.discoveryURL: Invalid value: \"https://hub//\": discoveryURL must be \
             different from URL",
        ],
    );
    same(discovery("https://own"), &[]);
    same(
        discovery("http://x"),
        &["jwt[0].issuer.discoveryURL: Invalid value: \"http://x\": URL scheme must be https"],
    );
}

#[test]
fn audiences() {
    let audiences = |list: &'static [&'static str], policy: &'static str| {
        move |jwt: &mut JwtAuthenticator| {
            jwt.issuer.audiences = list.iter().map(|text| (*text).to_owned()).collect();
            jwt.issuer.audience_match_policy = policy.to_owned();
        }
    };
    same(
        audiences(&[], ""),
        &[
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is \
             required",
        ],
    );
    same(audiences(&["a", "b"], "MatchAny"), &[]);
    same(audiences(&["a"], "MatchAny"), &[]);
    same(
        audiences(&["a", "a"], ""),
        &[
            "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be \
             MatchAny for multiple audiences",
        ],
    );
    same(
        audiences(&["a"], "x"),
        &[
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"x\": audienceMatchPolicy must be \
             empty or MatchAny for single audience",
        ],
    );
    // The policy has a Go type of its own, which is printed as JSON from 1.34 on.
    let (old, new) = errors(audiences(&["a"], "<\u{a0}"));
    let printed = |value: &str| {
        format!(
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: {value}: audienceMatchPolicy must \
             be empty or MatchAny for single audience"
        )
    };
    assert_eq!(old, [printed("\"<\\u00a0\"")]);
    assert_eq!(new, [printed("\"\\u003c\u{a0}\"")]);
    let (old, new) = errors(audiences(&[""], ""));
    assert_eq!(
        old,
        ["jwt[0].issuer.audiences[0]: Required value: audience can't be empty"]
    );
    assert_eq!(new, ["jwt[0].issuer.audiences[0]: Required value"]);
}

#[test]
fn authorities_and_egress() {
    let authority = |text: String| {
        move |jwt: &mut JwtAuthenticator| jwt.issuer.certificate_authority.clone_from(&text)
    };
    let none = "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not \
        contain any valid RSA or ECDSA certificates";
    same(authority("x".to_owned()), &[none]);
    same(
        authority("-----BEGIN PUBLIC KEY-----\nYWI=\n-----END PUBLIC KEY-----\n".to_owned()),
        &[none],
    );
    let certificate = rcgen::generate_simple_self_signed(vec!["a".to_owned()])
        .unwrap()
        .cert
        .pem();
    same(authority(certificate.clone()), &[]);
    same(
        authority(format!(
            "{certificate}-----BEGIN CERTIFICATE-----\nYWI=\n-----END CERTIFICATE-----\n"
        )),
        &[
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": x509: malformed \
             certificate",
        ],
    );
    same(
        |jwt| jwt.issuer.egress_selector_type = "x".to_owned(),
        &[
            "jwt[0].issuer.egressSelectorType: Invalid value: \"x\": egress selector must be \
             either controlplane or cluster",
        ],
    );
}

#[test]
fn claim_rules() {
    let rule = |claim: &'static str,
                value: &'static str,
                expression: &'static str,
                message: &'static str| {
        move |jwt: &mut JwtAuthenticator| {
            jwt.claim_validation_rules.push(ClaimValidationRule {
                claim: claim.to_owned(),
                required_value: value.to_owned(),
                expression: expression.to_owned(),
                message: message.to_owned(),
            });
        }
    };
    let both = "jwt[0].claimValidationRules[0]: Invalid value: \"a\": claim and expression can't \
        both be set";
    same(rule("a", "", "b", ""), &[both]);
    same(
        rule("", "v", "", ""),
        &["jwt[0].claimValidationRules[0]: Required value: claim or expression is required"],
    );
    let (old, new) = errors(rule("a", "", "", "m"));
    assert_eq!(
        old,
        [
            "jwt[0].claimValidationRules[0].message: Invalid value: \"m\": message can't be set \
             when claim is set"
        ]
    );
    assert_eq!(
        new,
        [
            "jwt[0].claimValidationRules[0].message: Invalid value: \"m\": may not be specified \
             when claim is set"
        ]
    );
    let (old, new) = errors(rule("", "v", "true", ""));
    assert_eq!(
        old[0],
        "jwt[0].claimValidationRules[0].requiredValue: Invalid value: \"v\": requiredValue can't \
         be set when expression is set"
    );
    assert_eq!(
        new[0],
        "jwt[0].claimValidationRules[0].requiredValue: Invalid value: \"v\": may not be specified \
         when expression is set"
    );
    let twice = |claim, expression| {
        move |jwt: &mut JwtAuthenticator| {
            rule(claim, "", expression, "")(jwt);
            rule(claim, "", expression, "")(jwt);
        }
    };
    same(
        twice("a", ""),
        &["jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\""],
    );
    same(
        twice("", "true"),
        &["jwt[0].claimValidationRules[1].expression: Duplicate value: \"true\""],
    );
}

#[test]
fn mappings() {
    same(
        |jwt| jwt.claim_mappings.username.claim.clear(),
        &["jwt[0].claimMappings.username: Required value: claim or expression is required"],
    );
    same(
        |jwt| jwt.claim_mappings.username.prefix = None,
        &[
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to \
           disable prefixing",
        ],
    );
    same(
        |jwt| jwt.claim_mappings.username.expression = "'x'".to_owned(),
        &[
            "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both \
             be set",
        ],
    );
    same(
        |jwt| jwt.claim_mappings.groups.prefix = Some("x".to_owned()),
        &[],
    );
    let (old, new) = errors(|jwt| {
        jwt.claim_mappings.groups.prefix = Some("x".to_owned());
        jwt.claim_mappings.groups.expression = "'x'".to_owned();
    });
    assert_eq!(
        old[0],
        "jwt[0].claimMappings.groups.prefix: Invalid value: \"x\": prefix can't be set when \
         expression is set"
    );
    assert_eq!(
        new[0],
        "jwt[0].claimMappings.groups.prefix: Invalid value: \"x\": may not be specified when \
         expression is set"
    );
    same(
        |jwt| {
            jwt.claim_mappings.uid.claim = "a".to_owned();
            jwt.claim_mappings.uid.expression = "'b'".to_owned();
        },
        &["jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set"],
    );
}

#[test]
fn extra_keys() {
    let extra = |key: &'static str, expression: &'static str| {
        move |jwt: &mut JwtAuthenticator| {
            jwt.claim_mappings.extra.push(ExtraMapping {
                key: key.to_owned(),
                value_expression: expression.to_owned(),
            });
        }
    };
    let first = |key, expression| {
        errors(extra(key, expression))
            .1
            .first()
            .cloned()
            .unwrap_or_default()
    };
    let path = "jwt[0].claimMappings.extra[0].key";
    for (key, detail) in [
        (
            "a",
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "/a",
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "a.k8s.io/b",
            "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
        ),
        (
            "kubernetes.io/b",
            "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
        ),
        ("a/B", "must be lowercase"),
    ] {
        assert_eq!(
            first(key, "'x'"),
            format!(
                "{path}: Invalid value: {}: {detail}",
                keyferry_go_formats::quote::quote(key)
            )
        );
    }
    assert_eq!(first("", "'x'"), format!("{path}: Required value"));
    assert!(first("a_b/c", "'x'").contains(
        "Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower case"
    ));
    assert_eq!(
        first("a/b c", "'x'"),
        format!(
            "{path}: Invalid value: \"b c\": Invalid path (regex used for validation is \
             '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        )
    );
    let (old, new) = errors(extra("a/b", ""));
    assert_eq!(
        old,
        [
            "jwt[0].claimMappings.extra[0].valueExpression: Required value: valueExpression is \
             required"
        ]
    );
    assert_eq!(
        new,
        ["jwt[0].claimMappings.extra[0].valueExpression: Required value"]
    );
    let mut reserved = plain();
    extra("kubernetes.io/b", "")(&mut reserved.jwt[0]);
    assert_eq!(
        validate_configuration(&reserved, Minor::V1_31, &[])
            .unwrap_err()
            .errors
            .len(),
        1,
        "not reserved before 1.32"
    );
    assert_eq!(
        validate_configuration(&reserved, Minor::V1_32, &[])
            .unwrap_err()
            .errors
            .len(),
        2
    );
}

#[test]
fn user_rules() {
    let empty = |jwt: &mut JwtAuthenticator| {
        jwt.user_validation_rules
            .push(UserValidationRule::default())
    };
    let (old, new) = errors(empty);
    assert_eq!(
        old,
        ["jwt[0].userValidationRules[0].expression: Required value: expression is required"]
    );
    assert_eq!(
        new,
        ["jwt[0].userValidationRules[0].expression: Required value"]
    );
}

#[test]
fn the_whole_file() {
    let mut many = plain();
    many.jwt = vec![many.jwt[0].clone(); 65];
    assert_eq!(
        validate_configuration(&many, Minor::V1_36, &[])
            .unwrap_err()
            .message(),
        "jwt: Too many: 65: must have at most 64 items"
    );
    let mut twice = plain();
    twice.jwt[0].issuer.discovery_url = "https://d".to_owned();
    twice.jwt = vec![twice.jwt[0].clone(); 2];
    assert_eq!(
        validate_configuration(&twice, Minor::V1_36, &[])
            .unwrap_err()
            .message(),
        "[jwt[1].issuer.url: Duplicate value: \"https://hub\", jwt[1].issuer.discoveryURL: \
         Duplicate value: \"https://d\"]"
    );
    let mut anonymous = plain();
    let conditions = vec![AnonymousCondition {
        path: "/x".to_owned(),
    }];
    anonymous.anonymous = Some(crate::config::Anonymous {
        enabled: false,
        conditions,
    });
    let message = |minor| {
        validate_configuration(&anonymous, minor, &[])
            .unwrap_err()
            .message()
    };
    let detail = "enabled should be set to true when conditions are defined";
    assert_eq!(
        message(Minor::V1_33),
        format!(
            "anonymous.conditions: Invalid value: \
             []apiserver.AnonymousAuthCondition{{apiserver.AnonymousAuthCondition{{Path:\"/x\"}}}}: {detail}"
        )
    );
    assert_eq!(
        message(Minor::V1_36),
        format!("anonymous.conditions: Invalid value: [{{\"Path\":\"/x\"}}]: {detail}")
    );
    assert!(message(Minor::V1_31).contains("anonymous: Forbidden: anonymous is not supported"));
}
