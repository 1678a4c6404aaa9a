//! The configuration: a YAML stream headed by a `ServerConfiguration`, followed by the same `TargetCluster` and `TargetAccess`
//! objects that the CRDs hold.
//!
//! [`read`] takes the file's text and returns everything it means, or every mistake in it with path, line and mend. What it returns
//! is typed so that nothing has to be checked a second time.

mod access;
mod check;
mod document;
mod span;
mod selector;
mod server;
mod target;

use std::collections::BTreeMap;

use crate::name::{AccessName, ObjectName};

pub use access::{Delivery, DeliveryType, TargetAccess};
pub use check::{ConfigError, Mistake};
pub use document::MAX_CONFIG_BYTES;
pub use selector::NamespaceSelector;
pub use server::{Listener, ServerConfiguration, TlsFiles};
pub use target::{AllowRule, CertificateSource, LifetimeRange, NamespaceRule, TargetCluster};

/// Everything one configuration file means.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// How this process serves.
    pub server: ServerConfiguration,
    /// Who may have what.
    pub policy: Policy,
}

/// The targets and accesses: the whole of what the authoriser decides on, apart from the hub's live objects.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Every TargetCluster by name. No two have one audience.
    pub targets: BTreeMap<ObjectName, TargetCluster>,
    /// Every TargetAccess by namespace and name.
    pub accesses: BTreeMap<AccessName, TargetAccess>,
    /// The namespace that holds Keyferry and the Secrets that targets name; nobody mints for its ServiceAccounts.
    pub own_namespace: Option<crate::name::Namespace>,
}

/// A hash of an object's spec: another spec is another generation, as `metadata.generation` is for an object of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// The generation of `spec`, as parsed and so without its comments and layout.
    pub(crate) fn of(spec: &serde_json::Value) -> Generation {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, canonical(spec).as_bytes());
        let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
        Generation(u64::from_be_bytes(first))
    }
}

/// JSON with sorted members, whatever map `serde_json` was built with.
fn canonical(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(members) => {
            let sorted: BTreeMap<&String, String> = members.iter().map(|(key, value)| (key, canonical(value))).collect();
            let members: Vec<String> = sorted.into_iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
            format!("{{{}}}", members.join(","))
        }
        serde_json::Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

/// Reads a configuration file's text.
///
/// # Errors
/// [`ConfigError`] lists every mistake that could be found, each with its place and its mend.
pub fn read(text: &str) -> Result<Configuration, ConfigError> {
    let documents = document::documents(text)?;
    let mut mistakes = Vec::new();
    let mut server = None;
    let mut policy = Policy::default();
    for (index, document) in documents.iter().enumerate() {
        match (document.api_version(), document.kind()) {
            (server::API_VERSION, "ServerConfiguration") if index == 0 => server = server::read(document, &mut mistakes),
            (server::API_VERSION, "ServerConfiguration") => {
                mistakes.push(document.mistake("kind", "a second ServerConfiguration stands in the file", "keep one, as the first document"));
            }
            (target::API_VERSION, "TargetCluster") => target::read(document, &mut policy, &mut mistakes),
            (target::API_VERSION, "TargetAccess") => access::read(document, &mut policy, &mut mistakes),
            (version, kind) => mistakes.push(document.mistake(
                "kind",
                format!("{version:?} {kind:?} is not an object that this file may hold"),
                "use config.keyferry.dev/v1alpha1 ServerConfiguration first, then keyferry.dev/v1alpha1 TargetCluster and TargetAccess",
            )),
        }
    }
    if documents.first().is_none_or(|first| first.kind() != "ServerConfiguration") {
        mistakes.insert(0, Mistake::whole_file("the file does not begin with a ServerConfiguration", "add one as its first document"));
    }
    target::check_audiences(&documents, &policy, server.as_ref(), &mut mistakes);
    match server {
        Some(server) if mistakes.is_empty() => {
            policy.own_namespace = Some(server.cluster_resource_namespace.clone());
            Ok(Configuration { server, policy })
        }
        _ => Err(ConfigError { mistakes }),
    }
}

#[cfg(test)]
mod tests;
