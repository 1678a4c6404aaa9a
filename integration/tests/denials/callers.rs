//! Callers that policy grants no target, and callers that the hub's RBAC does not let act for
//! another account.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until;
use keyferry_integration::world::{
    ACCOUNT, Subject, TENANT, World, caller_token, let_mint, take_back,
};

use super::surfaces::{denied, granted, nothing_minted};

/// Keyferry caches a review of the hub for ten seconds. The rest is room for a busy machine, and is
/// far below the lifetime of a cached token.
const REVIEWED_AGAIN: Duration = Duration::from_secs(30);

pub(crate) async fn an_account_that_allow_does_not_hold(world: Arc<World>) -> TestResult {
    // A tenant may write any access, but the target's allow[] decides. The namespace and the
    // ServiceAccount are the tenant's own, the target is not.
    let hub = world.hub();
    let own = caller_token(hub, "strangers", "owner").await?;
    denied(&world, &own, "strangers/mine", "TargetNotGranted").await?;
    let other = caller_token(hub, "allowed-name", "other").await?;
    denied(&world, &other, "allowed-name/others", "TargetNotGranted").await?;
    let reconciler = caller_token(hub, TENANT, ACCOUNT).await?;
    denied(&world, &reconciler, "tenant-a/b", "TargetNotGranted").await?;
    nothing_minted(hub, "strangers")
}

pub(crate) async fn a_caller_of_another_tenant(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    // Even with every right that RBAC can give: an access is only for callers of its own namespace.
    let_mint(
        hub,
        "generous",
        Subject::ServiceAccount("strangers", "owner"),
        "owned",
        &["owner"],
    )
    .await?;
    let stranger = caller_token(hub, "strangers", "owner").await?;
    denied(&world, &stranger, "owned/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "owned")?;
    let own = caller_token(hub, "owned", "owner").await?;
    granted(&world, &own, "owned/mine", "owned/owner").await?;
    // Now a token is cached that only its owner may have.
    denied(&world, &stranger, "owned/mine", "TargetNotGranted").await
}

pub(crate) async fn callers_that_are_not_listed(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let_mint(
        hub,
        "generous",
        Subject::Group("system:serviceaccounts"),
        "unlisted",
        &["owner"],
    )
    .await?;
    let unlisted = caller_token(hub, "unlisted", "passer-by").await?;
    denied(&world, &unlisted, "unlisted/mine", "TargetNotGranted").await?;
    let namesake = caller_token(hub, "strangers", "deployer").await?;
    denied(&world, &namesake, "unlisted/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "unlisted")?;
    let listed = caller_token(hub, "unlisted", "deployer").await?;
    granted(&world, &listed, "unlisted/mine", "unlisted/owner").await?;
    Ok(())
}

pub(crate) async fn a_listed_caller_needs_rbac(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let first = caller_token(hub, "listed", "deployer").await?;
    denied(&world, &first, "listed/mine", "DelegationForbidden").await?;
    nothing_minted(hub, "listed")?;
    // A right to mint for another ServiceAccount does not count here.
    let_mint(
        hub,
        "deployer",
        Subject::ServiceAccount("listed", "deployer"),
        "listed",
        &["deployer"],
    )
    .await?;
    let second = caller_token(hub, "listed", "deployer").await?;
    denied(&world, &second, "listed/mine", "DelegationForbidden").await?;
    nothing_minted(hub, "listed")?;

    let_mint(
        hub,
        "deployer",
        Subject::ServiceAccount("listed", "deployer"),
        "listed",
        &["owner"],
    )
    .await?;
    until("the right to mint counts", REVIEWED_AGAIN, || async {
        Ok(world
            .broker()
            .exchange(
                &caller_token(hub, "listed", "deployer").await?,
                "listed/mine",
            )
            .await?
            .status
            == 200)
    })
    .await?;
    let third = caller_token(hub, "listed", "deployer").await?;
    granted(&world, &third, "listed/mine", "listed/owner").await?;

    // Once the right is revoked, access ends within the ten seconds of a cached review, although
    // the token is cached.
    take_back(hub, "deployer", "listed").await?;
    until("access ends with the right", REVIEWED_AGAIN, || async {
        Ok(world.broker().exchange(&third, "listed/mine").await?.status != 200)
    })
    .await?;
    denied(&world, &third, "listed/mine", "DelegationForbidden").await
}

pub(crate) async fn a_grant_through_a_group_counts(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let before = caller_token(hub, "grouped", "deployer").await?;
    denied(&world, &before, "grouped/mine", "DelegationForbidden").await?;
    let_mint(
        hub,
        "everybody-here",
        Subject::Group("system:serviceaccounts:grouped"),
        "grouped",
        &["owner"],
    )
    .await?;
    until("the right of the group counts", REVIEWED_AGAIN, || async {
        Ok(world
            .broker()
            .exchange(
                &caller_token(hub, "grouped", "deployer").await?,
                "grouped/mine",
            )
            .await?
            .status
            == 200)
    })
    .await?;
    let after = caller_token(hub, "grouped", "deployer").await?;
    granted(&world, &after, "grouped/mine", "grouped/owner").await?;
    Ok(())
}
