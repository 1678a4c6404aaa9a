//! Reads what a Kustomization has applied (`status.inventory` of kustomize.toolkit.fluxcd.io/v1).
//! The inventory lists objects without their content, which suffices to check rights.

use serde_json::{Value, json};

/// The most inventory entries that are read.
const MAX_ENTRIES: usize = 10_000;

/// Returns the objects of a Kustomization's inventory, or `None` if it has none. An unreadable
/// entry becomes an object without a kind, so that it is not silently skipped.
pub(crate) fn objects(kustomization: &Value) -> Option<Vec<Value>> {
    let entries = kustomization
        .pointer("/status/inventory/entries")?
        .as_array()?;
    Some(
        entries
            .iter()
            .take(MAX_ENTRIES)
            .map(|entry| object(entry).unwrap_or_default())
            .collect(),
    )
}

/// Parses one entry. `id` is `<namespace>_<name>_<group>_<kind>`, where two underscores replace a
/// colon of the name; `v` is the version.
fn object(entry: &Value) -> Option<Value> {
    let (id, version) = (entry.get("id")?.as_str()?, entry.get("v")?.as_str()?);
    let (namespace, rest) = id.split_once('_')?;
    let (rest, kind) = rest.rsplit_once('_')?;
    let (name, group) = rest.rsplit_once('_')?;
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name.replace("__", ":") } });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    Some(object)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::objects;

    #[test]
    fn entries_are_objects() {
        let entry = |id: &str| json!({ "id": id, "v": "v1" });
        let ids = [
            "apps_web_apps_Deployment",
            "_system__reader_rbac.authorization.k8s.io_ClusterRole",
            "apps_config__ConfigMap",
            "odd",
        ];
        let kustomization = json!({ "status": { "inventory": { "entries": ids.map(entry) } } });
        let read = objects(&kustomization).unwrap();
        assert_eq!(
            read,
            [
                json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "apps" } }),
                json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "system:reader" } }),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config", "namespace": "apps" } }),
                json!(null),
            ]
        );
        assert_eq!(objects(&json!({ "status": {} })), None);
    }
}
