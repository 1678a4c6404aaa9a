//! Generates what attackers and old habits put into expressions: odd times, patterns, escapes,
//! optionals behind `dyn`, ranges that end before they start, and constants that fail while the
//! program is compiled. [`Maker`](super::expression::Maker) mixes these with the usual forms.

mod grammar;

pub(crate) use self::grammar::{FORMS, LEAVES};

use super::expression::{Maker, Scope};
use super::{optional, several};
use crate::differential::node::Node;
use crate::random::Random;

/// Whether a leaf uses no claim.
fn without_claims(text: &str) -> bool {
    !text.contains("claims")
}

/// A random leaf of that type.
pub(crate) fn leaf(random: &mut Random, scope: Scope, wanted: &str) -> Option<&'static str> {
    let (_, all) = LEAVES.iter().find(|(kind, _)| *kind == wanted)?;
    let allowed: Vec<&'static str> = all
        .iter()
        .copied()
        .filter(|text| scope == Scope::Claims || without_claims(text))
        .collect();
    (!allowed.is_empty()).then(|| allowed[random.below(allowed.len())])
}

/// A random form of that type.
pub(crate) fn form(random: &mut Random, wanted: &str) -> Option<&'static str> {
    let (_, all) = FORMS.iter().find(|(kind, _)| *kind == wanted)?;
    Some(all[random.below(all.len())])
}

/// A whole expression; some are damaged afterwards.
pub(crate) fn expression(random: &mut Random, scope: Scope, wanted: &str) -> String {
    if random.percent(6) {
        return random.pick(&LITERALS).to_owned();
    }
    if random.percent(5) {
        return several::expression(random);
    }
    if random.percent(15)
        && let Some(text) = optional::expression(random, scope, wanted)
    {
        return text;
    }
    let depth = random.pick_copied(&[1, 1, 2, 2, 3]);
    let text = Maker::hostile(random, scope).expression(wanted, depth);
    if random.percent(8) {
        damaged(random, &text)
    } else {
        text
    }
}

/// Removes, doubles, replaces or inserts one or two characters.
fn damaged(random: &mut Random, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(2) {
        let place = random.below(characters.len());
        let odd = random.pick_copied(&[
            '\'', '"', '(', ')', '[', ']', '{', '}', '.', '?', ':', ',', '!', '-', '\\', '`', '#',
            '$', ';', '@', '\t', '\n', '\u{a0}', 'é', '\u{e000}', '0', 'u', 'r', 'b',
        ]);
        match (random.below(4), characters.get(place).copied()) {
            (0, Some(_)) => drop(characters.remove(place)),
            (1, Some(same)) => characters.insert(place, same),
            (2, Some(_)) => characters[place] = odd,
            _ => characters.insert(place, odd),
        }
    }
    characters.into_iter().collect()
}

/// Literals that are refused, or that are read in an unusual way.
pub(crate) const LITERALS: [&str; 40] = [
    "'\\U00110000'",
    "'\\UFFFFFFFF'",
    "'\\U80000041'",
    "'\\ud800'",
    "'\\U0010FFFF'",
    "'\\u12'",
    "'\\x4'",
    "'\\400'",
    "'\\8'",
    "'\\'",
    "b'\\u0041'",
    "b'\\377'",
    "string(b'\\xc3\\xa9')",
    "r'\\U00110000'",
    "'''a\n'b'''",
    "\"\"\"a\"\"\"\"",
    "'a\nb'",
    "9223372036854775808",
    "-9223372036854775808",
    "--9223372036854775808",
    "0x8000000000000000",
    "-0x8000000000000000",
    "18446744073709551616u",
    "1e309",
    "-1e309",
    "1e-400",
    "00",
    "1.e1",
    "0xg",
    "1u1",
    "true.x",
    "a`b`",
    "claims.`sub`",
    "claims.`dash-ed`",
    "claims.in",
    "claims.as",
    "claims.true",
    "in",
    "__result__",
    ".claims.sub",
];

/// Adds the claims that only hostile expressions use.
pub(crate) fn claims(random: &mut Random, claims: &mut Node) {
    for (name, values) in CLAIMS {
        if random.percent(70) {
            claims.set(name, Node::raw(random.pick(values)));
        }
    }
    if random.percent(25) {
        claims.set("deep", Node::raw(deep(random)));
    }
}

const CLAIMS: &[(&str, &[&str])] = &[
    (
        "oddtime",
        &[
            "\"2026-01-02T03:04:05,5Z\"",
            "\"2026-01-02T3:04:05Z\"",
            "\"2026-01-02T03:04:05+24:00\"",
            "\"2026-01-02T03:04:05+23:60\"",
            "\"2026-01-02T03:04:05.Z\"",
            "\"2026-01-02T03:04:60Z\"",
            "\"2026-02-30T03:04:05Z\"",
            "\"0000-12-31T23:59:59Z\"",
            "\"9999-12-31T23:59:59-01:00\"",
            "\"2026-01-02t03:04:05z\"",
            "\"2026-01-02T03:04:05\"",
            "\"2026-01-02 03:04:05Z\"",
        ],
    ),
    (
        "odddur",
        &[
            "\"1h2h\"",
            "\".5s\"",
            "\"1.s\"",
            "\"+3m\"",
            "\"1\"",
            "\"9223372036854775808ns\"",
            "\"1µs\"",
            "\"\"",
        ],
    ),
    (
        "odd",
        &[
            "\"\\ue000\"",
            "\"\\uf8ff\\uffff\"",
            "\"\\ufdd0\"",
            "\"\\u202e\"",
            "\"\\u0378\"",
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\"\\\"\\\\\"",
            "\"\\ud83f\\udffe\"",
        ],
    ),
    (
        "huge",
        &["1e400", "-1e400", "1e309", "123456789e999", "1e308"],
    ),
    ("hugelist", &["[1,1e400]", "[{\"a\":1e400}]", "[1e308]"]),
    ("negzero", &["-0", "-0.0", "-0e5", "0.0", "-1e-400"]),
];

/// A payload that is nested some hundred to some thousand levels deep.
fn deep(random: &mut Random) -> String {
    let depth = random.pick_copied(&[100, 198, 200, 210, 1000, 9990, 10_010]);
    match random.below(3) {
        0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        _ => format!(
            "{}{}{}",
            "[{\"a\":".repeat(depth / 2),
            "null",
            "}]".repeat(depth / 2)
        ),
    }
}
