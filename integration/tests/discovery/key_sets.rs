//! Valid JSON from the hub with keys that must not be published, and with keys that must be.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::World;
use serde_json::{Value, json};

use super::setup::{Behind, KEYS, published};

/// Keyferry uses nothing from such a set, because it shows that its server is not sound.
pub(super) async fn a_bad_one_is_not_published(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "bad-keys").await?;
    let expected = published(&behind.broker).await?;
    let (own, other) = (hub_key(&world).await?, other_key(&world).await?);
    let with = |member: &str, value: Value| {
        let mut key = own.clone();
        key[member] = value;
        key
    };
    let mut cases: Vec<(String, String)> = Vec::new();
    let mut case = |what: &str, keys: Value| {
        cases.push((what.to_owned(), json!({ "keys": keys }).to_string()))
    };
    for member in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        case(
            &format!("a private {member}"),
            json!([with(member, "c2VjcmV0LW9mLXRoZS1rZXk".into())]),
        );
    }
    case(
        "a private key beside a public one",
        json!([own, { "kty": "EC", "crv": "P-256", "kid": "x", "d": "c2VjcmV0LW9mLXRoZS1rZXk" }]),
    );
    case(
        "a private key of an unknown kind",
        json!([own, { "kty": "AKP", "kid": "x", "priv": "c2VjcmV0LW9mLXRoZS1rZXk" }]),
    );
    let mut same_kid = other.clone();
    same_kid["kid"] = own["kid"].clone();
    case("two keys under one kid", json!([own, same_kid]));
    case("no key", json!([]));
    case("null", Value::Null);
    case("no key that can be used", json!([akp()]));
    case("no kid", json!([with("kid", Value::Null)]));
    case("a key to encrypt with", json!([with("use", "enc".into())]));
    let many: Vec<Value> = (0..201)
        .map(|number| with("kid", format!("key-{number}").into()))
        .collect();
    case("201 keys", many.into());
    cases.push((
        "keys twice".to_owned(),
        format!("{{\"keys\":[{own}],\"keys\":[{own}]}}"),
    ));
    for (what, body) in cases {
        let rule = behind.proxy.add(replace_key_set(body));
        behind
            .reload_signal("failure", "HubDiscoveryInvalid")
            .await
            .map_err(|error| format!("{what}: {error}"))?;
        assert_eq!(published(&behind.broker).await?, expected, "{what}");
        behind.proxy.remove(rule);
    }
    assert!(
        !behind.broker.log()?.contains("c2VjcmV0LW9mLXRoZS1rZXk"),
        "a private key is in the log"
    );
    Ok(())
}

/// How long a key must be missing before it is withdrawn.
const ABSENCE: Duration = Duration::from_secs(61);
/// How long a new key must be listed before it is published.
const CANDIDACY: Duration = Duration::from_secs(11);

pub(super) async fn odd_keys_are_left_out_and_new_ones_taken_in(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "odd-keys").await?;
    let expected = published(&behind.broker).await?;
    let (own, other) = (hub_key(&world).await?, other_key(&world).await?);
    let mut adorned = own.clone();
    for (name, value) in [
        ("x5c", json!(["bm90IGEgY2VydGlmaWNhdGU="])),
        ("x5t", json!("!")),
        ("unheard-of", json!({ "of": [1] })),
    ] {
        adorned[name] = value;
    }
    let weak = json!({ "kty": "RSA", "kid": "weak", "alg": "RS256", "use": "sig", "e": "AQAB", "n": "q".repeat(171) });
    let unknown = json!({ "kty": "XYZ", "kid": "new", "alg": "XYZ" });
    let okp = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    for (what, keys) in [
        ("x5c and others", json!([adorned])),
        (
            "key types that poison old verifiers",
            json!([akp(), own, okp, unknown]),
        ),
        ("a weak key", json!([weak, own])),
        ("the same key twice", json!([own, own])),
    ] {
        let rule = behind
            .proxy
            .add(replace_key_set(json!({ "keys": keys }).to_string()));
        behind
            .reload_signal("success", "Ready")
            .await
            .map_err(|error| format!("{what}: {error}"))?;
        assert_eq!(
            published(&behind.broker).await?,
            expected,
            "{what}: the same bytes under the same ETag"
        );
        behind.proxy.remove(rule);
    }

    let rule = behind.proxy.add(replace_key_set(
        json!({ "keys": [own, akp(), other] }).to_string(),
    ));
    behind.reload_signal("success", "Ready").await?;
    assert_eq!(
        published(&behind.broker).await?,
        expected,
        "seen once, it might be a flash"
    );
    tokio::time::sleep(CANDIDACY).await;
    behind.reload_signal("success", "Ready").await?;
    let grown = published(&behind.broker).await?;
    assert!(
        grown[0].etag != expected[0].etag && grown[1].etag != expected[1].etag,
        "other bytes have another ETag"
    );
    let (metadata, keys) = (grown[0].json()?, grown[1].json()?);
    assert_eq!(
        metadata["id_token_signing_alg_values_supported"],
        json!(["ES256", "RS256"])
    );
    let mut kids = [own["kid"].clone(), other["kid"].clone()];
    kids.sort_by_key(Value::to_string);
    let seen: Vec<&Value> = keys["keys"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|key| &key["kid"])
        .collect();
    assert_eq!(seen, kids.iter().collect::<Vec<_>>());
    behind.proxy.remove(rule);

    let rule = behind
        .proxy
        .add(replace_key_set(json!({ "keys": [other, own] }).to_string()));
    behind.reload_signal("success", "Ready").await?;
    assert_eq!(
        published(&behind.broker).await?,
        grown,
        "the order of the hub changes nothing"
    );
    behind.proxy.remove(rule);
    behind.reload_signal("success", "Ready").await?;
    assert_eq!(
        published(&behind.broker).await?,
        grown,
        "it might have been another apiserver"
    );
    tokio::time::sleep(ABSENCE).await;
    behind.reload_signal("success", "Ready").await?;
    assert_eq!(published(&behind.broker).await?, expected);
    Ok(())
}

fn replace_key_set(body: String) -> Rule {
    let fault = Fault::ReplaceBody {
        body: body.into_bytes(),
        content_type: HeaderValue::from_static("application/jwk-set+json"),
    };
    Rule::on(Method::GET, KEYS, fault)
}

/// The key of the hub, as it serves it.
async fn hub_key(world: &World) -> Result<Value, TestError> {
    Ok(world.hub().admin().get(KEYS).await?["keys"][0].take())
}

/// A sound key of another hub, of another kind.
async fn other_key(world: &World) -> Result<Value, TestError> {
    Ok(world.old_hub().admin().get(KEYS).await?["keys"][0].take())
}

/// An ML-DSA public key (RFC 9964).
fn akp() -> Value {
    json!({ "kty": "AKP", "alg": "ML-DSA-44", "kid": "post-quantum", "pub": "q".repeat(1750) })
}
