//! Setting and removing Keyferry's finalizer. Those of others are read when they are needed and
//! never kept: they may be many.

use keyferry_core::config::{FINALIZER, Record};
use serde_json::{Value, json};

use crate::ports::{HubError, HubObjects};

/// Whether the finalizer is to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is.
    Present,
    /// It is not.
    Absent,
}

/// Sets or removes Keyferry's finalizer of the object at `path`, as `record` has it, and leaves
/// those of others in their order. Returns the object as it is then; nothing if it is gone or its
/// spec is another one by now.
///
/// # Errors
/// [`HubError`]; [`HubError::Conflict`] if it was changed meanwhile.
pub async fn set(
    objects: &dyn HubObjects,
    path: &str,
    record: &Record,
    wanted: Wanted,
) -> Result<Option<Value>, HubError> {
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
    if wanted == Wanted::Present {
        others.push(json!(FINALIZER));
    }
    let change = json!({ "metadata": { "uid": record.uid.as_str(), "resourceVersion": version, "finalizers": others } });
    match objects.patch(path, &change).await {
        Err(HubError::NotFound(_)) => Ok(None),
        outcome => outcome.map(Some),
    }
}
