//! Renders the RBAC objects that would grant a right at a target, as YAML.

use keyferry_api::foreign_text;
use keyferry_kube_authn::rights::role_binding;
use serde_json::Value;

/// Renders each role with its binding to the user, as YAML documents.
pub(crate) fn with_bindings(roles: &[Value], user: &str) -> String {
    let objects = roles
        .iter()
        .flat_map(|role| [role.clone(), role_binding(role, user)]);
    documents(objects)
}

/// Renders objects as YAML documents, each below its separator. Direction characters of a user name
/// are written as escapes.
pub(crate) fn documents(objects: impl IntoIterator<Item = Value>) -> String {
    objects
        .into_iter()
        .filter_map(|object| serde_saphyr::to_string(&object).ok())
        .map(|document| format!("---\n{}", foreign_text::escape_json(document.trim_end())))
        .collect::<Vec<_>>()
        .join("\n")
}
