//! A TokenRequest each minute, only to see which key the hub signs with: a hub may sign before it
//! publishes.

use std::time::Duration;

use crate::audience_guard::AudienceGuard;

const INTERVAL: Duration = Duration::from_secs(60);

/// Looks until the task is dropped. A failure says nothing: what mints in earnest meets it too and
/// tells.
pub async fn follow(guard: AudienceGuard) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(reason) = guard.look_for_a_new_key().await {
            tracing::debug!(%reason, "the canary could not look for a new key of the hub");
        }
    }
}
