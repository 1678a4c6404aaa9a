//! Texts that must not break anything: deep, long, growing and random ones.

use proptest::prelude::*;
use serde_json::json;

use super::{MINORS, inputs, on_a_small_stack, outcome};
use crate::*;

#[test]
fn deep_and_long_texts_end() {
    on_a_small_stack(|| {
        let (claims, _) = inputs();
        let wraps = [
            ("(", ")"),
            ("[", "]"),
            ("!", ""),
            ("dyn(", ")"),
            ("[1].map(x, ", ")"),
            ("true ? 1 : ", ""),
            ("{1: ", "}"),
        ];
        for minor in MINORS {
            let environment = Environment::new(minor);
            for depth in [10, 40, 89, 124, 125, 200, 248, 249, 250, 3000] {
                let wrapped = wraps
                    .iter()
                    .map(|(open, close)| format!("{}1{}", open.repeat(depth), close.repeat(depth)));
                let chains = ["1 + ", "true && ", "1 == 1 ? "]
                    .iter()
                    .map(|part| format!("{}1", part.repeat(depth)));
                let tails = [".a", "[0]", ".?a", ".optMap(x, x)", ".map(x, x)"]
                    .iter()
                    .map(|part| format!("claims{}", part.repeat(depth)));
                for text in wrapped.chain(chains).chain(tails) {
                    if let Ok(expression) = environment.compile(Scope::Claims, &text) {
                        let _ = expression.evaluate(Input::Claims(&claims));
                    }
                }
            }
        }
    });
}

#[test]
fn texts_nest_as_deep_as_in_the_api_server() {
    let environment = Environment::new(Minor::V1_37);
    // The start, what repeats, the middle, what closes each, the end, and how often kube-apiserver
    // 1.37 accepts it at most.
    let cases = [
        ("", "(", "true", ")", "", 249),
        ("", "true ? true : ", "true", "", "", 249),
        ("", "[", "1", "]", " != []", 249),
        ("claims.a", ".a", "", "", " == 1", 248),
        ("", "!(", "true", ")", "", 249),
        ("1", " + 1", "", "", " > 0", 249),
        ("", "1 + (", "1", ")", " > 0", 124),
        ("", "[1].map(x, ", "1", ")", " != []", 249),
        ("[1]", ".map(x, x)", "", "", " == [1]", 249),
        ("'a'", ".trim()", "", "", " == 'a'", 249),
        ("dyn([1])", "[0]", "", "", " == 1", 249),
        ("", "{1: ", "1", "}", " != {}", 249),
        ("'", "a", "", "", "' != ''", 99_992),
    ];
    for (start, open, middle, close, end, most) in cases {
        let text = |count: usize| {
            let (open, close) = (open.repeat(count), close.repeat(count));
            format!("{start}{open}{middle}{close}{end}")
        };
        let compile = |count: usize| environment.compile(Scope::Claims, &text(count));
        assert!(compile(most).is_ok(), "{start}{open}: {most}");
        let refused = compile(most + 1);
        assert!(
            matches!(refused, Err(CompileFault::Refused { .. })),
            "{start}{open}: {most}: {refused:?}"
        );
    }
}

/// Texts that are short for what they become.
#[test]
fn what_grows_with_each_step_is_bounded() {
    let zeros = |count: usize| vec!["0"; count].join(",");
    let cases = [
        // Each doubles a type, a value, or the tree.
        (Minor::V1_36, format!("[1]{}", ".map(x, {x: x})".repeat(60))),
        (Minor::V1_36, format!("[1]{}", ".map(x, [x, x])".repeat(60))),
        (
            Minor::V1_36,
            format!("[1]{} == []", ".map(x, {1: x, 2: x})".repeat(60)),
        ),
        (
            Minor::V1_30,
            format!("optional.of(1){}", ".optMap(x, x)".repeat(60)),
        ),
        (
            Minor::V1_36,
            format!("optional.of(1){}", ".optMap(x, x)".repeat(60)),
        ),
        // The accumulator contains its earlier values.
        (
            Minor::V1_30,
            format!("[{}].map(x, dyn(__result__))", zeros(400)),
        ),
        (
            Minor::V1_32,
            format!("[{}].map(x, dyn(__result__)).size() == 1", zeros(9000)),
        ),
    ];
    on_a_small_stack(move || {
        let (claims, _) = inputs();
        for (minor, text) in cases {
            let undetermined = match Environment::new(minor).compile(Scope::Claims, &text) {
                Err(fault) => matches!(fault, CompileFault::Undetermined(_)),
                Ok(expression) => matches!(
                    expression.evaluate(Input::Claims(&claims)),
                    Err(EvaluateFault::Undetermined(_))
                ),
            };
            assert!(undetermined, "{minor} {}", text.get(..80).unwrap_or(&text));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_breaks_anything(text in "\\PC{0,60}") {
        let _ = outcome(&Environment::new(Minor::V1_37), Scope::Claims, &text);
    }

    #[test]
    fn no_pieces_break_anything(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..14)) {
        let text = pieces.concat();
        for minor in [Minor::V1_30, Minor::V1_36] {
            let _ = outcome(&Environment::new(minor), Scope::Claims, &text);
        }
    }

    #[test]
    fn no_pattern_breaks_anything(pieces in prop::collection::vec(prop::sample::select(PATTERNS), 0..10)) {
        let text = format!("'aB1'.matches({})", json!(pieces.concat()));
        let _ = outcome(&Environment::new(Minor::V1_36), Scope::Claims, &text);
    }
}

const PIECES: &[&str] = &[
    "claims",
    ".sub",
    ".?obj",
    "[0]",
    "[?'a']",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'a'",
    "1",
    "1.5",
    "2u",
    "-",
    "!",
    " + ",
    " == ",
    " in ",
    " && ",
    " ? ",
    " : ",
    ", ",
    ".map(x, ",
    ".all(i, v, ",
    ".optMap(o, ",
    "has(",
    "dyn(",
    ".format(",
    ".split(",
    ".sort()",
    "x",
    "'%s'",
    "b'\\xff'",
    "r'\\d'",
    "timestamp(",
    "duration('1h')",
    ".getHours('01:00')",
    "type(",
    "null",
    "true",
    ".orValue(",
    "\n",
    "//",
];

const PATTERNS: &[&str] = &[
    "a",
    "B",
    "[",
    "]",
    "^",
    "-",
    "\\d",
    "\\",
    "(",
    "(?i)",
    "(?P<n>",
    ")",
    "*",
    "+",
    "?",
    "{",
    "2",
    ",",
    "}",
    "|",
    "[:alpha:]",
    "\\x{41}",
    "\\Q",
    "\\E",
    ".",
    "$",
];
