//! Adds and removes Keyferry's finalizer. Finalizers of others are read only when needed and never
//! stored: there may be many.

use keyferry_api::config::{FINALIZER, Record, ReducedObject};
use serde_json::json;

use crate::ports::{HubError, HubObjects};

/// Whether the finalizer should be present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerState {
    /// The finalizer should be present.
    Present,
    /// The finalizer should be absent.
    Absent,
}

/// Adds or removes Keyferry's finalizer on the object at `path`, as last read in `record`, and
/// keeps those of others in their order. Returns the new object; `None` if it is gone or its spec
/// has changed.
///
/// # Errors
/// [`HubError`]; [`HubError::Conflict`] if it was changed meanwhile.
pub async fn set_finalizer(
    objects: &dyn HubObjects,
    path: &str,
    record: &Record,
    wanted: FinalizerState,
) -> Result<Option<ReducedObject>, HubError> {
    let (mut version, mut others) = (record.version.clone(), Vec::new());
    if record.finalizers.others != 0 {
        let Some(read) = objects.get(path).await? else {
            return Ok(None);
        };
        let metadata = &read.value()["metadata"];
        if metadata["uid"] != record.uid.as_str()
            || metadata["generation"] != json!(record.generation)
        {
            return Ok(None);
        }
        version = metadata["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let listed = metadata["finalizers"].as_array().into_iter().flatten();
        others = listed
            .filter(|finalizer| **finalizer != FINALIZER)
            .cloned()
            .collect();
    }
    if wanted == FinalizerState::Present {
        others.push(json!(FINALIZER));
    }
    let change = json!({ "metadata": { "uid": record.uid.as_str(), "resourceVersion": version, "finalizers": others } });
    match objects.patch(path, &change).await {
        Err(HubError::NotFound(_)) => Ok(None),
        outcome => outcome.map(Some),
    }
}
