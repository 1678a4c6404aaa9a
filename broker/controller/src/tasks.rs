//! The tasks that run in the background for as long as the server runs. Each one ends only when it
//! is dropped, or when what it follows has ended.
//!
//! On every replica:
//!
//! | task | what it does |
//! |---|---|
//! | [`run_key_refresh`](crate::key_refresh::run_key_refresh) | reloads the hub's discovery documents |
//! | [`run_leader_election`](crate::leader_election::run_leader_election) | takes and renews the Lease |
//! | [`run_target_certificate_refresh`](crate::target_certificates::run_target_certificate_refresh) | reloads the targets' CA certificates |
//! | [`run_input_credential_refresh`](crate::input_credentials::run_input_credential_refresh) | reloads the hashes of fleet inputs' tokens |
//! | [`run_policy_assembly`] | makes the policy from the hub's objects |
//! | [`run_managed_key_refresh`] | reloads the key sets of managed issuers |
//! | [`run_key_canary`] | finds out which key the hub signs with |
//! | [`run_token_renewal`] | renews cached tokens |
//! | [`run_mint_rights_check`](crate::mint_rights_check::run_mint_rights_check) | warns of too many rights, if policy comes from a file |
//! | [`run_installed_policy_checks`](crate::installed_policies::run_installed_policy_checks) | compares installed admission policies, if policy comes from a file |
//!
//! If policy comes from the hub's objects; only the leader writes:
//!
//! | task | what it does |
//! |---|---|
//! | [`run_delivery_queue`](crate::delivery_queue::run_delivery_queue) | reconciles accesses through [`Deliveries`](crate::delivery::Deliveries) |
//! | [`run_target_status`](crate::target_status::run_target_status) | writes the statuses of TargetClusters |
//! | [`run_audience_pairing`](crate::audience_pairing::run_audience_pairing) | writes the AudiencePairing |
//! | [`run_admission_policy_checks`](crate::admission_policies::run_admission_policy_checks) | compares the hub's admission policies with the shipped ones |

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::authorise;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::managed_issuer::KeySetMaintainer;
use keyferry_issuer::mint::Mint;
use keyferry_keys::managed_issuer::READ_EVERY;
use keyferry_platform::policy_store::{PolicyReader, PolicyWriter};
use keyferry_platform::reload_signal::ReloadSignal;
use tokio::sync::watch;

/// How long further changes of the hub's objects are collected. A deletion must take effect within
/// a second, and a list arrives object by object.
const ASSEMBLY_DEBOUNCE: Duration = Duration::from_millis(20);
const CANARY_INTERVAL: Duration = Duration::from_secs(60);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// Assembles the policy from the hub's TargetClusters and TargetAccesses, and activates it shortly
/// after each change.
pub async fn run_policy_assembly(store: Arc<ObjectStore>, policy: PolicyWriter, faults: Faults) {
    let mut changes = store.changes();
    loop {
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(ASSEMBLY_DEBOUNCE).await;
        changes.borrow_and_update();
        let mut assembled = store.assemble_policy();
        // Policy first: a reported fault must not precede its effect. It is moved, because a second
        // copy would double what the tenants' accesses take.
        policy.replace(std::mem::take(&mut assembled.policy));
        faults.replace(assembled);
    }
}

/// Reloads the key sets of managed issuers every [`READ_EVERY`] and after each change of the policy;
/// `first_check` becomes true after the first check of all of them.
pub async fn run_managed_key_refresh(
    mut maintainer: KeySetMaintainer,
    policy: PolicyReader,
    first_check: watch::Sender<bool>,
    mut reload_signal: ReloadSignal,
) {
    let mut changes = policy.changes();
    loop {
        maintainer.run_round(&policy.current()).await;
        first_check.send_replace(true);
        tokio::select! {
            biased;
            () = tokio::time::sleep(READ_EVERY) => {}
            () = reload_signal.received() => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Sends a TokenRequest each minute to find out which key the hub signs with: a hub may sign with a
/// key before it publishes it. A failure is only logged for debugging: real mints meet and report
/// it too.
pub async fn run_key_canary(guard: AudienceGuard) {
    loop {
        tokio::time::sleep(CANARY_INTERVAL).await;
        if let Err(reason) = guard.look_for_a_new_key().await {
            tracing::debug!(%reason, "the canary could not check for a new key of the hub");
        }
    }
}

/// Renews cached tokens before they expire. A token whose grant policy no longer allows is not
/// renewed.
pub async fn run_token_renewal(mint: Mint, policy: PolicyReader, live: Arc<LiveObjects>) {
    let mut ticks = tokio::time::interval(RENEWAL_INTERVAL);
    loop {
        ticks.tick().await;
        let policy = policy.current();
        mint.renew_due(|grant| authorise::still_holds(&policy, &*live, grant).is_ok());
    }
}
