//! The Lease under somebody's hands, and a Keyferry of a test's own in the place of the shared one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::process::Signal;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use crate::leader::{LEASE, holder};
use crate::tenant::{EVERY_SHAPE, Tenant};

/// A deleted Lease is taken again. In an edited one somebody else leads: for a minute nothing is
/// written, whatever it says, and then all of it is.
pub(crate) async fn a_lease_that_is_deleted_or_edited(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "leased", &EVERY_SHAPE).await?;
    let secret = || json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    let first = until_held(&world, |_| true).await?;
    world.hub.admin().delete(LEASE).await?;
    assert_eq!(until_held(&world, |_| true).await?, first, "taken again");
    tenant.put_access("deleted", secret()).await?;
    tenant.until_ready("deleted").await?;

    let lease: Value = world.hub.admin().get(LEASE).await?;
    let change = json!({ "metadata": { "resourceVersion": lease["metadata"]["resourceVersion"] }, "spec": somebody() });
    if world.hub.admin().patch(LEASE, &change).await.is_err() {
        // It was renewed in between, and is not for another ten seconds.
        world
            .hub
            .admin()
            .patch(LEASE, &json!({ "spec": somebody() }))
            .await?;
    }
    // The leader has seen it by now, or, where its calls failed, does not lead without knowing.
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(
        holder(&world).await?,
        "somebody",
        "a Lease of another is not taken before its time"
    );
    tenant.put_access("edited", secret()).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let untouched = world.hub.admin().get(&tenant.access("edited")).await?;
    let written = world.is_there(&tenant.secret("edited-kubeconfig")).await?;
    // On a machine under load its time may be over by now.
    if holder(&world).await? == "somebody" {
        assert!(
            untouched["status"].is_null() && !written,
            "nobody leads: {untouched}"
        );
    }
    assert_eq!(
        until_held(&world, |holder| holder == first).await?,
        first,
        "taken when its time is over"
    );
    // On a machine under load a renewal may come too late, and then it is another term that brings
    // it.
    tenant.until_ready("edited").await?;
    Ok(())
}

/// For 68 years, by what it says. It is believed for a minute.
fn somebody() -> Value {
    json!({ "holderIdentity": "somebody", "leaseDurationSeconds": i32::MAX })
}

/// Waits until somebody like that holds the Lease.
async fn until_held(world: &OnHub, wanted: impl Fn(&str) -> bool) -> Result<String, TestError> {
    let limit = Instant::now() + Duration::from_secs(75);
    loop {
        match holder(world).await {
            Ok(holder) if wanted(&holder) => return Ok(holder),
            seen if Instant::now() > limit => {
                return Err(format!("the Lease is not held as wanted: {seen:?}").into());
            }
            _ => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
}

/// The shared Keyferry sleeps, and its Lease is free.
pub(crate) async fn put_to_sleep(world: &OnHub) -> TestResult {
    world.broker.process().signal(Signal::Suspend).await?;
    free(world).await
}

/// It goes on, and leads.
pub(crate) async fn wake(world: &OnHub) -> TestResult {
    free(world).await?;
    world.broker.process().signal(Signal::Continue).await?;
    until_held(world, |_| true).await.map(drop)
}

/// Nobody has to wait for the Lease of one who is gone.
pub(crate) async fn free(world: &OnHub) -> TestResult {
    match world.hub.admin().delete(LEASE).await {
        Err(error) if error.status() != Some(404) => Err(error.into()),
        _ => Ok(()),
    }
}
