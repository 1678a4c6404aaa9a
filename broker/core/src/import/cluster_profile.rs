//! Reads a ClusterProfile of the cluster inventory (KEP-4322): `status.accessProviders[]`, or the
//! earlier `status.credentialProviders[]`.

use serde_json::Value;

use super::{
    ImportError, Imported, field_error, metadata_text, printable_name, read_cluster, text_of,
};

pub(super) fn read_cluster_profile(
    profile: &Value,
    provider: Option<&str>,
) -> Result<Imported, ImportError> {
    let list = |member: &str| {
        profile
            .get("status")
            .and_then(|status| status.get(member))
            .and_then(Value::as_array)
    };
    let (path, providers) = match (list("accessProviders"), list("credentialProviders")) {
        (Some(providers), _) if !providers.is_empty() => ("status.accessProviders", providers),
        (_, Some(providers)) if !providers.is_empty() => ("status.credentialProviders", providers),
        _ => {
            return Err(field_error(
                "status.accessProviders",
                "is empty: no cluster manager has reported yet how to reach the cluster",
            ));
        }
    };
    let wanted =
        |entry: &&Value| provider.is_none_or(|provider| text_of(entry, "name") == provider);
    let mut found = providers.iter().filter(wanted);
    let first = found.next().ok_or_else(|| {
        field_error(
            path,
            "has no provider of this name; name another with --provider",
        )
    })?;
    if found.next().is_some() {
        let names: Vec<String> = providers
            .iter()
            .take(10)
            .map(|entry| printable_name(text_of(entry, "name")))
            .collect();
        return Err(field_error(
            path,
            format!(
                "has several providers; choose one of {} with --provider",
                names.join(", ")
            ),
        ));
    }
    let members = first
        .get("cluster")
        .and_then(Value::as_object)
        .ok_or_else(|| field_error(format!("{path}[].cluster"), "is missing"))?;
    let mut imported = read_cluster(members, &format!("{path}[].cluster"))?;
    metadata_text(profile, "name").clone_into(&mut imported.name);
    Ok(imported)
}
