//! Reloads the key sets of Keyferry's managed issuers every ten seconds and after each change of
//! the policy.

use keyferry_issuer::managed_issuer::KeySetMaintainer;
use keyferry_keys::managed_issuer::READ_EVERY;
use keyferry_platform::policy_store::PolicyReader;
use keyferry_platform::reload_signal::ReloadSignal;
use tokio::sync::watch;

/// Maintains the key sets until the task is dropped; `first_round` becomes true after the first
/// check of all of them.
pub async fn follow(
    mut maintainer: KeySetMaintainer,
    policy: PolicyReader,
    first_round: watch::Sender<bool>,
    mut reload_signal: ReloadSignal,
) {
    let mut changes = policy.changes();
    loop {
        maintainer.round(&policy.current()).await;
        first_round.send_replace(true);
        tokio::select! {
            () = tokio::time::sleep(READ_EVERY) => {}
            () = reload_signal.ordered() => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}
