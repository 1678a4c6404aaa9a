//! A hub whose own `jwks_uri` points elsewhere.

use std::sync::Arc;

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::World;
use serde_json::Value;

use super::setup::{Behind, METADATA, published};

pub(super) async fn is_never_followed(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "jwks-uri").await?;
    let expected = published(&behind.broker).await?;
    let mut document: Value = world.hub().admin().get(METADATA).await?;
    document["jwks_uri"] = format!("{}/elsewhere", behind.proxy.url()).into();
    document["jku"] = document["jwks_uri"].clone();
    let content_type = HeaderValue::from_static("application/json");
    let body = document.to_string().into_bytes();
    behind.proxy.add(Rule::on(
        Method::GET,
        METADATA,
        Fault::ReplaceBody { body, content_type },
    ));
    let before = behind.upstream_reads();
    behind.reload_signal("success", "Ready").await?;
    assert!(behind.upstream_reads() > before);
    for method in [Method::GET, Method::HEAD, Method::POST] {
        assert_eq!(behind.proxy.count(&method, "/elsewhere"), 0, "{method}");
    }
    assert_eq!(
        published(&behind.broker).await?,
        expected,
        "and nothing of it is published"
    );
    Ok(())
}
