//! Reads the cluster of a kubeconfig.

use serde_json::{Map, Value};

use super::{ImportError, Imported, field_error, named_few, printable_name, read_cluster, text_of};

/// Descriptions of a user's members, for the note on what was left out.
const CREDENTIAL_MEMBERS: [(&str, &str); 12] = [
    ("token", "a bearer token"),
    ("tokenFile", "the path of a token"),
    ("client-certificate", "the path of a client certificate"),
    ("client-certificate-data", "a client certificate"),
    ("client-key", "the path of a client key"),
    ("client-key-data", "a client key"),
    ("username", "a user name"),
    ("password", "a password"),
    ("exec", "a command that gets credentials"),
    ("auth-provider", "an auth-provider"),
    ("as", "an impersonated user"),
    ("as-groups", "impersonated groups"),
];

/// Reads the cluster of one context.
pub(super) fn read_kubeconfig(
    document: &Value,
    context: Option<&str>,
) -> Result<Imported, ImportError> {
    let is_config = matches!(text_of(document, "kind"), "" | "Config");
    if !is_config || document.get("clusters").is_none() {
        return Err(ImportError::Kind);
    }
    let names = context_names(document);
    let choices = || named_few(names.iter().map(|name| printable_name(name)));
    let current = Some(text_of(document, "current-context")).filter(|name| !name.is_empty());
    let only = names.first().copied().filter(|_| names.len() == 1);
    let name = context.or(current).or(only).ok_or_else(|| {
        let fix = format!("is not set; name a context with --context: {}", choices());
        field_error("current-context", fix)
    })?;
    let missing = |what: &str| {
        let fix = format!(
            "names nothing that is in the kubeconfig; name another context with --context: {}",
            choices()
        );
        field_error(what, fix)
    };
    let context =
        find_named(document, "contexts", name, "context")?.ok_or_else(|| missing("the context"))?;
    let cluster_name = context
        .get("cluster")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let members = find_named(document, "clusters", cluster_name, "cluster")?
        .ok_or_else(|| missing("the context's cluster"))?;
    let mut imported = read_cluster(members, "cluster")?;
    cluster_name.clone_into(&mut imported.name);
    let user = context
        .get("user")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if let Some(user) = find_named(document, "users", user, "user")? {
        imported.dropped.extend(user.keys().map(|member| {
            CREDENTIAL_MEMBERS
                .iter()
                .find(|(known, _)| known == member)
                .map_or_else(|| printable_name(member), |(_, what)| (*what).to_owned())
        }));
    }
    Ok(imported)
}

fn context_names(document: &Value) -> Vec<&str> {
    let contexts = document.get("contexts").and_then(Value::as_array);
    let contexts = contexts.map(Vec::as_slice).unwrap_or_default();
    contexts
        .iter()
        .map(|entry| text_of(entry, "name"))
        .collect()
}

/// Finds the only entry with this name in a list of named items. Two such entries are an error.
fn find_named<'a>(
    document: &'a Value,
    list: &str,
    name: &str,
    member: &str,
) -> Result<Option<&'a Map<String, Value>>, ImportError> {
    let entries = document
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found = entries
        .iter()
        .filter(|entry| text_of(entry, "name") == name);
    let first = found
        .next()
        .and_then(|entry| entry.get(member))
        .and_then(Value::as_object);
    if found.next().is_some() {
        return Err(field_error(
            list,
            "has two entries with the same name, and clients differ in which one they use; remove \
             one",
        ));
    }
    Ok(first)
}
