//! Reads what a Kustomization has applied (`status.inventory` of kustomize.toolkit.fluxcd.io/v1).
//! The inventory lists objects without their content, which suffices to check rights.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::lenient::{Lenient, or_default};

/// The most inventory entries that are read.
const MAX_ENTRIES: usize = 10_000;

/// The inventory of a Kustomization.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Inventory {
    #[serde(deserialize_with = "or_default")]
    entries: Option<Vec<Lenient<InventoryEntry>>>,
}

/// An entry. `id` is `<namespace>_<name>_<group>_<kind>`, where two underscores replace a colon of
/// the name; `v` is the version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct InventoryEntry {
    id: String,
    v: Option<String>,
}

impl Inventory {
    /// Returns the objects of the inventory, or `None` if it has none. An unreadable entry becomes
    /// an object without a kind, so that it is not silently skipped.
    pub(crate) fn objects(&self) -> Option<Vec<Value>> {
        let entries = self.entries.as_ref()?.iter().take(MAX_ENTRIES);
        let objects = entries.map(|Lenient(entry)| entry.object().unwrap_or_default());
        Some(objects.collect())
    }
}

impl InventoryEntry {
    fn object(&self) -> Option<Value> {
        let version = self.v.as_deref()?;
        let (namespace, rest) = self.id.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let name = name.replace("__", ":");
        let metadata = if namespace.is_empty() {
            json!({ "name": name })
        } else {
            json!({ "name": name, "namespace": namespace })
        };
        Some(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::Inventory;

    #[test]
    fn entries_are_objects() {
        let entry = |id: &str| json!({ "id": id, "v": "v1" });
        let ids = [
            "apps_web_apps_Deployment",
            "_system__reader_rbac.authorization.k8s.io_ClusterRole",
            "apps_config__ConfigMap",
            "odd",
        ];
        let [apps, system, config, odd] = ids.map(entry);
        let entries = json!([apps, system, config, odd, null]);
        let objects = |inventory| {
            let inventory: Inventory = serde_json::from_value(inventory).unwrap();
            inventory.objects()
        };
        let read = objects(json!({ "entries": entries })).unwrap();
        assert_eq!(
            read,
            [
                json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "apps" } }),
                json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "system:reader" } }),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config", "namespace": "apps" } }),
                json!(null),
                json!(null),
            ]
        );
        assert_eq!(objects(json!({})), None);
    }
}
