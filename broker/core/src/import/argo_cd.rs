//! Reads a cluster Secret of Argo CD (argo-cd docs, operator-manual/declarative-setup, "Clusters").

use keyferry_keys::json::{JsonLimits, read_object};
use serde_json::Value;

use super::{
    ImportError, Imported, field_error, insecure_error, optional_text, printable_name, secret_entry,
};

const LABEL_POINTER: &str = "/metadata/labels/argocd.argoproj.io~1secret-type";
const CONFIG_LIMITS: JsonLimits = JsonLimits {
    bytes: super::MAX_IMPORT_BYTES,
    depth: 32,
};

/// Members with credentials, which are not imported.
const CREDENTIAL_MEMBERS: [(&str, &str); 5] = [
    ("bearerToken", "a bearer token"),
    ("username", "a user name"),
    ("password", "a password"),
    ("awsAuthConfig", "an AWS login"),
    ("execProviderConfig", "a command that gets credentials"),
];

/// Entries by which Argo CD limits what is done with a cluster.
const LIMITS_OF_ARGO: [(&str, &str); 3] = [
    ("namespaces", "Argo CD acts in these namespaces only"),
    (
        "clusterResources",
        "Argo CD decides by it whether to act cluster-wide",
    ),
    (
        "project",
        "only this project's applications use the cluster",
    ),
];

/// Whether a Secret describes a cluster of Argo CD.
pub(super) fn is_cluster(secret: &Value) -> bool {
    secret.pointer(LABEL_POINTER).and_then(Value::as_str) == Some("cluster")
}

pub(super) fn read_argo_cd(secret: &Value) -> Result<Imported, ImportError> {
    let text = |key: &str| -> Result<Option<String>, ImportError> {
        let bytes = secret_entry(secret, key)?;
        bytes
            .map(String::from_utf8)
            .transpose()
            .map_err(|_| field_error(format!("data.{key}"), "is not text"))
    };
    let server = text("server")?.ok_or_else(|| field_error("data.server", "is missing"))?;
    let mut imported = Imported {
        name: text("name")?.unwrap_or_default(),
        server,
        ..Imported::default()
    };
    for (key, what) in LIMITS_OF_ARGO {
        if text(key)?.is_some_and(|value| !value.trim().is_empty()) {
            imported.warnings.push(format!(
                "{key} is not carried over: {what}; allow[] and the target's RBAC limit what \
                 Keyferry's tokens may do"
            ));
        }
    }
    let config = text("config")?.ok_or_else(|| field_error("data.config", "is missing"))?;
    let config = read_object(config.as_bytes(), CONFIG_LIMITS)
        .map_err(|error| field_error("data.config", error.to_string()))?;
    imported.proxy_url = optional_text(&config, "proxyUrl", "config")?;
    for member in config
        .keys()
        .filter(|member| !["tlsClientConfig", "proxyUrl"].contains(&member.as_str()))
    {
        let what = CREDENTIAL_MEMBERS
            .iter()
            .find(|(known, _)| known == member)
            .map(|(_, what)| (*what).to_owned());
        imported
            .dropped
            .push(what.unwrap_or_else(|| printable_name(member)));
    }
    let tls = match config.get("tlsClientConfig") {
        None | Some(Value::Null) => return Ok(imported),
        Some(Value::Object(tls)) => tls,
        Some(_) => return Err(field_error("config.tlsClientConfig", "is not an object")),
    };
    match tls.get("insecure") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        _ => return Err(insecure_error("config.tlsClientConfig.insecure")),
    }
    imported.ca = optional_text(tls, "caData", "config.tlsClientConfig")?;
    imported.tls_server_name = optional_text(tls, "serverName", "config.tlsClientConfig")?;
    for (member, what) in [
        ("certData", "a client certificate"),
        ("keyData", "a client key"),
    ] {
        if tls.get(member).is_some_and(|value| !value.is_null()) {
            imported.dropped.push(what.to_owned());
        }
    }
    Ok(imported)
}
