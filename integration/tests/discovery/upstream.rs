//! The hub returns its documents broken in every way, one document at a time.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use serde_json::Value;

use super::setup::{Behind, METADATA, published};

const UNREACHABLE: &str = "HubUnreachable";
const FORBIDDEN: &str = "HubDiscoveryForbidden";
const INVALID: &str = "HubDiscoveryInvalid";

pub(super) async fn broken(world: Arc<World>, path: &'static str) -> TestResult {
    let name = if path == METADATA {
        "broken-metadata"
    } else {
        "broken-keys"
    };
    let behind = Behind::start(&world, name).await?;
    let expected = published(&behind.broker).await?;
    let mut cases = cases(&behind.proxy.url());
    if path == METADATA {
        let sound: Value = world.hub().admin().get(METADATA).await?;
        cases.extend(other_issuers(&sound));
    }
    for (what, fault, reason) in cases {
        let rule = behind.proxy.add(Rule::on(Method::GET, path, fault));
        behind
            .reload_signal("failure", reason)
            .await
            .map_err(|error| format!("{what}: {error}"))?;
        assert_eq!(published(&behind.broker).await?, expected, "{what}");
        behind.proxy.remove(rule);
    }
    assert_eq!(
        behind.proxy.count(&Method::GET, "/elsewhere"),
        0,
        "a redirect was followed"
    );
    behind.reload_signal("success", "Ready").await?;
    assert_eq!(published(&behind.broker).await?, expected);
    let log = behind.broker.log()?;
    for reason in [UNREACHABLE, FORBIDDEN, INVALID] {
        assert!(
            log.lines()
                .any(|line| line.contains("what was published before stays")
                    && line.contains(reason)),
            "{reason} is not logged"
        );
    }
    assert!(
        !log.contains("secret-of-the-upstream"),
        "the upstream's body is in the log"
    );
    Ok(())
}

fn cases(proxy: &str) -> Vec<(&'static str, Fault, &'static str)> {
    let answer = |code: u16, body: &[u8]| Fault::Status {
        status: StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        headers: Vec::new(),
        body: body.to_vec(),
    };
    let json = |body: Vec<u8>| Fault::ReplaceBody {
        body,
        content_type: HeaderValue::from_static("application/json"),
    };
    let html = b"<html>secret-of-the-upstream</html>".to_vec();
    let elsewhere = HeaderValue::from_str(&format!("{proxy}/elsewhere"))
        .unwrap_or(HeaderValue::from_static("/elsewhere"));
    let redirect = |status| Fault::Status {
        status,
        headers: vec![(header::LOCATION, elsewhere.clone())],
        body: Vec::new(),
    };
    vec![
        ("an empty body", answer(200, b""), INVALID),
        ("204", answer(204, b""), INVALID),
        ("a body that breaks off", Fault::HalfBody, UNREACHABLE),
        (
            "half of the JSON",
            json(b"{\"issuer\":\"https://kub".to_vec()),
            INVALID,
        ),
        ("another JSON", json(b"[1]".to_vec()), INVALID),
        ("401", answer(401, b"secret-of-the-upstream"), FORBIDDEN),
        ("403", answer(403, b"secret-of-the-upstream"), FORBIDDEN),
        ("404", answer(404, b"secret-of-the-upstream"), INVALID),
        ("406", answer(406, b"secret-of-the-upstream"), INVALID),
        ("429", answer(429, b"secret-of-the-upstream"), UNREACHABLE),
        ("500", answer(500, b"secret-of-the-upstream"), UNREACHABLE),
        ("503 with HTML", answer(503, &html), UNREACHABLE),
        (
            "200 with HTML",
            Fault::ReplaceBody {
                body: html,
                content_type: HeaderValue::from_static("text/html"),
            },
            INVALID,
        ),
        ("301", redirect(StatusCode::MOVED_PERMANENTLY), INVALID),
        ("302", redirect(StatusCode::FOUND), INVALID),
        ("307", redirect(StatusCode::TEMPORARY_REDIRECT), INVALID),
        (
            "10 MB",
            json(format!("{{\"padding\":\"{}\"}}", "x".repeat(10 << 20)).into_bytes()),
            UNREACHABLE,
        ),
        (
            "2 MB",
            json(format!("{{\"padding\":\"{}\"}}", "x".repeat(2 << 20)).into_bytes()),
            INVALID,
        ),
        ("a byte a second", Fault::ByteASecond, UNREACHABLE),
        ("a broken connection", Fault::Drop, UNREACHABLE),
    ]
}

/// Changes of the issuer: to another name, by a slash, by case, and removed.
fn other_issuers(sound: &Value) -> Vec<(&'static str, Fault, &'static str)> {
    let issuer = sound["issuer"].as_str().unwrap_or_default().to_owned();
    let with = |what, change: &dyn Fn(&mut Value)| {
        let mut document = sound.clone();
        change(&mut document);
        let body = document.to_string().into_bytes();
        (
            what,
            Fault::ReplaceBody {
                body,
                content_type: HeaderValue::from_static("application/json"),
            },
            INVALID,
        )
    };
    vec![
        with("another issuer", &|document| {
            document["issuer"] = "https://evil.example.com".into()
        }),
        with("the issuer and a slash", &|document| {
            document["issuer"] = format!("{issuer}/").into()
        }),
        with("the issuer in capitals", &|document| {
            document["issuer"] = issuer.to_uppercase().into()
        }),
        with("no issuer", &|document| document["issuer"] = Value::Null),
    ]
}
