//! Reads the ConfigMap of `spec.kubeConfig.configMapRef` in Flux, with the provider `generic`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{ImportError, Imported, field_error, metadata_text, optional_text, printable_name};

pub(super) fn read_config_map(object: &Value) -> Result<Imported, ImportError> {
    let entries = object.get("data").and_then(Value::as_object);
    let entries = entries.ok_or_else(|| field_error("data", "is missing"))?;
    let text = |key: &str| optional_text(entries, key, "data");
    let problem = match text("provider")?.as_deref() {
        Some("generic") => None,
        Some(_) => Some(
            "is not generic: Flux asks the cloud for the address and the CA; give a kubeconfig of \
             the cluster",
        ),
        None => Some("is missing, so this is no ConfigMap by which Flux reaches a cluster"),
    };
    if let Some(problem) = problem {
        return Err(field_error("data.provider", problem));
    }
    let server = text("address")?.ok_or_else(|| field_error("data.address", "is missing"))?;
    let others = entries
        .keys()
        .filter(|key| !["provider", "address", "ca.crt"].contains(&key.as_str()))
        .map(|key| printable_name(key));
    let mut imported = Imported {
        name: metadata_text(object, "name").to_owned(),
        server,
        ca: text("ca.crt")?.map(|pem| STANDARD.encode(pem)),
        dropped: others.collect(),
        ..Imported::default()
    };
    if text("audiences")?.is_some() {
        imported.warnings.push(
            "audiences is not carried over: --audience must be the one that the target accepts"
                .to_owned(),
        );
    }
    imported.warn_without_ca();
    Ok(imported)
}
