//! The stored form: what is written is read, and nothing else is.

use serde_json::{Value, json};

use super::*;

fn full() -> KeySet {
    let mut seen = Sightings::default();
    let set = first(at(0));
    seen.note_reading(&set, "one", WAIT, at(0));
    set.apply_change(
        ReadyChange::Promote {
            fresh: key(2),
            asked_for: Some("2026-\"1".to_owned()),
        },
        &seen,
        at(200),
    )
}

fn document() -> Value {
    serde_json::from_str(&write_key_set(&full())).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let (set, read) = (full(), reread_key_set(&full()));
    assert_eq!(write_key_set(&set), write_key_set(&read));
    assert_eq!(read.binding, binding());
    assert_eq!(read.previous, set.previous);
    assert_eq!(read.handled_rotation.as_deref(), Some("2026-\"1"));
    assert_eq!(
        (read.current.published_at, read.next.published_at),
        (at(0).wall, at(200).wall)
    );
}

#[test]
fn a_full_document_fits() {
    let mut set = full();
    set.previous = (3..3 + MAX_PREVIOUS)
        .map(|index| PreviousKey {
            key: key(index).public().clone(),
            published_until: at(0).wall,
        })
        .collect();
    set.handled_rotation = Some("\u{1}".repeat(256));
    set.binding.audience = Audience::new("a".repeat(256)).unwrap();
    let text = write_key_set(&set);
    assert!(text.len() < MAX_STORED_BYTES / 2, "{} bytes", text.len());
    assert!(read_key_set(text.as_bytes()).is_ok());
}

#[test]
fn anything_else_is_refused() {
    type Edit = fn(&mut Value);
    let edits: &[(&str, Edit)] = &[
        ("version", |it| it["version"] = json!(2)),
        ("version", |it| {
            drop(it.as_object_mut().unwrap().remove("version"))
        }),
        ("target", |it| it["target"] = json!("../x")),
        ("issuer", |it| it["issuer"] = json!("http://a")),
        ("audience", |it| it["audience"] = json!(["a"])),
        ("unknown", |it| it["more"] = json!(1)),
        ("unknown", |it| {
            it["next"]["signsSince"] = json!("2026-01-01T00:00:00Z")
        }),
        ("unknown", |it| {
            it["previous"][0]["privateKey"] = json!("AA")
        }),
        ("current", |it| it["current"] = Value::Null),
        ("next", |it| {
            drop(it.as_object_mut().unwrap().remove("next"))
        }),
        ("kid", |it| it["current"]["kid"] = it["next"]["kid"].clone()),
        ("privateKey", |it| {
            it["current"]["privateKey"] = json!("AAAA")
        }),
        ("privateKey", |it| {
            it["current"]["privateKey"] = json!(format!(
                "{}=",
                it["current"]["privateKey"].as_str().unwrap()
            ))
        }),
        ("publishedAt", |it| {
            it["current"]["publishedAt"] = json!("2026-01-01T00:00:00.5Z")
        }),
        ("publishedAt", |it| {
            it["current"]["publishedAt"] = json!("1960-01-01T00:00:00Z")
        }),
        ("signsSince", |it| it["current"]["signsSince"] = json!(5)),
        ("previous", |it| it["previous"] = json!({})),
        ("previous", |it| {
            it["previous"] = json!(vec![it["previous"][0].clone(); MAX_PREVIOUS + 1])
        }),
        ("publicKey", |it| {
            it["previous"][0]["publicKey"] = json!("AAAA")
        }),
        ("kid", |it| it["previous"][0]["kid"] = json!("x")),
        ("handledRotation", |it| {
            it["handledRotation"] = json!("x".repeat(257))
        }),
        ("twice", |it| {
            it["next"]["privateKey"] = it["current"]["privateKey"].clone()
        }),
        ("twice", |it| {
            it["previous"] = json!([it["previous"][0], it["previous"][0]])
        }),
    ];
    for (what, edit) in edits {
        let mut edited = document();
        edit(&mut edited);
        if *what == "twice" && edited["next"]["privateKey"] == edited["current"]["privateKey"] {
            edited["next"]["kid"] = edited["current"]["kid"].clone();
        }
        let fault = read_key_set(edited.to_string().as_bytes()).unwrap_err();
        let expected = match *what {
            "version" => StoredFault::Version,
            "unknown" => StoredFault::Unknown,
            "twice" => StoredFault::Twice,
            member => StoredFault::Member(member),
        };
        assert_eq!(fault, expected, "{what}");
    }
    assert!(matches!(read_key_set(b"{}{}"), Err(StoredFault::Json(_))));
    assert!(matches!(
        read_key_set(&vec![b' '; MAX_STORED_BYTES + 1]),
        Err(StoredFault::Json(_))
    ));
    let twice = document()
        .to_string()
        .replacen("\"version\":1", "\"version\":1,\"version\":1", 1);
    assert!(matches!(
        read_key_set(twice.as_bytes()),
        Err(StoredFault::Json(_))
    ));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400), cut in 0usize..2000) {
        let _ = read_key_set(&bytes);
        let text = write_key_set(&full());
        let end = cut.min(text.len() - 1);
        proptest::prop_assert!(read_key_set(text.get(..end).unwrap().as_bytes()).is_err());
    }
}
