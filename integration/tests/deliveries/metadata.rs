//! The metadata that tenants write on their accesses must not cost the server lasting memory.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{OnHub, access_path};
use serde_json::json;

use super::tenant::Tenant;

const ACCESSES: usize = 40;
const FINALIZERS: usize = 3_600;
/// The memory that the allocator may keep after reading them. A server that kept the finalizers
/// grew by 56 MiB.
const MOST_KIB: u64 = 20 * 1024;

/// A tenant puts 3,600 finalizers on each of 40 accesses.
pub(crate) async fn finalizers_cost_no_memory_that_stays(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "heavy", &["HTTP"]).await?;
    let names: Vec<String> = (0..ACCESSES)
        .map(|index| format!("heavy-{index}"))
        .collect();
    for name in &names {
        tenant
            .put_access(name, json!([{ "name": "h", "type": "HTTP" }]))
            .await?;
    }
    for name in &names {
        tenant.until_ready(name).await?;
    }
    let before = resident_kib(&world)?;
    with_finalizers(&world, &names, "heavy").await?;
    let after = resident_kib(&world)?;
    eprintln!(
        "{ACCESSES} accesses with {FINALIZERS} finalizers each: {before} KiB before, {after} KiB \
         after"
    );
    assert!(
        after <= before + MOST_KIB,
        "{before} KiB before, {after} KiB after"
    );
    for name in &names {
        world
            .hub
            .admin()
            .patch(
                &access_path("heavy", name),
                &json!({ "metadata": { "finalizers": null } }),
            )
            .await?;
    }
    Ok(())
}

/// Writes the finalizers, and waits until Keyferry has read the last of them. It then answers a
/// request that was written after them.
async fn with_finalizers(world: &OnHub, names: &[String], prefix: &str) -> TestResult {
    let finalizers: Vec<String> = (0..FINALIZERS)
        .map(|index| format!("{prefix}.heavy.example.test/finalizer-{index:04}"))
        .collect();
    for name in names {
        let patch = json!({ "metadata": { "finalizers": finalizers, "annotations": { "keyferry.dev/requestedAt": prefix } } });
        world
            .hub
            .admin()
            .patch(&access_path("heavy", name), &patch)
            .await?;
    }
    for name in names {
        let handled =
            |access: &serde_json::Value| access["status"]["lastHandledReconcileAt"] == prefix;
        world
            .until(&access_path("heavy", name), "handled", handled)
            .await?;
    }
    Ok(())
}

fn resident_kib(world: &OnHub) -> Result<u64, TestError> {
    let id = world.broker.process().id().ok_or("Keyferry does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}
