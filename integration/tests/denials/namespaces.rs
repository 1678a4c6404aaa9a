//! Namespaces that a selector matches for a while, and those that it never matches.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until;
use keyferry_integration::world::{World, caller_token};
use serde_json::{Value, json};

use super::surfaces::{denied, granted, nothing_minted};

/// The watch reports within milliseconds. This is room for a busy machine, and is far below the
/// lifetime of the cached token.
const SOON: Duration = Duration::from_secs(10);

pub(crate) async fn a_namespace_by_its_label_and_no_longer(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let own = caller_token(hub, "selected", "owner").await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "selected")?;
    let label = |value: Value| json!({ "metadata": { "labels": { "access.keyferry.dev/denials": value } } });
    hub.admin()
        .patch("/api/v1/namespaces/selected", &label(json!("yes")))
        .await?;
    world
        .broker()
        .exchange_in_time(&own, "selected/mine")
        .await?;
    granted(&world, &own, "selected/mine", "selected/owner").await?;
    // Refused as soon as the watch reports the change, although the token is cached.
    hub.admin()
        .patch("/api/v1/namespaces/selected", &label(json!("no")))
        .await?;
    until("the label counts", SOON, || async {
        Ok(world.broker().exchange(&own, "selected/mine").await?.status != 200)
    })
    .await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await?;
    hub.admin()
        .patch("/api/v1/namespaces/selected", &label(json!("yes")))
        .await?;
    world
        .broker()
        .exchange_in_time(&own, "selected/mine")
        .await?;
    hub.admin()
        .patch("/api/v1/namespaces/selected", &label(Value::Null))
        .await?;
    until("the label counts", SOON, || async {
        Ok(world.broker().exchange(&own, "selected/mine").await?.status != 200)
    })
    .await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await
}

pub(crate) async fn kube_system_is_not_selected(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let system = caller_token(hub, "kube-system", "owner").await?;
    denied(&world, &system, "kube-system/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "kube-system")?;
    // The same selector also names this namespace, and here it matches.
    let plain = caller_token(hub, "metadata-name", "owner").await?;
    granted(&world, &plain, "metadata-name/mine", "metadata-name/owner").await?;
    Ok(())
}

pub(crate) async fn keyferrys_own_namespace_is_closed(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let keyferry = caller_token(hub, "keyferry-system", "keyferry").await?;
    denied(
        &world,
        &keyferry,
        "keyferry-system/mine",
        "TargetNotGranted",
    )
    .await?;
    let minted_for = hub
        .audit_events()?
        .into_iter()
        .filter(|event| event["objectRef"]["subresource"] == "token");
    let by_keyferry = minted_for.filter(|event| {
        event["user"]["username"] == "system:serviceaccount:keyferry-system:keyferry"
    });
    let for_itself = by_keyferry
        .filter(|event| event["objectRef"]["name"] == "keyferry")
        .count();
    assert_eq!(for_itself, 0);
    Ok(())
}
