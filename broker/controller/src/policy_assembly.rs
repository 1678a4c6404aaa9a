//! Assembles the policy from the hub's TargetClusters and TargetAccesses, and activates it shortly
//! after each change.

use std::sync::Arc;
use std::time::Duration;

use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_platform::policy_store::PolicyWriter;

/// How long further changes are collected. A deletion must take effect within a second, and a list
/// arrives object by object.
const TOGETHER: Duration = Duration::from_millis(20);

/// Updates the policy until the task is dropped.
pub async fn follow(store: Arc<ObjectStore>, policy: PolicyWriter, faults: Faults) {
    let mut changes = store.changes();
    loop {
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
        changes.borrow_and_update();
        let assembled = store.assemble();
        // Policy first: a reported fault must not precede its effect.
        policy.replace(assembled.policy.clone());
        faults.replace(assembled);
    }
}
