//! Generates tokens: sound ones, and ones that are broken in every way.

use super::claims;
use crate::differential::keys::KeyName;
use crate::differential::node::Node;
use crate::differential::token::{Damage, TokenSpec};
use crate::random::Random;

/// The issuer and the audience that a token is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) audience: &'a str,
}

/// A token that a target with these keys accepts.
pub(crate) fn sound(random: &mut Random, aim: Aim<'_>) -> TokenSpec {
    let claims = if random.percent(6) {
        claims::kubernetes(random, aim.issuer, aim.audience)
    } else {
        claims::sound(random, aim.issuer, aim.audience)
    };
    signed(
        random.pick_copied(&[
            KeyName::P256A,
            KeyName::P256A,
            KeyName::P256A,
            KeyName::RsaA,
        ]),
        claims,
    )
}

/// A sound token with one or more changes in its claims, header or form.
pub(crate) fn changed(random: &mut Random, aim: Aim<'_>) -> TokenSpec {
    let mut token = sound(random, aim);
    for _ in 0..=random.below(2) {
        match random.below(10) {
            0 => other_signature(random, &mut token),
            1 => header(random, &mut token),
            2 => {
                let one = damage(random, &token);
                token.damage.push(one);
            }
            3 if random.percent(20) => {
                token.claims = Node::raw(random.pick(&[
                    "[]",
                    "null",
                    "\"x\"",
                    "1",
                    "",
                    "{",
                    "{}x",
                    "{}{}",
                    " {} ",
                    "{\"iss\":\"https://hub.test\",}",
                ]))
            }
            _ => claims::change(random, &mut token.claims),
        }
    }
    token
}

/// A token of any key, for odd key sets.
pub(crate) fn of_any_key(random: &mut Random, aim: Aim<'_>) -> TokenSpec {
    let mut token = signed(
        random.pick_copied(&KeyName::ALL),
        claims::kubernetes(random, aim.issuer, aim.audience),
    );
    match random.below(4) {
        0 => token.header.remove("kid"),
        1 => token.header.set(
            "kid",
            Node::text(random.pick(&["rsa-a", "rsa-b", "p256-a", "p384", "nobody", "", "dup"])),
        ),
        _ => {}
    }
    if random.percent(25) {
        other_signature(random, &mut token);
    }
    token
}

fn signed(key: KeyName, claims: Node) -> TokenSpec {
    let header = Node::map([
        ("alg", Node::text(key.algorithm())),
        ("kid", Node::text(key.kid())),
    ]);
    TokenSpec {
        header,
        claims,
        key,
        algorithm: key.algorithm().to_owned(),
        damage: Vec::new(),
    }
}

/// Uses another key or algorithm. Header and signature may agree or not.
fn other_signature(random: &mut Random, token: &mut TokenSpec) {
    let algorithm = random.pick(&ALGORITHMS);
    if random.percent(40) {
        token.key = random.pick_copied(&KeyName::ALL);
    }
    if random.percent(70) {
        token.header.set("alg", Node::text(algorithm));
    }
    if random.percent(70) {
        algorithm.clone_into(&mut token.algorithm);
    }
}

fn header(random: &mut Random, token: &mut TokenSpec) {
    let (name, value) = random.pick_copied(&HEADERS);
    match random.below(4) {
        0 => token.header.push(name, Node::raw(value)),
        1 => token.header.remove(name),
        2 if random.percent(10) => {
            token.header = Node::raw(random.pick(&[
                "",
                "{",
                "[]",
                "null",
                "{}",
                "\"x\"",
                "{\"alg\":\"ES256\"}x",
            ]))
        }
        _ => token.header.set(name, Node::raw(value)),
    }
}

fn damage(random: &mut Random, token: &TokenSpec) -> Damage {
    match random.below(16) {
        0 => Damage::FlipSignature,
        1 => {
            let mut other = token.claims.clone();
            claims::change(random, &mut other);
            Damage::SwapClaims(other)
        }
        2 => Damage::DropSignature,
        3 => Damage::CutSignature,
        4 => Damage::Pad,
        5 => Damage::StandardAlphabet,
        6 => Damage::ExtraPart,
        7 => Damage::TwoParts,
        8 | 9 => Damage::Before(
            random
                .pick(&[" ", "\n", "{", "Bearer ", "\u{feff}", "."])
                .to_owned(),
        ),
        10 | 11 => Damage::After(
            random
                .pick(&[" ", "\n", "\r\n", "=", ".", "A", "\u{a0}"])
                .to_owned(),
        ),
        12 | 13 => Damage::Inside(
            random
                .pick(&[" ", "\n", "\t", "=", "+", "/", "é", "*"])
                .to_owned(),
        ),
        14 => Damage::FlattenedJson,
        _ => Damage::Whole(
            random
                .pick(&[
                    "",
                    ".",
                    "..",
                    "...",
                    "a.b.c",
                    "{}",
                    "e30.e30.",
                    "e30.e30.e30",
                    "x",
                ])
                .to_owned(),
        ),
    }
}

const ALGORITHMS: [&str; 20] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "none", "HS256", "HS384", "HS512", "None", "rs256", "RS1", "", "ES256K", "dir",
];

const HEADERS: [(&str, &str); 36] = [
    ("alg", "\"none\""),
    ("alg", "\"\""),
    ("alg", "null"),
    ("alg", "1"),
    ("alg", "[\"ES256\"]"),
    ("ALG", "\"ES256\""),
    ("Alg", "\"none\""),
    ("alg", "\"es256\""),
    ("kid", "1"),
    ("kid", "null"),
    ("kid", "\"\""),
    ("kid", "\"nobody\""),
    ("kid", "\"p256-b\""),
    ("KID", "\"p256-a\""),
    ("kid", "[]"),
    ("kid", "\"P256-A\""),
    ("typ", "\"JWT\""),
    ("typ", "\"at+jwt\""),
    ("typ", "1"),
    ("typ", "null"),
    ("crit", "[\"exp\"]"),
    ("crit", "[\"b64\"]"),
    ("crit", "[]"),
    ("crit", "null"),
    ("crit", "\"b64\""),
    ("b64", "false"),
    ("b64", "true"),
    ("jwk", "{}"),
    ("jwk", "null"),
    ("jwk", "{\"kty\":\"oct\",\"k\":\"AAAA\"}"),
    ("x5c", "[]"),
    ("x5c", "\"x\""),
    ("nonce", "\"n\""),
    ("nonce", "1"),
    ("cty", "\"JWT\""),
    ("zip", "\"DEF\""),
];
