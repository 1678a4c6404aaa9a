//! Facts about the order of checks and about Go's JSON: sections 2.2, 2.3 and 2.5 of the notes.

use super::Expected::{Extra, Groups, Rejected, Skipped, User};
use super::{Fact, claiming, put, sound, with};
use crate::differential::case::Case;
use crate::differential::node::Node;
use crate::differential::token::Damage;

pub(super) fn facts() -> Vec<Fact> {
    let mut facts = vec![
        Fact::everywhere(
            "another_issuer",
            claiming("iss", "\"https://x.test\""),
            Skipped,
        ),
        Fact::everywhere(
            "another_audience",
            claiming("aud", "[\"x\"]"),
            Rejected("oidc: verify token: oidc: expected audience \"my-client\" got [\"x\"]"),
        ),
        Fact::everywhere(
            "exp_now_passes",
            claiming("exp", "1790000000"),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "exp_is_cut",
            claiming("exp", "1790000000.99"),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "expired",
            claiming("exp", "1789999999"),
            Rejected("oidc: token is expired (Token Expiry: 2026-09-21 14:13:19 +0000 UTC)"),
        ),
        Fact::everywhere(
            "no_leeway_but_for_nbf",
            claiming("nbf", "1790000060"),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "not_before",
            claiming("nbf", "1790000061"),
            Rejected("before the nbf (not before) time: "),
        ),
        Fact::everywhere(
            "exp_as_text",
            claiming("exp", "\"1790000600\""),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "exp_null",
            claiming("exp", "null"),
            Rejected("strconv.ParseFloat: parsing \"\": invalid syntax"),
        ),
        Fact::everywhere(
            "exp_overflows",
            claiming("exp", "1e19"),
            Rejected("oidc: token is expired"),
        ),
        Fact::everywhere("null_name", claiming("sub", "null"), User("hub:")),
        Fact::everywhere("empty_name", claiming("sub", "\"\""), User("hub:")),
        Fact::everywhere("number_as_name", claiming("n", "1"), User("hub:jane")),
        Fact::everywhere(
            "jti_is_an_extra",
            claiming("jti", "\"7\""),
            Extra("authentication.kubernetes.io/credential-id=JTI=7"),
        ),
        Fact::everywhere(
            "jti_of_another_type",
            claiming("jti", "7"),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "a_source_that_is_not_there",
            claiming("_claim_names", "{\"x\":\"s\"}"),
            Rejected("oidc: verify token: oidc: source does not exist"),
        ),
    ];
    facts.push(Fact::everywhere(
        "upper_case_audience",
        renamed("aud", "AUD"),
        User("hub:jane"),
    ));
    facts.push(Fact::everywhere(
        "upper_case_name",
        renamed("sub", "SUB"),
        Rejected("oidc: parse username claims \"sub\": claim not present"),
    ));
    let mut last = sound();
    edit(&mut last, |token| {
        token.claims.push("ISS", Node::text("https://x.test"))
    });
    facts.push(Fact::everywhere("the_last_issuer_counts", last, Skipped));
    let mut expired = damaged(Damage::FlipSignature);
    expired.claim("exp", "1");
    facts.push(Fact::skewed(
        "signature_first_since_1_36",
        expired,
        Rejected("token is expired"),
        Rejected("failed to verify signature"),
    ));
    facts.push(Fact::everywhere("padding", damaged(Damage::Pad), Skipped));
    facts.push(Fact::everywhere(
        "a_line_end_after_it",
        damaged(Damage::After("\n".to_owned())),
        User("hub:jane"),
    ));
    facts.push(Fact::everywhere(
        "an_object",
        damaged(Damage::FlattenedJson),
        Skipped,
    ));
    facts.push(Fact::everywhere(
        "unsigned",
        signed_as("none"),
        Rejected("oidc: id token signed with unsupported algorithm, expected [\"ES256\""),
    ));
    facts.push(Fact::everywhere(
        "a_public_key_as_secret",
        signed_as("HS256"),
        Rejected("got \"HS256\""),
    ));
    facts.push(Fact::everywhere(
        "no_kid_tries_all",
        headed("kid", "\"\""),
        User("hub:jane"),
    ));
    facts.push(Fact::everywhere(
        "unknown_crit",
        headed("crit", "[\"x\"]"),
        Rejected("failed to verify"),
    ));
    let mut strange = sound();
    for published in &mut strange.issuers {
        published.key_set = Node::raw("{\"keys\":[{\"kty\":\"AKP\"}]}");
    }
    facts.push(Fact::everywhere(
        "one_unknown_kty_spoils_all",
        strange,
        Rejected("oidc: failed to decode keys"),
    ));
    let mut hd = with(
        "jwt.0.claimValidationRules",
        Node::raw("[{claim: hd, requiredValue: x}]"),
    );
    facts.push(Fact::everywhere(
        "a_required_claim",
        hd.clone(),
        Rejected("oidc: required claim hd not present in ID token"),
    ));
    hd.claim("hd", "\"y\"");
    facts.push(Fact::everywhere(
        "a_required_value",
        hd,
        Rejected("oidc: required claim hd value does not match. Got = y, want = x"),
    ));
    let mut groups = with(
        "jwt.0.claimMappings.groups",
        Node::raw("{claim: g, prefix: \"p:\"}"),
    );
    groups.claim("g", "[\"a\",null,\"b\"]");
    facts.push(Fact::everywhere(
        "a_null_group",
        groups.clone(),
        Groups("p:a|p:|p:b"),
    ));
    groups.claim("g", "\"a\"");
    facts.push(Fact::everywhere("one_group", groups, Groups("p:a")));
    let mut email = with("jwt.0.claimMappings.username.claim", Node::text("email"));
    email.claim("email", "\"a@b\"");
    email.claim("email_verified", "false");
    facts.push(Fact::everywhere(
        "an_email_that_is_not_verified",
        email.clone(),
        Rejected("oidc: email not verified"),
    ));
    put(
        &mut email.config.tree,
        "jwt.0.claimMappings.username.prefix",
        Node::text(""),
    );
    email.claim("email_verified", "true");
    facts.push(Fact::everywhere("an_email", email, User("a@b")));
    facts
}

fn edit(case: &mut Case, change: impl Fn(&mut crate::differential::token::TokenSpec)) {
    case.tokens.iter_mut().for_each(change);
}

fn renamed(name: &str, other: &str) -> Case {
    let mut case = sound();
    edit(&mut case, |token| {
        if let Node::Map(entries) = &mut token.claims {
            entries
                .iter_mut()
                .filter(|(key, _)| key == name)
                .for_each(|(key, _)| other.clone_into(key));
        }
    });
    case
}

fn damaged(damage: Damage) -> Case {
    let mut case = sound();
    edit(&mut case, |token| token.damage.push(damage.clone()));
    case
}

fn headed(name: &str, value: &str) -> Case {
    let mut case = sound();
    edit(&mut case, |token| token.header.set(name, Node::raw(value)));
    case
}

fn signed_as(algorithm: &str) -> Case {
    let mut case = headed("alg", &format!("\"{algorithm}\""));
    edit(&mut case, |token| {
        algorithm.clone_into(&mut token.algorithm)
    });
    case
}
