//! What was read of a hub and its targets, before anything is judged.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use keyferry_api::config::{
    CertificateSource, Policy, ReducedObject, StoredAccess, StoredTarget, TargetAccess,
    TargetCluster,
};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, Namespace, ObjectName};

use crate::audit_lines::AuditLines;
use crate::facts::{Source, TrustFacts};
use crate::gap::{ACCESSES, AUDIT_LOG, Gap};
use crate::keys_document::KeysDocument;
use crate::object_view::{AccessView, TargetView};

/// The version of Keyferry's objects that is read.
pub const OBJECT_VERSION: &str = "keyferry.dev/v1alpha1";
/// The most TargetClusters and TargetAccesses that are kept.
pub const MAX_OBJECTS: usize = 100_000;

/// What was read, by whom and when. What is missing from it is in `gaps`.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Where it comes from.
    pub source: Source,
    /// The user that read it, as the hub authenticates it.
    pub user: Option<ForeignText>,
    /// When it was read.
    pub read_at: Timestamp,
    /// The only namespace that was read.
    pub tenant: Option<Namespace>,
    /// The TargetClusters.
    pub targets: BTreeMap<ObjectName, ReadTarget>,
    /// The TargetAccesses.
    pub accesses: BTreeMap<AccessName, ReadAccess>,
    /// What `keyferry keys -o json` printed.
    pub keys: Option<KeysDocument>,
    /// Lines of the audit log.
    pub audit: Option<AuditLines>,
    /// What is known of the targets' side.
    pub target_files: BTreeMap<ObjectName, TargetFiles>,
    /// Desired trust against live, where it was compared.
    pub trust: BTreeMap<ObjectName, TrustFacts>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// A TargetCluster that was read.
#[derive(Clone, Debug)]
pub struct ReadTarget {
    /// What is read of it, whether or not its spec has mistakes.
    pub view: TargetView,
    /// Its spec; `None` if that has mistakes.
    pub spec: Option<TargetCluster>,
    /// Where two readings of it differ, so that its status says nothing.
    pub is_contradicted: bool,
    content: u64,
}

/// A TargetAccess that was read.
#[derive(Clone, Debug)]
pub struct ReadAccess {
    /// What is read of it, whether or not its spec has mistakes.
    pub view: AccessView,
    /// Its spec; `None` if that has mistakes.
    pub spec: Option<TargetAccess>,
    /// Where two readings of it differ, so that its status says nothing.
    pub is_contradicted: bool,
    content: u64,
}

/// The files of one target, as its admin has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFiles {
    /// Its AuthenticationConfiguration.
    pub authentication: Option<String>,
    /// Its RBAC objects, by the name of the file.
    pub rbac: BTreeMap<String, String>,
    /// The release of its apiserver.
    pub release: Option<String>,
}

/// What became of an object that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new.
    New,
    /// The same object with the same content is there already.
    Again,
    /// The same object with other content is there already.
    Contradicts {
        /// Its kind.
        kind: &'static str,
        /// `<namespace>/<name>`, or the name alone.
        name: String,
    },
    /// Its name or namespace is not valid.
    NameInvalid,
    /// It is neither a TargetCluster nor a TargetAccess.
    OtherKind,
    /// There are too many objects.
    TooMany,
}

impl Snapshot {
    /// Begins a snapshot with nothing in it.
    pub fn new(source: Source, read_at: Timestamp) -> Self {
        Self {
            source,
            user: None,
            read_at,
            tenant: None,
            targets: BTreeMap::new(),
            accesses: BTreeMap::new(),
            keys: None,
            audit: None,
            target_files: BTreeMap::new(),
            trust: BTreeMap::new(),
            gaps: Vec::new(),
        }
    }

    /// Makes a snapshot of what a configuration file states. No object of it has a status.
    pub fn of_policy(policy: &Policy, path: &str, read_at: Timestamp) -> Self {
        let source = Source::Folder {
            path: ForeignText::new(path),
        };
        let mut snapshot = Self::new(source, read_at);
        for (name, spec) in &policy.targets {
            snapshot
                .targets
                .insert(name.clone(), ReadTarget::of_spec(spec));
        }
        for (name, spec) in &policy.accesses {
            snapshot
                .accesses
                .insert(name.clone(), ReadAccess::of_spec(spec));
        }
        snapshot
    }

    /// Adds a TargetCluster or a TargetAccess, as the hub returns it.
    pub fn add_object(&mut self, object: &ReducedObject) -> Added {
        let value = object.clone().into_value();
        match value.get("kind").and_then(serde_json::Value::as_str) {
            Some("TargetCluster") => self.add_target(object, &value),
            Some("TargetAccess") => self.add_access(object, &value),
            _ => Added::OtherKind,
        }
    }

    /// Leaves what a tenant of this namespace may read: its accesses, what their statuses say of
    /// targets, and its own refusals.
    pub fn keep_namespace(&mut self, namespace: &Namespace) {
        self.accesses.retain(|name, _| name.namespace == *namespace);
        self.targets.clear();
        self.target_files.clear();
        self.trust.clear();
        self.keys = None;
        if let Some(audit) = &mut self.audit {
            audit.keep_namespace(namespace.as_str());
        }
        self.gaps
            .retain(|gap| gap.resource == ACCESSES || gap.resource == AUDIT_LOG);
        self.tenant = Some(namespace.clone());
    }

    /// Marks an object, by `<namespace>/<name>` or the name alone, as one whose status says nothing.
    pub(crate) fn distrust_object(&mut self, full_name: &str) {
        let access = AccessName::parse(full_name).ok();
        if let Some(read) = access.and_then(|name| self.accesses.get_mut(&name)) {
            read.is_contradicted = true;
        }
        let target = ObjectName::new(full_name).ok();
        if let Some(read) = target.and_then(|name| self.targets.get_mut(&name)) {
            read.is_contradicted = true;
        }
    }

    /// Whether a list was read whole, so that what is not in it does not exist.
    pub fn is_whole(&self, resource: &str) -> bool {
        !self.gaps.iter().any(|gap| gap.resource == resource)
    }

    /// Returns what the readable specs allow.
    pub fn policy(&self) -> Policy {
        let targets = self.targets.values().filter_map(|it| it.spec.clone());
        let accesses = self.accesses.values().filter_map(|it| it.spec.clone());
        Policy {
            targets: targets.map(|it| (it.name.clone(), it)).collect(),
            accesses: accesses.map(|it| (it.name.clone(), it)).collect(),
            own_namespace: self.keyferry_namespace(),
        }
    }

    /// Returns Keyferry's own namespace, if a status names it.
    pub fn keyferry_namespace(&self) -> Option<Namespace> {
        let statuses = self
            .targets
            .values()
            .filter_map(|it| it.view.status.as_ref());
        let mut namespaces = statuses.filter_map(|it| it.cluster_resource_namespace.as_deref());
        Namespace::new(namespaces.next()?).ok()
    }

    fn add_target(&mut self, object: &ReducedObject, value: &serde_json::Value) -> Added {
        let view = TargetView::of(value);
        let Some(name) = view.metadata.object_name() else {
            return Added::NameInvalid;
        };
        let content = content_hash(value);
        let is_full = self.is_full();
        match self.targets.get_mut(&name) {
            Some(known) if known.content == content => Added::Again,
            Some(known) => {
                known.is_contradicted = true;
                Added::Contradicts {
                    kind: "TargetCluster",
                    name: object.full_name(),
                }
            }
            None if is_full => Added::TooMany,
            None => {
                let read = ReadTarget {
                    view,
                    spec: StoredTarget::read_alone(value),
                    is_contradicted: false,
                    content,
                };
                self.targets.insert(name, read);
                Added::New
            }
        }
    }

    fn add_access(&mut self, object: &ReducedObject, value: &serde_json::Value) -> Added {
        let view = AccessView::of(value);
        let Some(name) = view.metadata.access_name() else {
            return Added::NameInvalid;
        };
        let content = content_hash(value);
        let is_full = self.is_full();
        match self.accesses.get_mut(&name) {
            Some(known) if known.content == content => Added::Again,
            Some(known) => {
                known.is_contradicted = true;
                Added::Contradicts {
                    kind: "TargetAccess",
                    name: object.full_name(),
                }
            }
            None if is_full => Added::TooMany,
            None => {
                let stored = StoredAccess::read_reduced(object);
                let read = ReadAccess {
                    view,
                    spec: stored.and_then(|(_, stored)| stored.read.ok()),
                    is_contradicted: false,
                    content,
                };
                self.accesses.insert(name, read);
                Added::New
            }
        }
    }

    fn is_full(&self) -> bool {
        self.targets.len() + self.accesses.len() >= MAX_OBJECTS
    }
}

impl ReadTarget {
    fn of_spec(spec: &TargetCluster) -> Self {
        let mut view = TargetView::default();
        view.metadata.name = spec.name.to_string();
        let written = &mut view.spec;
        written.kind = if spec.is_cluster() {
            "Cluster"
        } else {
            "Audience"
        }
        .to_owned();
        written.address = spec.address.clone();
        written.audience = spec.audience.to_string();
        if let Some(role) = &spec.role {
            written.same_as = Some(role.same_as.to_string());
            written.role = Some(role.role.to_string());
        }
        written.suspend = spec.suspend;
        written.hub = spec.client_certificates.is_some();
        match &spec.certificate {
            CertificateSource::Secret(name) => written.cert_secret_ref.name = name.to_string(),
            CertificateSource::TrustBundle(name) => {
                written.cluster_trust_bundle_ref.name = name.to_string();
            }
            CertificateSource::Inline(pem) => written.ca_bundle = Some(pem.clone()),
            CertificateSource::System => {}
        }
        Self {
            view,
            spec: Some(spec.clone()),
            is_contradicted: false,
            content: 0,
        }
    }
}

impl ReadAccess {
    fn of_spec(spec: &TargetAccess) -> Self {
        let mut view = AccessView::default();
        view.metadata.name = spec.name.name.to_string();
        view.metadata.namespace = Some(spec.name.namespace.to_string());
        view.spec.target_cluster_ref.name = spec.target.to_string();
        view.spec.service_account_name = spec.service_account.to_string();
        view.spec.callers = spec.callers.iter().map(ToString::to_string).collect();
        view.spec.suspend = spec.suspend;
        Self {
            view,
            spec: Some(spec.clone()),
            is_contradicted: false,
            content: 0,
        }
    }
}

/// Hashes an object, for the comparison of two readings of it.
fn content_hash(value: &serde_json::Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(generation: i64) -> ReducedObject {
        ReducedObject::of(&json!({
            "apiVersion": OBJECT_VERSION, "kind": "TargetCluster",
            "metadata": { "name": "prod", "uid": "u", "resourceVersion": "1", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "address": "https://prod.test", "audience": "https://prod.test" },
        }))
    }

    #[test]
    fn an_object_that_is_read_twice_counts_once_or_proves_nothing() {
        let source = Source::Generated { seed: 1 };
        let mut snapshot = Snapshot::new(source, Timestamp::UNIX_EPOCH);
        let cases = [
            (target(1), Added::New),
            (target(1), Added::Again),
            (
                target(2),
                Added::Contradicts {
                    kind: "TargetCluster",
                    name: "prod".to_owned(),
                },
            ),
        ];
        for (object, expected) in cases {
            assert_eq!(snapshot.add_object(&object), expected);
        }
        let read = snapshot.targets.values().next().unwrap();
        assert!(read.is_contradicted && read.spec.is_some());
        let odd = |value| ReducedObject::of(&value);
        let unnamed = odd(json!({ "kind": "TargetAccess", "metadata": { "name": "../a" } }));
        assert_eq!(snapshot.add_object(&unnamed), Added::NameInvalid);
        assert_eq!(
            snapshot.add_object(&odd(json!({ "kind": "Secret" }))),
            Added::OtherKind
        );
    }
}
