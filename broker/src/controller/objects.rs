//! The policy that the hub's TargetClusters and TargetAccesses make, in force a moment after each
//! change.

use std::sync::Arc;
use std::time::Duration;

use crate::object_store::{Faults, ObjectStore};
use crate::policy_store::PolicyWriter;

/// How long further changes are waited for: a deletion must bite within a second, and a list comes
/// object by object.
const TOGETHER: Duration = Duration::from_millis(20);

/// Follows the objects until the task is dropped.
pub async fn follow(store: Arc<ObjectStore>, policy: PolicyWriter, faults: Faults) {
    let mut changes = store.changes();
    loop {
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
        changes.borrow_and_update();
        let assembled = store.assemble();
        // What is said of an object must not run ahead of what holds.
        policy.replace(assembled.policy.clone());
        faults.replace(assembled);
    }
}
