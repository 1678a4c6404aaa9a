//! Tests the content of the documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, World, caller_token};
use serde_json::Value;

use super::setup::published;

pub(super) async fn documents_are_sound(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let [metadata, keys] = published(broker).await?;
    assert_eq!(
        (metadata.content_type.as_str(), keys.content_type.as_str()),
        ("application/json", "application/jwk-set+json")
    );
    assert!(
        metadata.bytes.len() < 1024,
        "{} bytes",
        metadata.bytes.len()
    );
    no_member_twice(&metadata.bytes)?;
    let (metadata, keys) = (metadata.json()?, keys.json()?);
    nothing_empty(&metadata);
    nothing_empty(&keys);

    let token = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let (header, claims) = (part(&token, 0)?, part(&token, 1)?);
    assert_eq!(
        metadata["issuer"], claims["iss"],
        "byte for byte, with or without a slash at the end"
    );
    assert_eq!(
        metadata["jwks_uri"],
        format!("{}/openid/v1/jwks", broker.discovery_url())
    );
    let fetched = broker
        .http()
        .get(metadata["jwks_uri"].as_str().unwrap_or_default())
        .send()
        .await?;
    assert_eq!(fetched.status(), 200);
    assert_eq!(fetched.json::<Value>().await?, keys);

    let keys = keys["keys"].as_array().ok_or("no keys")?;
    let of_keys: BTreeSet<&str> = keys.iter().filter_map(|key| key["alg"].as_str()).collect();
    let stated = metadata["id_token_signing_alg_values_supported"]
        .as_array()
        .ok_or("no algorithms")?;
    assert_eq!(
        stated
            .iter()
            .filter_map(Value::as_str)
            .collect::<BTreeSet<_>>(),
        of_keys
    );
    assert!(of_keys.contains(header["alg"].as_str().unwrap_or_default()));

    let spki = der_of(&std::fs::read_to_string(
        &world.hub().signing().await.signing_key.public_path,
    )?)?;
    let kid = URL_SAFE_NO_PAD.encode(digest(&SHA256, &spki));
    assert_eq!(
        header["kid"],
        kid.as_str(),
        "the hub itself names its key so"
    );
    let key = keys
        .iter()
        .find(|key| key["kid"] == kid.as_str())
        .ok_or("the hub's key is not published")?;
    let members: BTreeSet<&str> = key
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        members,
        BTreeSet::from(["alg", "e", "kid", "kty", "n", "use"])
    );
    let modulus = URL_SAFE_NO_PAD.decode(key["n"].as_str().unwrap_or_default())?;
    assert!(
        modulus.len() >= 256 && modulus.first() != Some(&0),
        "2048 bits in their one spelling"
    );
    Ok(())
}

/// serde_json takes the last of two members of one name; a verifier may take the first.
fn no_member_twice(bytes: &[u8]) -> TestResult {
    let text = std::str::from_utf8(bytes)?;
    for name in serde_json::from_str::<Value>(text)?
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
    {
        assert_eq!(text.matches(&format!("\"{name}\":")).count(), 1, "{name}");
    }
    Ok(())
}

fn nothing_empty(value: &Value) {
    match value {
        Value::Object(members) => members.values().for_each(nothing_empty),
        Value::Array(items) => {
            assert!(!items.is_empty());
            items.iter().for_each(nothing_empty);
        }
        Value::String(text) => assert!(!text.is_empty()),
        other => assert!(!other.is_null()),
    }
}

fn part(token: &str, index: usize) -> Result<Value, TestError> {
    let part = token.split('.').nth(index).ok_or("no JWT")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part)?)?)
}

fn der_of(pem: &str) -> Result<Vec<u8>, TestError> {
    let text: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    Ok(STANDARD.decode(text)?)
}
