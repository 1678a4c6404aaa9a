//! Sends a TokenRequest each minute to find out which key the hub signs with: a hub may sign with a
//! key before it publishes it.

use std::time::Duration;

use keyferry_issuer::audience_guard::AudienceGuard;

const INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the task is dropped. A failure is only logged for debugging: real mints meet and
/// report it too.
pub async fn follow(guard: AudienceGuard) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(reason) = guard.look_for_a_new_key().await {
            tracing::debug!(%reason, "the canary could not check for a new key of the hub");
        }
    }
}
