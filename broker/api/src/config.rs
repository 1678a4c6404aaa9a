//! The configuration: a YAML stream with a `ServerConfiguration` first, followed by the same
//! `TargetCluster` and `TargetAccess` objects that the CRDs define.
//!
//! [`read`] takes the file's text and returns the configuration, or every mistake in it with path,
//! line and fix. The result is typed, so that nothing has to be checked a second time.

mod access;
mod access_spec;
mod address;
mod allow;
mod audit_file;
mod caller_certificates;
mod check;
mod cross_checks;
mod document;
mod duration;
mod external_issuer;
mod external_rule;
mod external_system;
mod file_schema;
mod generation;
mod inputs;
mod listener;
mod metrics_listener;
mod misfit;
mod mistake;
mod node;
mod object_list;
mod reduced;
mod roles;
mod selector;
mod server;
mod server_spec;
mod stored;
mod strict;
mod target;
mod target_spec;

mod written;

use std::collections::BTreeMap;

use crate::name::{AccessName, ObjectName};

pub use access::{ArgoCd, Delivery, SecretShape, TargetAccess};
pub(crate) use access_spec::TargetAccessObject;
pub use access_spec::{ArgoCdForm, DeletionPolicy, DeliveryType, Probe};
pub use address::{proxy as proxy_address, server as server_address, server_name};
pub use allow::{AllowRule, NamespaceRule};
pub use audit_file::{AuditFile, AuditRotation};
pub use caller_certificates::{CallerCertificate, ClientCertificateRule};
pub use document::MAX_CONFIG_BYTES;
pub use external_issuer::{ExternalIssuer, TokenUse, same_issuer};
pub use external_rule::ClaimRule;
pub use external_system::{EventClaim, ExternalSystem, GITHUB_EVENT, GITLAB_EVENT, SystemFacts};
pub use file_schema::file_schema;
pub use generation::{Generation, canonical};
pub use inputs::{InputCredential, InputProof, InputScope, Inputs};
pub use listener::{
    ListenAddressError, Listener, ListenerOverrides, TlsFiles, TlsSource, TlsVersion,
    listen_address,
};
pub use metrics_listener::{MetricsAuthentication, MetricsListener};
pub use mistake::{ConfigError, Mistake};
pub use object_list::ObjectList;
pub use reduced::{
    FINALIZER, Finalizers, MAX_ACCESS_SPEC_BYTES, MAX_KEPT_BYTES, ObjectSize, ReducedObject,
};
pub use selector::{NamespaceSelector, selects_by};
pub use server::{HubEndpoint, ManagedIssuers, NewCallerLimits, Overrides, ServerConfiguration};
pub use server_spec::ObjectSource;
pub use stored::{
    Assembled, DrainingTarget, MAX_ACCESSES, ObjectFault, Record, StoredAccess, StoredObjects,
    StoredTarget,
};
pub use target::{
    CertificateSource, ClientCertificates, ClusterIdentity, LifetimeRange, TargetCluster,
    TargetRole,
};
pub(crate) use target_spec::TargetClusterObject;
pub use target_spec::{CertificateApproval, TargetKind, TokenIssuer};
pub use written::{WrittenObject, written_objects};

use cross_checks::CrossChecks;
use document::Document;

/// The checked content of one configuration file.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings of this process.
    pub server: ServerConfiguration,
    /// Which callers may use which targets.
    pub policy: Policy,
}

/// The targets and accesses. Apart from the hub's live objects, they are the authoriser's only
/// input.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Every TargetCluster by name. No two have the same audience.
    pub targets: BTreeMap<ObjectName, TargetCluster>,
    /// Every TargetAccess by namespace and name.
    pub accesses: BTreeMap<AccessName, TargetAccess>,
    /// The namespace of Keyferry and of the Secrets that targets name. No tokens are minted for its
    /// ServiceAccounts.
    pub own_namespace: Option<crate::name::Namespace>,
}

impl Policy {
    fn insert(&mut self, object: ReadObject) {
        match object {
            ReadObject::Target(Some(target)) => {
                self.targets.insert(target.name.clone(), *target);
            }
            ReadObject::Access(Some(access)) => {
                self.accesses.insert(access.name.clone(), *access);
            }
            _ => {}
        }
    }

    /// The accesses whose target does not exist, each with the target's name. This is not a
    /// mistake: the two can be created in either order.
    pub fn dangling(&self) -> Vec<(AccessName, ObjectName)> {
        let missing = |access: &&TargetAccess| !self.targets.contains_key(&access.target);
        self.accesses
            .values()
            .filter(missing)
            .map(|access| (access.name.clone(), access.target.clone()))
            .collect()
    }

    /// Returns the mistake of a target whose audience is the running process's active audience for
    /// callers' tokens.
    pub fn mistake_of_caller_audience(
        &self,
        active: &crate::audience::Audience,
    ) -> Option<Mistake> {
        let target = self
            .targets
            .values()
            .find(|target| target.audience == *active)?;
        Some(Mistake {
            object: format!("TargetCluster/{}", target.name),
            path: "spec.audience".to_owned(),
            line: 0,
            problem: "is the callerAudience that the running process still has, so a target could \
                use its tokens to call Keyferry"
                .to_owned(),
            fix: "restart Keyferry with the new callerAudience first, or choose another audience"
                .to_owned(),
        })
    }
}

/// Settings for a command that has only the objects of the hub: taken from their statuses, with
/// defaults for the rest.
///
/// # Errors
/// [`ConfigError`]: one of the values is not valid.
pub fn of_hub_objects(
    hub_name: &str,
    public_url: &str,
    namespace: &str,
) -> Result<Configuration, ConfigError> {
    // JSON is YAML, so this is read with the rules of a file.
    let text = serde_json::json!({
        "apiVersion": server::API_VERSION,
        "kind": "ServerConfiguration",
        "hubName": hub_name,
        "publicURL": public_url,
        "clusterResourceNamespace": namespace,
        "objects": "CustomResources",
    });
    read_with(&text.to_string(), Overrides::of_a_reader())
}

/// Reads a configuration file's text.
///
/// # Errors
/// [`ConfigError`] lists every mistake that could be found, each with its location and its fix.
pub fn read(text: &str) -> Result<Configuration, ConfigError> {
    read_with(text, Overrides::default())
}

/// Reads a configuration file's text with settings that override it.
///
/// # Errors
/// As [`read`].
pub fn read_with(text: &str, overrides: Overrides) -> Result<Configuration, ConfigError> {
    let documents = document::documents(text)?;
    let mut mistakes = Vec::new();
    let mut server = None;
    let mut objects = Vec::with_capacity(documents.len());
    for document in &documents {
        match (document.api_version(), document.kind()) {
            (server::API_VERSION, "ServerConfiguration") => {
                let read = server::read_server(document, &overrides, &mut mistakes);
                server = server.or(read);
                objects.push(ReadObject::Server);
            }
            (target::API_VERSION, "TargetCluster") => {
                let target = target::read_target(document, &mut mistakes);
                objects.push(ReadObject::Target(target.map(Box::new)));
            }
            (target::API_VERSION, "TargetAccess") => {
                let access = access::read_access(document, &mut mistakes);
                objects.push(ReadObject::Access(access.map(Box::new)));
            }
            _ => {
                mistakes.push(unknown_kind(document));
                objects.push(ReadObject::Unknown);
            }
        }
    }
    let caller_audience = server::written_caller_audience(&documents);
    let mut checks = CrossChecks::new(caller_audience, server.as_ref());
    let mut policy = Policy::default();
    for (index, (document, object)) in documents.iter().zip(objects).enumerate() {
        // A document of another apiVersion counts too: its name and audience are meant.
        match document.kind() {
            "ServerConfiguration" => {
                checks.check_server_place(document, index, &mut mistakes);
            }
            "TargetCluster" => {
                let target = match &object {
                    ReadObject::Target(target) => target.as_deref(),
                    _ => None,
                };
                checks.check_target(document, target, &mut mistakes);
            }
            "TargetAccess" => checks.check_object(document, &mut mistakes),
            _ => {}
        }
        policy.insert(object);
    }
    roles::resolve_roles_in_file(&mut policy, &documents, &mut mistakes);
    mistakes.extend(checks.missing_server());
    mistakes.sort_by_key(|mistake| mistake.line);
    match server {
        Some(server) if mistakes.is_empty() => {
            policy.own_namespace = Some(server.cluster_resource_namespace.clone());
            Ok(Configuration { server, policy })
        }
        _ => Err(ConfigError { mistakes }),
    }
}

/// What one document was read to; `None` for an object with mistakes.
enum ReadObject {
    Server,
    Target(Option<Box<TargetCluster>>),
    Access(Option<Box<TargetAccess>>),
    Unknown,
}

fn unknown_kind(document: &Document) -> Mistake {
    let (version, kind) = (document.api_version(), document.kind());
    if !document.value().is_object() {
        return document.mistake(
            "",
            "the document is not a mapping",
            "write an object with apiVersion and kind",
        );
    }
    let expected = match kind {
        "ServerConfiguration" => server::API_VERSION,
        "TargetCluster" | "TargetAccess" => target::API_VERSION,
        _ => {
            let fix = "use ServerConfiguration first, then TargetCluster and TargetAccess";
            return document.mistake(
                "kind",
                format!("{kind:?} is not an object that this file may hold"),
                fix,
            );
        }
    };
    document.mistake(
        "apiVersion",
        format!("{version:?} has no {kind}"),
        format!("write {expected}"),
    )
}

#[cfg(test)]
mod tests;
