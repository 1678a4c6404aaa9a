#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
struct Item {
    version: Option<String>,
}

impl WatchedItem for Item {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

fn event(text: &str) -> Result<WatchEvent<Item>, serde_json::Error> {
    serde_json::from_reader(text.as_bytes())
}

#[test]
fn an_event_is_read_by_its_type() {
    let of = |kind: &str, object: serde_json::Value| {
        event(&format!(r#"{{"type":"{kind}","object":{object}}}"#)).unwrap()
    };
    let item = json!({ "version": "7", "long": ["x"] });
    for kind in ["ADDED", "MODIFIED"] {
        assert!(matches!(of(kind, item.clone()), WatchEvent::Set(item) if item.version.is_some()));
    }
    assert!(matches!(of("DELETED", item), WatchEvent::Gone(_)));
    let bookmark = json!({ "kind": "x", "metadata": { "resourceVersion": "9" } });
    assert!(matches!(of("BOOKMARK", bookmark), WatchEvent::Bookmark(Some(at)) if at == "9"));
    let gone = json!({ "kind": "Status", "code": 410, "message": "too old" });
    assert!(matches!(of("ERROR", gone), WatchEvent::Failed(status) if status.code == 410));
}

#[test]
fn what_is_no_event_is_refused() {
    for text in [
        r#"{"object":{},"type":"ADDED"}"#,
        r#"{"type":"ADDED"}"#,
        r#"{"type":"NEW","object":{}}"#,
        r#"{"type":"ADDED","object":{},"more":1}"#,
        r#"{"kind":"Status","code":410}"#,
        r#"{"type":"ADDED","object":{}"#,
        "[]",
    ] {
        assert!(event(text).is_err(), "{text}");
    }
}
