//! Renews cached tokens before they expire.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::authorise;
use keyferry_hub::live::LiveObjects;
use keyferry_issuer::mint::Mint;
use keyferry_platform::policy_store::PolicyReader;

const INTERVAL: Duration = Duration::from_secs(2);

/// Renews tokens until the task is dropped. A token whose grant policy no longer allows is not
/// renewed.
pub async fn follow(mint: Mint, policy: PolicyReader, live: Arc<LiveObjects>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let policy = policy.current();
        mint.renew_due(|grant| authorise::still_holds(&policy, &*live, grant).is_ok());
    }
}
