//! Others edit or delete the Lease. The test runs its own Keyferry instead of the shared one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::process::Signal;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use super::leader::{LEASE, holder};
use super::tenant::{EVERY_SHAPE, Tenant};

/// Keyferry acquires a deleted Lease again. When an edited Lease names another leader, Keyferry
/// writes nothing for a minute, whatever the Lease says, and then writes everything.
pub(crate) async fn a_lease_that_is_deleted_or_edited(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "leased", &EVERY_SHAPE).await?;
    let secret = || json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    let first = until_held(&world, |_| true).await?;
    world.hub.admin().delete(LEASE).await?;
    assert_eq!(until_held(&world, |_| true).await?, first, "taken again");
    tenant.put_access("deleted", secret()).await?;
    tenant.until_ready("deleted").await?;

    let lease: Value = world.hub.admin().get(LEASE).await?;
    let change = json!({ "metadata": { "resourceVersion": lease["metadata"]["resourceVersion"] }, "spec": lease_of_another_holder() });
    if world.hub.admin().patch(LEASE, &change).await.is_err() {
        // It was renewed in between, so the next renewal is ten seconds away.
        world
            .hub
            .admin()
            .patch(LEASE, &json!({ "spec": lease_of_another_holder() }))
            .await?;
    }
    // The leader has seen the change by now. If its calls failed, it does not lead without knowing.
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
    // On a busy machine it may have expired by now.
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
    // On a busy machine a renewal may come too late, and then another term writes it.
    tenant.until_ready("edited").await?;
    Ok(())
}

/// A Lease for 68 years by its own claim. Keyferry respects it for a minute.
fn lease_of_another_holder() -> Value {
    json!({ "holderIdentity": "somebody", "leaseDurationSeconds": i32::MAX })
}

/// Waits until the Lease has a holder that satisfies the check.
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

/// Suspends the shared Keyferry and frees its Lease.
pub(crate) async fn put_to_sleep(world: &OnHub) -> TestResult {
    world.broker.process().signal(Signal::Suspend).await?;
    free(world).await
}

/// Resumes the shared Keyferry, which leads again.
pub(crate) async fn wake(world: &OnHub) -> TestResult {
    free(world).await?;
    world.broker.process().signal(Signal::Continue).await?;
    until_held(world, |_| true).await.map(drop)
}

/// Deletes the Lease, so that no replica has to wait for a leader that is gone.
pub(crate) async fn free(world: &OnHub) -> TestResult {
    match world.hub.admin().delete(LEASE).await {
        Err(error) if error.status() != Some(404) => Err(error.into()),
        _ => Ok(()),
    }
}
