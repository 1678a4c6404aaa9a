//! Reads a ManagedCluster of Open Cluster Management. The agent of the cluster itself writes
//! `spec.managedClusterClientConfigs`.

use serde_json::Value;

use super::{
    ImportError, Imported, field_error, metadata_text, named_few, optional_text, printable_name,
    text_of,
};

const PATH: &str = "spec.managedClusterClientConfigs";

pub(super) fn read_managed_cluster(object: &Value) -> Result<Imported, ImportError> {
    let configs = object.pointer("/spec/managedClusterClientConfigs");
    let configs = configs.and_then(Value::as_array);
    let members = match configs.map(Vec::as_slice).unwrap_or_default() {
        [] => Err("is empty: the cluster's agent has reported no address yet".to_owned()),
        [only] => only
            .as_object()
            .ok_or_else(|| "has an item that is no object".to_owned()),
        several => Err(format!(
            "has several addresses; leave only the one that this hub reaches: {}",
            named_few(several.iter().map(|it| printable_name(text_of(it, "url"))))
        )),
    };
    let members = members.map_err(|problem| field_error(PATH, problem))?;
    let path = format!("{PATH}[]");
    let server = optional_text(members, "url", &path)?;
    let others = members
        .keys()
        .filter(|member| !["url", "caBundle"].contains(&member.as_str()));
    let mut imported = Imported {
        name: metadata_text(object, "name").to_owned(),
        server: server.ok_or_else(|| field_error(format!("{path}.url"), "is missing"))?,
        ca: optional_text(members, "caBundle", &path)?,
        dropped: others.map(|member| printable_name(member)).collect(),
        ..Imported::default()
    };
    if object.pointer("/spec/hubAcceptsClient") != Some(&Value::Bool(true)) {
        imported.warnings.push(
            "hubAcceptsClient is not true, so no admin has accepted the cluster that reported this \
             address"
                .to_owned(),
        );
    }
    imported.warn_without_ca();
    Ok(imported)
}
