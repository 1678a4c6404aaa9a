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

/// The health of a watch, of which nothing is asked.
struct NoHealth;

impl WatchHealth for NoHealth {
    fn name(&self) -> &'static str {
        "things"
    }

    fn note_answer(&self) {}

    fn note_failure(&self, _: keyferry_api::moment::Moment) {}

    fn note_listed(&self) {}
}

/// A hub that restarts may accept a request and forget it.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_never_answered_is_asked_for_again() {
    let (sent, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let hub = tower::service_fn(move |request: http::Request<Body>| {
        let (answer, answered) = tokio::sync::oneshot::channel::<&'static str>();
        let _ = sent.send((request.uri().to_string(), answer));
        async move {
            let list = answered.await?;
            let response = http::Response::new(Body::from(list.as_bytes().to_vec()));
            Ok::<_, tokio::sync::oneshot::error::RecvError>(response)
        }
    });
    let client = Client::new(hub, "default");
    let clock = keyferry_platform::clock::SystemClock::start();
    let (changes, mut reports) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let report = |change: Change<Item>| {
            let _ = changes.send(matches!(change, Change::ListingDone));
        };
        follow_collection(&client, "/things", &NoHealth, &clock, report).await;
    });
    let list = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
    let begin = tokio::time::Instant::now();
    let (list_path, _unanswered) = requests.recv().await.unwrap();
    let (second_path, answer) = requests.recv().await.unwrap();
    assert_eq!(second_path, list_path);
    answer.send(list).unwrap();
    let (watch, _unanswered) = requests.recv().await.unwrap();
    assert!(watch.contains("watch=true"), "{watch}");
    assert!(begin.elapsed() < MAX_LIST_WAIT + LAST_PAUSE);
    let mut is_listed = false;
    while let Ok(done) = reports.try_recv() {
        is_listed |= done;
    }
    assert!(is_listed);
}
