#![allow(clippy::unwrap_used)]

use proptest::prelude::{Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use serde_json::Value;

use super::{JsonError, JsonLimits, read_object};

const LIMITS: JsonLimits = JsonLimits {
    bytes: 4096,
    depth: 4,
};

fn read(text: &str) -> Result<Value, JsonError> {
    read_object(text.as_bytes(), LIMITS).map(Value::Object)
}

#[test]
fn an_object_reads_as_serde_json_reads_it() {
    let text = r#" {"a":[1,-2,3.5,true,null,"\u00e9\ud83d\ude00"],"b":{"c":{}},"d":18446744073709551615} "#;
    assert_eq!(
        read(text).unwrap(),
        serde_json::from_str::<Value>(text).unwrap()
    );
}

#[test]
fn a_name_stands_once_at_every_level_however_it_is_escaped() {
    for text in [
        r#"{"sub":"a","sub":"a"}"#,
        r#"{"sub":"a","\u0073ub":"b"}"#,
        r#"{"a":{"namespace":1,"namespace":2}}"#,
        r#"{"a":[{"b":1},{"c":1,"c":1}]}"#,
        r#"{"":1,"":1}"#,
    ] {
        assert!(
            matches!(read(text), Err(JsonError::DuplicateMember { .. })),
            "{text}"
        );
    }
    assert!(read(r#"{"a":{"b":1},"b":{"a":1}}"#).is_ok());
    assert!(read(r#"{"sub":1,"Sub":1}"#).is_ok());
}

#[test]
fn depth_counts_objects_and_arrays() {
    assert!(read(r#"{"a":[{"b":[]}]}"#).is_ok());
    assert_eq!(read(r#"{"a":[{"b":[[]]}]}"#), Err(JsonError::TooDeep(4)));
    let bomb = format!("{{\"a\":{}", "[".repeat(3000));
    assert_eq!(read(&bomb), Err(JsonError::TooDeep(4)));
}

#[test]
fn size_is_counted_before_anything_else() {
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(4096 - 8));
    assert_eq!(text.len(), 4096);
    assert!(read(&text).is_ok());
    assert_eq!(
        read(&format!("{text} ")),
        Err(JsonError::TooLarge {
            found: 4097,
            limit: 4096
        })
    );
}

#[test]
fn what_is_not_one_object_is_refused() {
    assert_eq!(read("\u{feff}{}"), Err(JsonError::ByteOrderMark));
    assert_eq!(
        read_object(b"{\"a\":\"\xff\"}", LIMITS),
        Err(JsonError::NotUtf8)
    );
    assert_eq!(
        read_object(b"{\"a\":\"\xed\xa0\x80\"}", LIMITS),
        Err(JsonError::NotUtf8)
    );
    for text in ["{}{}", "{} x", "{}\0", "{},"] {
        assert_eq!(read(text), Err(JsonError::TrailingBytes), "{text:?}");
    }
    for text in ["[]", "1", "\"a\"", "null", "true"] {
        assert_eq!(read(text), Err(JsonError::NotAnObject), "{text}");
    }
    for text in [
        "",
        " ",
        "{",
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        "{'a':1}",
        "{a:1}",
        r#"{"a":01}"#,
        r#"{"a":1e999}"#,
        r#"{"a":NaN}"#,
    ] {
        assert!(
            matches!(read(text), Err(JsonError::Syntax { .. })),
            "{text}"
        );
    }
    for text in [
        r#"{"a":"\ud800"}"#,
        r#"{"a":"\udc00"}"#,
        r#"{"a":"\ud800\u0041"}"#,
        "{\"a\":\"\n\"}",
        "/**/{}",
        r#"{"a":"\x41"}"#,
    ] {
        assert!(
            matches!(read(text), Err(JsonError::Syntax { .. })),
            "{text}"
        );
    }
}

#[test]
fn an_error_repeats_nothing_of_the_text() {
    for text in [
        r#"{"hunter2":1,"hunter2":1}"#,
        r#"{"hunter2"#,
        r#"{"a":hunter2}"#,
        "{}hunter2",
    ] {
        let error = read(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        proptest::strategy::Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = read_object(&bytes, LIMITS);
    }

    #[test]
    fn any_json_like_text_is_read_or_refused(text in "[{}\\[\\]\",:\\\\ua01 .eE+-]{0,64}") {
        let _ = read(&text);
    }

    #[test]
    fn what_serde_json_writes_is_read_back(members in prop::collection::btree_map(".*", value(), 0..4)) {
        let object: Value = members.into_iter().collect();
        let limits = JsonLimits { bytes: 1 << 20, depth: 8 };
        prop_assert_eq!(read_object(object.to_string().as_bytes(), limits).map(Value::Object), Ok(object));
    }
}
