//! The admission policy that checks the authors of accesses, looked at again and again: without it no token is written to an object.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::author_fence;
use keyferry_core::delivery::ReadObject;
use keyferry_core::reason::Reason;
use serde_json::Value;

use crate::author_fence::AuthorFenceWriter;
use crate::ports::{HubError, HubObjects};

const INTERVAL: Duration = Duration::from_secs(20);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Looks until the task is dropped.
pub async fn follow(objects: Arc<dyn HubObjects>, fence: AuthorFenceWriter) {
    loop {
        match look(&*objects).await {
            Ok(found) => {
                let gap = found.as_ref().err().cloned();
                if fence.set(found) {
                    match gap {
                        None => tracing::info!("authors of TargetAccesses are checked by the hub's admission policy"),
                        Some(gap) => tracing::warn!(reason = %Reason::AuthorUnchecked, gap, "no token is written to an object"),
                    }
                }
            }
            // A hub that does not answer takes nothing away: it would not admit an access either.
            Err(error) if error.proves_unreachable() || error == HubError::Busy => {}
            Err(error) => drop(fence.set(Err(format!("the admission policy keyferry-author could not be read: {error}")))),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn look(objects: &dyn HubObjects) -> Result<Result<(), String>, HubError> {
    let policy = objects.get(&format!("{GROUP}/validatingadmissionpolicies/keyferry-author")).await?;
    let binding = objects.get(&format!("{GROUP}/validatingadmissionpolicybindings/keyferry-author")).await?;
    let value = |read: &Option<ReadObject>| read.as_ref().map(|read| read.value().clone()).unwrap_or(Value::Null);
    Ok(author_fence::check(&value(&policy), &value(&binding)).map_err(|gap| gap.to_string()))
}
