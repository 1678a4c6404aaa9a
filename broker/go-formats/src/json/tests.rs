#![allow(clippy::unwrap_used)]

use super::*;

fn syntax(text: &str) -> String {
    match Json::parse(text.as_bytes()) {
        Err(JsonFault::Syntax(reason)) => reason,
        other => format!("{other:?}"),
    }
}

#[test]
fn errors_are_in_the_words_of_go() {
    for (text, reason) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("x", "invalid character 'x' looking for beginning of value"),
        (
            "{x",
            "invalid character 'x' looking for beginning of object key string",
        ),
        ("{\"a\" 1", "invalid character '1' after object key"),
        (
            "{\"a\":1 2",
            "invalid character '2' after object key:value pair",
        ),
        (
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        ),
        ("[1 2", "invalid character '2' after array element"),
        (
            "[1,]",
            "invalid character ']' looking for beginning of value",
        ),
        ("01", "invalid character '1' after top-level value"),
        ("-x", "invalid character 'x' in numeric literal"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        (
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        ),
        (
            "trux",
            "invalid character 'x' in literal true (expecting 'e')",
        ),
        ("\"\n\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        (
            "\"\\u00g0\"",
            "invalid character 'g' in \\u hexadecimal character escape",
        ),
        (
            "'",
            "invalid character '\\'' looking for beginning of value",
        ),
    ] {
        assert_eq!(syntax(text), reason, "{text}");
    }
}

#[test]
fn texts_are_unescaped_and_repaired() {
    let read = |bytes: &[u8]| Json::parse(bytes).unwrap().to_text().unwrap();
    assert_eq!(read(br#""a\u00e9\ud83d\ude00\/""#), "aé😀/");
    assert_eq!(read(br#""\ud83dx""#), "\u{fffd}x");
    assert_eq!(read(br#""\ud83d\u0041""#), "\u{fffd}A");
    assert_eq!(read(br#""\udc00""#), "\u{fffd}");
    assert_eq!(read(b"\"\xff\xe2\x82\""), "\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn the_last_of_two_members_counts() {
    let value = Json::parse(br#"{"a":1,"a":2}"#).unwrap();
    assert_eq!(value.member("a"), Some(&Json::Number("2".to_owned())));
    assert_eq!(value.members().len(), 2);
}

#[test]
fn keys_fold_as_go_folds_them() {
    assert!(
        folds_to("ISS", "iss") && folds_to("i\u{17f}s", "iss") && folds_to("\u{212a}id", "kid")
    );
    assert!(!folds_to("is", "iss") && !folds_to("isß", "iss"));
}

#[test]
fn what_nests_deep_is_checked_and_not_kept() {
    let lists = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    let parse = |text: &str| Json::parse(text.as_bytes());
    assert!(!parse(&lists(MAX_DEPTH)).unwrap().nests_below(MAX_DEPTH));
    for depth in [MAX_DEPTH + 1, 1000, 10_000] {
        assert!(
            parse(&lists(depth)).unwrap().nests_below(MAX_DEPTH),
            "{depth}"
        );
        assert!(
            parse(&objects(depth)).unwrap().nests_below(MAX_DEPTH),
            "{depth}"
        );
    }
    assert_eq!(
        syntax(&lists(10_001)),
        "invalid character '[' exceeded max depth"
    );
    assert_eq!(
        syntax(&objects(100_000)),
        "invalid character '{' exceeded max depth"
    );
    let any_depth = Json::parse_at_any_depth(objects(100_000).as_bytes());
    assert!(any_depth.unwrap().nests_below(MAX_DEPTH));
    let around = |inner: &str| "[".repeat(300) + inner + &"]".repeat(300);
    for fine in ["", "1", " [ ] , { } ", "{\"a\":[],\"b\":{}}", "\"]\",null"] {
        assert!(parse(&around(fine)).is_ok(), "{fine}");
    }
    for (broken, reason) in [
        (",", "invalid character ',' looking for beginning of value"),
        ("1,", "invalid character ']' looking for beginning of value"),
        ("1 2", "invalid character '2' after array element"),
        (
            "{1",
            "invalid character '1' looking for beginning of object key string",
        ),
        ("{\"a\"]", "invalid character ']' after object key"),
        (
            "{\"a\":1]",
            "invalid character ']' after object key:value pair",
        ),
        (
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        ),
        ("}", "invalid character '}' looking for beginning of value"),
    ] {
        assert_eq!(syntax(&around(broken)), reason, "{broken}");
    }
    assert_eq!(syntax(&"[".repeat(300)), "unexpected end of JSON input");
}
