//! The hub is down and Keyferry restarts: targets still get the keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Broker, Ground, caller_token};

use super::stage::{Judge, Stage, TENANT, published};

pub(super) async fn outlives(ground: Arc<Ground>) -> TestResult {
    let directory = ground.folder().join("state");
    std::fs::create_dir(&directory)?;
    let Stage {
        hub,
        broker,
        targets,
    } = Stage::start(&ground, "state", 30, &["reconciler".to_owned()], |spec| {
        spec.with_state_in(&directory)
    })
    .await?;
    let caller = caller_token(&hub, TENANT, "reconciler").await?;
    let token = broker
        .exchange_in_time(&caller, &format!("{TENANT}/reconciler-0"))
        .await?
        .token()?;
    let before = published(&broker).await?;
    hub.stop().await?;
    assert_eq!(health(&broker, "livez").await?, 200);
    assert_eq!(health(&broker, "readyz").await?, 200);

    let broker = broker.restarted(ground.binary()).await?;
    assert_eq!(
        (
            health(&broker, "livez").await?,
            health(&broker, "readyz").await?
        ),
        (200, 200)
    );
    assert_eq!(published(&broker).await?, before, "the same bytes");
    // A target that starts now reads them, and accepts an earlier token.
    let target = targets.first().ok_or("no target")?;
    target.restart().await?;
    let limit = Instant::now() + Duration::from_secs(30);
    while Judge::of(target)?.status(&token).await? != 201 {
        assert!(
            Instant::now() < limit,
            "the target did not take a token of before"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // Keyferry accepts no caller by keys that it has not seen at the hub: the token API stays
    // closed.
    let answer = broker
        .exchange(&caller, &format!("{TENANT}/reconciler-0"))
        .await?;
    assert_eq!(answer.status, 503, "{}", answer.body);

    hub.restart().await?;
    let caller = caller_token(&hub, TENANT, "reconciler").await?;
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match broker
            .exchange(&caller, &format!("{TENANT}/reconciler-0"))
            .await
        {
            Ok(answer) if answer.status == 200 => break,
            other => assert!(
                Instant::now() < limit,
                "nothing was issued a minute after the hub was back: {other:?}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(published(&broker).await?, before);
    Ok(())
}

async fn health(broker: &Broker, what: &str) -> Result<u16, TestError> {
    Ok(plain_client()?
        .get(format!("{}/{what}", broker.health_url()))
        .send()
        .await?
        .status()
        .as_u16())
}
