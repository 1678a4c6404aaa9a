//! Two replicas of one Keyferry, one of which is restarted.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{BrokerSpec, World};

use super::setup::published;

/// Targets pin what they fetched from one replica, and fetch it again from another.
pub(super) async fn replicas_and_restarts_agree(world: Arc<World>) -> TestResult {
    let spec =
        |name| BrokerSpec::of_hub(name, world.hub()).published_at("https://keyferry.test:8443");
    let first = spec("replica-1");
    let (one, other) = tokio::try_join!(
        world.start_broker(world.hub(), first.clone()),
        world.start_broker(world.hub(), spec("replica-2"))
    )?;
    let before = published(&one).await?;
    assert_eq!(
        before[0].json()?["jwks_uri"],
        "https://keyferry.test:8443/openid/v1/jwks"
    );
    assert_eq!(
        published(&other).await?,
        before,
        "bytes and ETags of the second replica"
    );
    one.into_process().stop().await?;
    let again = world.start_broker(world.hub(), first).await?;
    assert_eq!(
        published(&again).await?,
        before,
        "bytes and ETags after a restart"
    );
    Ok(())
}
