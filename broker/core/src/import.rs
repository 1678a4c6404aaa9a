//! Imports a cluster that another tool knows as a TargetCluster: its address and how it is trusted.
//! Credentials are never imported.
//!
//! The input is a kubeconfig, a Secret that contains one (Flux, Cluster API), a cluster Secret of
//! Argo CD, a ClusterProfile, a ManagedCluster, a SveltosCluster with its Secret, or Flux's generic
//! ConfigMap. What kubectl takes as a kubeconfig is taken here too.

mod argo_cd;
mod cluster_profile;
#[cfg(test)]
pub(crate) use render::CONFIG_HEADER as TEST_HEAD;

mod encoding;
mod flux_config_map;
mod kubeconfig;
mod managed_cluster;
mod proposals;
mod render;
mod sveltos_cluster;

pub use encoding::join_base64_lines;
use keyferry_keys::ca_bundle::CaBundleError;
use serde_json::{Map, Value};

/// Maximum size of the input in bytes. A Secret holds 1 MiB, in base64.
pub const MAX_IMPORT_BYTES: usize = 2 * 1024 * 1024;

/// Aliases repeat what their anchor names, so their number bounds the memory.
const MAX_ALIASES: usize = 20;

/// Selects one part of an input that has several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// The context of a kubeconfig. Default: its current context, or the only one.
    pub context: Option<&'a str>,
    /// The key of a Secret. Default: `value`, `value.yaml` or `kubeconfig`, or the only one.
    pub key: Option<&'a str>,
    /// The access provider of a ClusterProfile. Default: the only one.
    pub provider: Option<&'a str>,
}

/// A cluster that was read from the input.
#[derive(Debug, Default)]
pub struct Imported {
    /// The name of the cluster in the input.
    pub name: String,
    server: String,
    ca: Option<String>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
    /// The kinds of data that were left out; never a value.
    pub dropped: Vec<String>,
    /// What the user should know before the object is applied.
    pub warnings: Vec<String>,
}

/// Why the input cannot be imported. No value of it is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Too large, not YAML, a duplicate key, several documents, or nested too deeply.
    #[error(
        "the input is not one YAML or JSON document of at most 2 MiB, each key of it once: line {0}"
    )]
    Form(u64),
    /// Neither UTF-8 nor UTF-16 with a byte order mark.
    #[error("the input is not text in UTF-8 or UTF-16")]
    Encoding,
    /// Another kind of object.
    #[error(
        "the input is no kubeconfig, Secret, ClusterProfile, ManagedCluster, SveltosCluster or \
         ConfigMap of Flux"
    )]
    Kind,
    /// A list, such as `kubectl get` prints, with no item or several.
    #[error("the input is a List with {count} items; give one of them: {names}")]
    List {
        /// How many items it has.
        count: usize,
        /// The names of some.
        names: String,
    },
    /// A field is missing or cannot be used.
    #[error("{field} {problem}")]
    Field {
        /// The path of the field.
        field: String,
        /// What is wrong, and how to fix it.
        problem: String,
    },
    /// The CA certificates are not valid.
    #[error("the CA certificates: {0}; {fix}", fix = .0.fix())]
    Authority(CaBundleError),
    /// The configuration reader would refuse the resulting TargetCluster.
    #[error("the TargetCluster would have mistakes: {0}")]
    Mistakes(String),
}

impl Imported {
    /// Warns of what an object without CA certificates may have left to the client.
    fn warn_without_ca(&mut self) {
        if self.ca.is_none() {
            self.warnings.push(
                "no CA certificates are named, so only the system's roots are trusted".to_owned(),
            );
        }
    }
}

fn field_error(field: impl Into<String>, problem: impl Into<String>) -> ImportError {
    ImportError::Field {
        field: field.into(),
        problem: problem.into(),
    }
}

/// Finds the cluster in a document, which is text in UTF-8, or in UTF-16 with a byte order mark.
///
/// # Errors
/// [`ImportError`].
pub fn read_import(input: &[u8], choice: Choice<'_>) -> Result<Imported, ImportError> {
    let document = parse_document(&encoding::decode_text(input)?)?;
    if let Some((cluster, secret)) = sveltos_cluster::cluster_with_secret(&document) {
        return sveltos_cluster::read_sveltos_cluster(cluster, secret, choice);
    }
    let document = only_item(document)?;
    if sveltos_cluster::is_cluster(&document) {
        return Err(sveltos_cluster::lacking_secret(&document));
    }
    match (text_of(&document, "apiVersion"), text_of(&document, "kind")) {
        ("v1", "Config") => kubeconfig::read_kubeconfig(&document, choice.context),
        ("v1", "Secret") if argo_cd::is_cluster(&document) => argo_cd::read_argo_cd(&document),
        ("v1", "Secret") => read_secret(&document, choice),
        ("v1", "ConfigMap") => flux_config_map::read_config_map(&document),
        (version, "ManagedCluster")
            if version.starts_with("cluster.open-cluster-management.io/") =>
        {
            managed_cluster::read_managed_cluster(&document)
        }
        (version, "ClusterProfile") if version.starts_with("multicluster.x-k8s.io/") => {
            cluster_profile::read_cluster_profile(&document, choice.provider)
        }
        // client-go fills both in (clientcmd, Load).
        ("" | "v1", "" | "Config") if document.get("clusters").is_some() => {
            kubeconfig::read_kubeconfig(&document, choice.context)
        }
        _ => Err(ImportError::Kind),
    }
}

/// Reads the kubeconfig in a Secret.
fn read_secret(secret: &Value, choice: Choice<'_>) -> Result<Imported, ImportError> {
    let (key, bytes) = kubeconfig_of(secret, choice.key)?;
    let inner = encoding::decode_text(&bytes)
        .map_err(|_| field_error(format!("data.{}", printable_name(&key)), "is not text"))?;
    let mut imported = kubeconfig::read_kubeconfig(&parse_document(&inner)?, choice.context)?;
    // Cluster API labels a Secret with the name of its cluster.
    if let Some(cluster) = secret
        .pointer("/metadata/labels/cluster.x-k8s.io~1cluster-name")
        .and_then(Value::as_str)
    {
        cluster.clone_into(&mut imported.name);
    }
    Ok(imported)
}

/// Takes the item out of a List with one, and any other document as it is.
fn only_item(mut document: Value) -> Result<Value, ImportError> {
    let is_list = text_of(&document, "kind").ends_with("List");
    let Some(Value::Array(items)) = document.get_mut("items").filter(|_| is_list) else {
        return Ok(document);
    };
    if items.len() == 1 {
        return Ok(items.remove(0));
    }
    let name = |item: &Value| printable_name(metadata_text(item, "name"));
    Err(ImportError::List {
        count: items.len(),
        names: named_few(items.iter().map(name)),
    })
}

/// Up to ten names, for a message.
fn named_few(names: impl Iterator<Item = String>) -> String {
    names.take(10).collect::<Vec<_>>().join(", ")
}

/// The keys in which Flux, Cluster API and others keep a kubeconfig.
const KUBECONFIG_KEYS: [&str; 3] = ["value", "value.yaml", "kubeconfig"];

fn kubeconfig_of(secret: &Value, key: Option<&str>) -> Result<(String, Vec<u8>), ImportError> {
    if let Some(key) = key {
        let bytes = secret_entry(secret, key)?.ok_or_else(|| {
            field_error(
                format!("data.{}", printable_name(key)),
                "is not there; name another with --key",
            )
        })?;
        return Ok((key.to_owned(), bytes));
    }
    for key in KUBECONFIG_KEYS {
        if let Some(bytes) = secret_entry(secret, key)? {
            return Ok((key.to_owned(), bytes));
        }
    }
    let keys: Vec<&String> = ["data", "stringData"]
        .into_iter()
        .filter_map(|part| secret.get(part)?.as_object())
        .flat_map(Map::keys)
        .collect();
    if let [key] = keys[..]
        && let Some(bytes) = secret_entry(secret, key)?
    {
        return Ok((key.clone(), bytes));
    }
    let problem = if keys.is_empty() {
        "is empty".to_owned()
    } else {
        format!(
            "has none of value, value.yaml and kubeconfig; name the key of the kubeconfig with --key: {}",
            named_few(keys.iter().map(|key| printable_name(key)))
        )
    };
    Err(field_error("data", problem))
}

/// An entry of a Secret, from `data` or `stringData`.
fn secret_entry(secret: &Value, key: &str) -> Result<Option<Vec<u8>>, ImportError> {
    let member = |part: &str| {
        secret
            .get(part)
            .and_then(|data| data.get(key))
            .and_then(Value::as_str)
    };
    if let Some(text) = member("stringData") {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let decoded = member("data").map(encoding::decode_base64);
    decoded
        .transpose()
        .map_err(|_| field_error(format!("data.{}", printable_name(key)), "is not base64"))
}

fn parse_document(text: &str) -> Result<Value, ImportError> {
    if text.len() > MAX_IMPORT_BYTES {
        return Err(ImportError::Form(0));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 100_000, max_nodes: 50_000, max_documents: 1, max_depth: 32, max_aliases: MAX_ALIASES, max_anchors: MAX_ALIASES },
        reject_unsupported_tags: true,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ImportError::Form(error.location().map_or(0, |it| it.line())))
}

fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn metadata_text<'a>(object: &'a Value, member: &str) -> &'a str {
    text_of(object.get("metadata").unwrap_or(&Value::Null), member)
}

/// Reads an optional string member. An empty string counts as absent.
fn optional_text(
    members: &Map<String, Value>,
    member: &str,
    path: &str,
) -> Result<Option<String>, ImportError> {
    match members.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(field_error(format!("{path}.{member}"), "is not a text")),
    }
}

/// Reads the cluster structure of clientcmd, which kubeconfigs and ClusterProfiles share.
fn read_cluster(members: &Map<String, Value>, path: &str) -> Result<Imported, ImportError> {
    match members.get("insecure-skip-tls-verify") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        _ => return Err(insecure_error(&format!("{path}.insecure-skip-tls-verify"))),
    }
    let ca = optional_text(members, "certificate-authority-data", path)?;
    // As in client-go, the data takes precedence.
    if ca.is_none()
        && members
            .get("certificate-authority")
            .is_some_and(|it| !it.is_null() && it.as_str() != Some(""))
    {
        let fix = "names a file, which is not read; put its content in base64 into \
            certificate-authority-data";
        return Err(field_error(format!("{path}.certificate-authority"), fix));
    }
    let server = optional_text(members, "server", path)?
        .ok_or_else(|| field_error(format!("{path}.server"), "is missing"))?;
    let mut dropped = Vec::new();
    let kept = [
        "server",
        "certificate-authority-data",
        "certificate-authority",
        "tls-server-name",
        "proxy-url",
        "insecure-skip-tls-verify",
    ];
    dropped.extend(
        members
            .keys()
            .filter(|member| !kept.contains(&member.as_str()))
            .map(|member| printable_name(member)),
    );
    Ok(Imported {
        name: String::new(),
        server,
        ca,
        tls_server_name: optional_text(members, "tls-server-name", path)?,
        proxy_url: optional_text(members, "proxy-url", path)?,
        dropped,
        warnings: Vec::new(),
    })
}

fn insecure_error(path: &str) -> ImportError {
    let fix = "is set, so anyone on the network path could read the tokens; get the cluster's CA \
        certificate, put it in, and remove this";
    field_error(path, fix)
}

/// Makes a name from the input safe to print.
fn printable_name(text: &str) -> String {
    text.chars()
        .filter(|character| character.is_ascii_graphic())
        .take(60)
        .collect()
}

#[cfg(test)]
mod tests;
