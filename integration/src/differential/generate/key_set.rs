//! Generates key sets: a sound one, and odd ones.

use crate::differential::keys::{KeyName, SigningKeys};
use crate::differential::node::Node;
use crate::random::Random;

/// Every key with its `kid`, as a careful issuer publishes them.
pub(crate) fn sound(keys: &SigningKeys) -> Node {
    let published = [KeyName::RsaA, KeyName::P256A, KeyName::P384, KeyName::P521];
    set(published.into_iter().map(|key| entry(keys, key)).collect())
}

/// Some keys, with random changes.
pub(crate) fn odd(random: &mut Random, keys: &SigningKeys) -> Node {
    let mut entries: Vec<Node> = KeyName::ALL
        .into_iter()
        .filter(|_| random.percent(65))
        .map(|key| entry(keys, key))
        .collect();
    let original = entries.clone();
    for _ in 0..random.below(3) {
        let place = random.below(entries.len());
        if random.percent(20) {
            entries.push(Node::raw(random.pick(&FOREIGN_KEY_ENTRIES)));
        } else if let Some(entry) = entries.get_mut(place) {
            change(random, keys, entry);
        }
    }
    if random.percent(10) {
        entries.extend(original);
    }
    match random.below(30) {
        0 => Node::raw(random.pick(&[
            "",
            "{",
            "[]",
            "null",
            "{}",
            "\"x\"",
            "{\"keys\":null}",
            "{\"keys\":{}}",
            "{\"keys\":[null]}",
            "{\"keys\":[]}x",
            "<html>",
        ])),
        1 => Node::map([("KEYS", Node::List(entries))]),
        2 => Node::map([
            ("keys", Node::List(Vec::new())),
            ("keys", Node::List(entries)),
        ]),
        3 => Node::map([("other", Node::raw("1")), ("keys", Node::List(entries))]),
        _ => set(entries),
    }
}

fn set(entries: Vec<Node>) -> Node {
    Node::map([("keys", Node::List(entries))])
}

fn entry(keys: &SigningKeys, key: KeyName) -> Node {
    let mut jwk = keys.jwk(key);
    jwk.push("kid", Node::text(key.kid()));
    jwk.push("use", Node::text("sig"));
    jwk.push("alg", Node::text(key.algorithm()));
    jwk
}

fn change(random: &mut Random, keys: &SigningKeys, entry: &mut Node) {
    match random.below(16) {
        14 => private_rsa(random, keys, entry),
        15 => {
            let chain: Vec<&String> = (0..=random.below(2))
                .map(|_| &keys.certificates()[random.below(keys.certificates().len())])
                .collect();
            entry.set("x5c", Node::texts(&chain));
        }
        0 => entry.remove("kid"),
        1 => entry.set(
            "kid",
            Node::raw(random.pick(&[
                "\"dup\"",
                "\"\"",
                "null",
                "1",
                "\"rsa-a\"",
                "\"p256-a\"",
                "[]",
            ])),
        ),
        2 => entry.set(
            "use",
            Node::raw(random.pick(&["\"enc\"", "\"\"", "null", "1", "\"SIG\""])),
        ),
        3 => entry.set(
            "alg",
            Node::raw(random.pick(&["\"RS512\"", "\"none\"", "\"\"", "null", "1", "\"ES256\""])),
        ),
        4 => entry.set(
            "kty",
            Node::raw(random.pick(&[
                "\"AKP\"", "\"rsa\"", "\"oct\"", "\"OKP\"", "\"EC\"", "\"\"", "null", "1",
                "\"RSA\"",
            ])),
        ),
        5 => entry.set(
            "x5c",
            Node::raw(random.pick(&[
                "[]",
                "null",
                "[\"AAAA\"]",
                "\"x\"",
                "[1]",
                "[\"\"]",
                "[\"!\"]",
            ])),
        ),
        6 => entry.set(
            "x5t",
            Node::raw(random.pick(&[
                "\"\"",
                "null",
                "\"AAAA\"",
                "1",
                "\"47DEQpj8HBSa-_TImW-5JCeuQeQ\"",
                "\"!!\"",
            ])),
        ),
        7 => entry.set(
            "x5t#S256",
            Node::raw(random.pick(&[
                "\"\"",
                "\"AAAA\"",
                "1",
                "\"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU\"",
            ])),
        ),
        8 => entry.set(
            "crv",
            Node::raw(random.pick(&[
                "\"P-384\"",
                "\"P-256K\"",
                "\"secp256k1\"",
                "\"\"",
                "null",
                "\"P-256\"",
                "\"X25519\"",
            ])),
        ),
        9 => {
            let name = random.pick(&["x", "y", "n", "e"]);
            let value = random.pick(&[
                "\"\"",
                "null",
                "\"AQAB\"",
                "\"AA==\"",
                "\"A\"",
                "1",
                "\"!\"",
                "\"AAAB\"",
                "\"AQAAAAAAAAAB\"",
            ]);
            entry.set(name, Node::raw(value));
        }
        10 => {
            let name = random.pick(&["x", "y", "n", "e", "kty", "crv"]);
            entry.remove(name);
        }
        11 => entry.set("d", private(random, keys)),
        12 => entry.set(
            random.pick(&["key_ops", "x5u", "ext", "unknown", "k", "p"]),
            Node::raw(random.pick(&["[\"verify\"]", "1", "\"x\"", "null", "\"AAAA\""])),
        ),
        _ => {
            let name = random.pick(&["KTY", "Kid", "CRV", "N"]);
            entry.push(
                name,
                Node::raw(random.pick(&["\"RSA\"", "\"EC\"", "\"dup\"", "1"])),
            );
        }
    }
}

/// Adds private members of an RSA key: its own or another key's, all or some.
fn private_rsa(random: &mut Random, keys: &SigningKeys, entry: &mut Node) {
    let other = random.pick_copied(&[KeyName::RsaA, KeyName::RsaB]);
    if random.percent(80) {
        *entry = self::entry(
            keys,
            random.pick_copied(&[KeyName::RsaA, KeyName::RsaA, KeyName::RsaB]),
        );
    }
    for (name, number) in keys.private_rsa(other).unwrap_or_default() {
        // Without one of these members, Go computes them itself.
        if !matches!(name, "dp" | "dq" | "qi") || random.percent(80) {
            entry.set(name, number);
        }
    }
    if random.percent(20) {
        entry.set(
            random.pick(&["d", "p", "q"]),
            Node::raw(random.pick(&["\"AQAB\"", "\"\"", "null", "\"AA\""])),
        );
    }
}

fn private(random: &mut Random, keys: &SigningKeys) -> Node {
    let scalar = keys.private_scalar(random.pick_copied(&[
        KeyName::P256A,
        KeyName::P256B,
        KeyName::P384,
        KeyName::P521,
    ]));
    match scalar {
        Some(scalar) if random.percent(60) => Node::text(scalar),
        _ => Node::raw(random.pick(&["\"AQAB\"", "\"\"", "null", "1"])),
    }
}

/// Entries of key types that this issuer does not sign with.
const FOREIGN_KEY_ENTRIES: [&str; 12] = [
    r#"{"kty":"AKP","alg":"ML-DSA-44","pub":"AAAA","kid":"pq"}"#,
    r#"{"kty":"oct","k":"c2VjcmV0","kid":"p256-a"}"#,
    r#"{"kty":"oct","kid":"empty"}"#,
    r#"{"kty":"OKP","crv":"X25519","x":"hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo","kid":"x"}"#,
    r#"{"kty":"OKP","crv":"Ed25519","x":"AA","kid":"short"}"#,
    r#"{"kty":"OKP","crv":"Ed448","x":"AA","kid":"448"}"#,
    "{}",
    "null",
    "1",
    r#"{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"small"}"#,
    r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA","kid":"off"}"#,
    r#"{"kty":"RSA","kid":"bare"}"#,
];
