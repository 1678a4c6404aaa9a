//! Metrics show from outside whether every replica of a target has the published key set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, Broker, TENANT, World};

use super::setup::published;

/// The metric of kube-apiserver 1.36 and newer about the key set that it fetched last.
const OF_TARGET: &str = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";

pub(super) async fn show_what_targets_hold(world: Arc<World>) -> TestResult {
    let (broker, target) = (world.broker(), world.target_a());
    let [metadata, keys] = published(broker).await?;
    let hash: String = digest(&SHA256, &keys.bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let hash = format!("sha256:{hash}");
    let ours = exposition(broker).await?;
    assert!(
        ours.contains(&format!(
            "keyferry_published_document_info{{document=\"jwks\",hash=\"{hash}\"}} 1"
        )),
        "{hash} in {ours}"
    );

    // The target fetches the keys when the first token arrives.
    let token = world
        .hub()
        .token_request(TENANT, ACCOUNT, &[AUDIENCE_A], 600)
        .await?
        .token;
    let review = serde_json::json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        target
            .admin()
            .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await?;
        let theirs = target.admin().get_text("/metrics").await?;
        let lines: Vec<&str> = theirs
            .lines()
            .filter(|line| line.starts_with(OF_TARGET))
            .collect();
        if lines
            .iter()
            .any(|line| line.contains(&format!("hash=\"{hash}\"")))
        {
            break;
        }
        assert!(
            Instant::now() < limit,
            "the target does not say that it has {hash}: {lines:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let keys = keys.json()?;
    let kid = keys["keys"][0]["kid"].as_str().ok_or("no kid")?;
    for which in ["first", "last"] {
        let seen = broker
            .metric(&format!(
                "keyferry_published_key_{which}_seen_timestamp_seconds{{kid=\"{kid}\"}}"
            ))
            .await?;
        assert!(seen > 1.7e9, "{which} seen at {seen}");
    }
    assert!(
        broker
            .metric("keyferry_issuer_read_success_timestamp_seconds")
            .await?
            > 1.7e9
    );
    let log = broker.log()?;
    let issuer = metadata.json()?["issuer"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        log.lines()
            .any(|line| line.contains("these keys are published")
                && line.contains(kid)
                && line.contains(&issuer)),
        "{log}"
    );
    assert!(!log.contains("eyJ"), "a token is in the log");
    Ok(())
}

async fn exposition(broker: &Broker) -> Result<String, TestError> {
    Ok(plain_client()?
        .get(format!("{}/metrics", broker.health_url()))
        .send()
        .await?
        .text()
        .await?)
}
