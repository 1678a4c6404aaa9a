//! The inputs of the targets' platform components, kept current by a watch of the ConfigMaps of
//! Keyferry's namespace.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use keyferry_api::moment::Moment;
use keyferry_api::name::ObjectName;
use keyferry_core::inputs::collection::Collection;
use keyferry_core::inputs::components;
use keyferry_core::inputs::error::InputsError;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::collection_watch::WatchedItem;
use crate::watch_health::{WatchHealth, WatchState};

type Read = Result<Collection, InputsError>;

/// The inputs of all targets, each read from its ConfigMap when the ConfigMap changed.
#[derive(Debug, Default)]
pub struct InputComponents {
    by_target: RwLock<HashMap<ObjectName, Read>>,
    state: Mutex<WatchState>,
}

impl InputComponents {
    /// The inputs of a target.
    ///
    /// # Errors
    /// [`InputsError`]: its ConfigMap is missing or cannot be used, or the watch has not listed, or
    /// has failed for longer than `max_stale`.
    pub fn inputs_of_target(&self, target: &ObjectName, max_stale: Duration, now: Moment) -> Read {
        if !self.state.lock().is_current(max_stale, now) {
            return Err(InputsError::Unread);
        }
        match self.by_target.read().get(target) {
            Some(read) => read.clone(),
            None => Err(InputsError::Missing(components::config_map_name(target))),
        }
    }

    /// Replaces all inputs by those of a complete list.
    pub(crate) fn replace_all(&self, all: HashMap<ObjectName, Read>) {
        *self.by_target.write() = all;
    }

    /// Stores the inputs of one ConfigMap.
    pub(crate) fn set_inputs(&self, config_map: &InputConfigMap) {
        if let Some((target, read)) = config_map.read_target_inputs() {
            report_fault(&target, &read);
            self.by_target.write().insert(target, read);
        }
    }

    /// Removes the inputs of one ConfigMap.
    pub(crate) fn remove_inputs(&self, config_map: &InputConfigMap) {
        if let Some(target) = config_map.target() {
            self.by_target.write().remove(&target);
        }
    }
}

impl WatchHealth for InputComponents {
    fn name(&self) -> &'static str {
        "ConfigMaps of fleet inputs"
    }

    fn note_listed(&self) {
        *self.state.lock() = WatchState::WORKING_STATE;
    }

    fn note_answer(&self) {
        self.state.lock().note_answer();
    }

    fn note_failure(&self, now: Moment) {
        self.state.lock().note_failure(now);
    }
}

/// A ConfigMap of Keyferry's namespace, reduced to the metadata that Keyferry reads.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct InputConfigMap {
    metadata: KeptMetadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "binaryData")]
    binary_data: Option<BTreeMap<String, BinaryEntry>>,
}

/// An entry whose content is skipped.
#[derive(Clone, Debug, Deserialize)]
struct BinaryEntry(#[allow(dead_code, reason = "only its presence counts")] IgnoredAny);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptMetadata {
    name: Option<String>,
    resource_version: Option<String>,
}

impl InputConfigMap {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn target(&self) -> Option<ObjectName> {
        components::target_of(self.name())
    }

    /// The target and its inputs; `None` if it is another ConfigMap.
    pub(crate) fn read_target_inputs(&self) -> Option<(ObjectName, Read)> {
        let target = self.target()?;
        let none = BTreeMap::new();
        let data = self.data.as_ref().unwrap_or(&none);
        let has_binary_data = self
            .binary_data
            .as_ref()
            .is_some_and(|data| !data.is_empty());
        Some((
            target,
            components::read_components(self.name(), data, has_binary_data),
        ))
    }
}

/// Logs why a ConfigMap cannot be used, for its writer. Its reader gets the reason in the response.
pub(crate) fn report_fault(target: &ObjectName, read: &Read) {
    if let Err(error) = read {
        tracing::error!(
            target_cluster = %target,
            reason = %error.reason(),
            %error,
            "the fleet inputs of a target are not served"
        );
    }
}

impl WatchedItem for InputConfigMap {
    fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use keyferry_api::moment::Moment;
    use keyferry_api::name::ObjectName;
    use keyferry_api::reason::Reason;
    use serde_json::json;

    use super::{InputComponents, InputConfigMap};
    use crate::watch_health::WatchHealth;

    fn config_map(name: &str, data: &serde_json::Value) -> InputConfigMap {
        let metadata = json!({ "name": name, "managedFields": [{}], "labels": { "a": "b" } });
        serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
    }

    fn at(seconds: u64) -> Moment {
        Moment {
            wall: Timestamp::UNIX_EPOCH,
            mono: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn inputs_follow_their_config_maps_and_end_with_a_watch_that_fails() {
        let components = InputComponents::default();
        let prod = ObjectName::new("prod").unwrap();
        let stale = Duration::from_secs(300);
        let reason = |seconds| {
            let read = components.inputs_of_target(&prod, stale, at(seconds));
            read.err().map(|error| error.reason())
        };
        assert_eq!(reason(0), Some(Reason::InputsUnread), "not listed yet");
        components.note_listed();
        assert_eq!(reason(0), Some(Reason::InputsMissing));
        let good = config_map("keyferry-inputs-prod", &json!({ "a": "x: 1" }));
        components.set_inputs(&good);
        components.set_inputs(&config_map(
            "keyferry-config",
            &json!({ "config.yaml": "[" }),
        ));
        assert_eq!(reason(0), None);
        components.set_inputs(&config_map(
            "keyferry-inputs-prod",
            &json!({ "a": "token: x" }),
        ));
        assert_eq!(reason(0), Some(Reason::InputLooksSecret));
        components.set_inputs(&good);
        components.note_failure(at(100));
        components.note_failure(at(200));
        assert_eq!(
            (reason(400), reason(401)),
            (None, Some(Reason::InputsUnread))
        );
        components.note_answer();
        assert_eq!(reason(1000), None);
        components.remove_inputs(&good);
        assert_eq!(reason(1000), Some(Reason::InputsMissing));
    }

    #[test]
    fn binary_data_is_noticed_and_not_kept() {
        let object = json!({
            "metadata": { "name": "keyferry-inputs-prod" }, "binaryData": { "a": "AAAA" },
        });
        let config_map: InputConfigMap = serde_json::from_value(object).unwrap();
        let (_, read) = config_map.read_target_inputs().unwrap();
        assert_eq!(read.unwrap_err().reason(), Reason::InputsInvalid);
    }
}
