//! A hub with more keys than some cloud providers read.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use serde_json::{Value, json};

use super::setup::{Behind, KEYS, published};

/// All keys are published, the newest included. The log and a metric report how many there are.
pub(super) async fn are_an_alarm(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "many-keys").await?;
    let warning = "verifiers that read 100 at most";
    assert!(!behind.broker.log()?.contains(warning));
    assert_eq!(behind.broker.metric("keyferry_published_keys").await?, 1.0);
    let own: Value = world.hub().admin().get(KEYS).await?["keys"][0].take();
    let further = (0..100).map(|number| {
        let mut key = own.clone();
        key["kid"] = format!("key-{number:03}").into();
        key
    });
    let keys: Vec<Value> = further.chain([own.clone()]).collect();
    let content_type = HeaderValue::from_static("application/jwk-set+json");
    let body = json!({ "keys": keys }).to_string().into_bytes();
    behind.proxy.add(Rule::on(
        Method::GET,
        KEYS,
        Fault::ReplaceBody { body, content_type },
    ));
    behind.reload_signal("success", "Ready").await?;
    // One reading is not enough, because a key set may appear for a moment only.
    tokio::time::sleep(Duration::from_secs(11)).await;
    for _ in 0..2 {
        behind.reload_signal("success", "Ready").await?;
    }
    let [_, keys] = published(&behind.broker).await?;
    let keys = keys.json()?;
    let kids: Vec<&str> = keys["keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|key| key["kid"].as_str())
        .collect();
    assert_eq!(kids.len(), 101);
    assert!(
        kids.contains(&own["kid"].as_str().unwrap_or_default()),
        "the key that signs is left out"
    );
    assert_eq!(
        behind.broker.metric("keyferry_published_keys").await?,
        101.0
    );
    assert_eq!(
        behind.broker.log()?.matches(warning).count(),
        1,
        "it is said once"
    );
    Ok(())
}
