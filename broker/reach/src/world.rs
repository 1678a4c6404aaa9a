//! What was read of a hub and of its targets.

mod change;
mod object;
mod slim_value;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::config::{self, Policy, StoredAccess, StoredObjects, StoredTarget};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_kube_authn::Release;
use keyferry_kube_rbac::{RbacObject, ReadError, Reading, read_object};
use serde_json::Value;

pub use self::change::{ChangeError, ChangedObject};
pub use self::object::{Pod, Secret};
pub use self::slim_value::SlimValue;
pub use self::snapshot::{MAX_SNAPSHOT_BYTES, SnapshotError, SnapshotNote, take_items};
use crate::actor::Actor;
use crate::doubt::Doubt;
use crate::list::{ListKind, Lists};
use crate::way::Removal;

/// The audience of tokens for Keyferry itself, unless its configuration names another.
const CALLER_AUDIENCE: &str = "keyferry.dev";

/// A hub and its targets.
#[derive(Clone, Debug)]
pub struct World {
    /// The hub.
    pub hub: Hub,
    /// The targets' side, by the name of the TargetCluster.
    pub targets: BTreeMap<ObjectName, Arc<TargetFiles>>,
}

/// What was read of the hub.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Which lists were read whole.
    pub lists: Lists,
    /// Keyferry's own namespace.
    pub namespace: Namespace,
    /// The user name of Keyferry's own account.
    pub account: String,
    /// The audience of tokens for Keyferry itself.
    pub caller_audience: String,
    /// The issuer of the hub's tokens; `None` to take it from the statuses.
    pub issuer: Option<String>,
    pub(crate) rbac: keyferry_kube_rbac::Policy,
    pub(crate) accounts: Arc<BTreeMap<(String, String), Option<String>>>,
    pub(crate) namespaces: Arc<BTreeMap<String, Arc<BTreeMap<String, String>>>>,
    pub(crate) pods: Arc<Vec<Pod>>,
    pub(crate) secrets: Arc<BTreeMap<(String, String), Secret>>,
    pub(crate) stored: Arc<StoredObjects>,
    /// What a configuration file states, if Keyferry reads its objects there.
    configured: Option<Arc<Policy>>,
    removed_accesses: BTreeSet<AccessName>,
    pub(crate) pairs: Option<Arc<BTreeMap<String, BTreeSet<String>>>>,
    pub(crate) admission: Arc<BTreeMap<(ListKind, String), Value>>,
    pub(crate) definitions: Arc<BTreeSet<String>>,
    /// The users about whom the hub itself says something else than its RBAC.
    pub(crate) distrusted: BTreeMap<Actor, Doubt>,
    /// The bindings of the admission policies that acts take away.
    pub(crate) taken_policies: BTreeSet<&'static str>,
    /// The targets to whose `allow[]` acts add.
    pub(crate) opened_targets: Vec<ActNames>,
}

/// Names of what an act gives, or all without them.
pub(crate) type ActNames = Option<BTreeSet<String>>;

/// What was read of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetFiles {
    /// Which lists of RBAC were read whole.
    pub lists: Lists,
    /// Its AuthenticationConfiguration.
    pub authentication: Option<Vec<u8>>,
    /// The release of its apiserver.
    pub release: Option<Release>,
    pub(crate) rbac: keyferry_kube_rbac::Policy,
}

/// An object cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// An RBAC object has a mistake.
    #[error(transparent)]
    Rbac(#[from] ReadError),
    /// The object lacks what every object of a cluster has.
    #[error(
        "the {kind} {name:?} has no uid, resourceVersion or creationTimestamp; fix: give what kubectl get -o yaml prints"
    )]
    NotOfCluster {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object is of a version whose meaning is not known here.
    #[error(
        "the {object} has the apiVersion {version:?}, and {judged} is judged; fix: give it in that version"
    )]
    OtherVersion {
        /// Its kind and name.
        object: String,
        /// Its version.
        version: String,
        /// The version that is judged.
        judged: &'static str,
    },
    /// Two readings of one object differ.
    #[error("there are two different readings of {0}; fix: keep the newer one")]
    Contradiction(String),
}

impl World {
    /// Begins a world in which nothing was read.
    pub fn new(namespace: Namespace) -> Self {
        Self {
            hub: Hub {
                lists: Lists::default(),
                account: format!("system:serviceaccount:{namespace}:keyferry"),
                namespace,
                caller_audience: CALLER_AUDIENCE.to_owned(),
                issuer: None,
                rbac: keyferry_kube_rbac::Policy::default(),
                accounts: Arc::default(),
                namespaces: Arc::default(),
                pods: Arc::default(),
                secrets: Arc::default(),
                stored: Arc::default(),
                configured: None,
                removed_accesses: BTreeSet::new(),
                pairs: None,
                admission: Arc::default(),
                definitions: Arc::default(),
                distrusted: BTreeMap::new(),
                taken_policies: BTreeSet::new(),
                opened_targets: Vec::new(),
            },
            targets: BTreeMap::new(),
        }
    }

    /// Whether anything of a target was read: its TargetCluster, or its folder.
    pub fn has_target(&self, name: &ObjectName) -> bool {
        let hub = &self.hub;
        let has_object = match &hub.configured {
            Some(policy) => policy.targets.contains_key(name),
            None => hub.stored.targets.contains_key(name),
        };
        self.targets.contains_key(name) || has_object
    }

    /// Takes targets and accesses from a configuration file. Objects of the hub are none then, and
    /// nobody writes any there.
    pub fn use_configuration(&mut self, policy: Policy) {
        let lists = &mut self.hub.lists;
        lists.note_whole(ListKind::TargetClusters);
        lists.note_whole(ListKind::TargetAccesses);
        self.hub.configured = Some(Arc::new(policy));
    }

    /// The same world without some objects, as it is once Keyferry has followed.
    #[must_use]
    pub fn without(&self, removals: &BTreeSet<Removal>) -> Self {
        let mut world = self.clone();
        for removal in removals {
            match removal {
                Removal::Binding(None, id) => {
                    world.hub.rbac.remove(id);
                }
                Removal::Binding(Some(target), id) => {
                    if let Some(files) = world.targets.get_mut(target) {
                        Arc::make_mut(files).rbac.remove(id);
                    }
                }
                Removal::Access(name) => world.hub.remove_access(name),
            }
        }
        world
    }
}

impl Hub {
    /// Adds an object. One of a kind that no answer depends on is skipped.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn add(&mut self, object: Value) -> Result<(), ObjectError> {
        let text = |field: &str| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (kind, version) = (text("kind"), text("apiVersion"));
        let name = object::full_name(&object);
        let is_secret = kind == "PartialObjectMetadata" && version.starts_with("meta.k8s.io/");
        let list = match ListKind::of_object(kind, version) {
            Ok(None) if is_secret => ListKind::Secrets,
            Ok(Some(list)) => list,
            Ok(None) => return Ok(()),
            // RBAC has an error of its own for it.
            Err(_) if version.starts_with("rbac.authorization.k8s.io/") => ListKind::Roles,
            Err(judged) => {
                return Err(ObjectError::OtherVersion {
                    object: format!("{kind} {name}"),
                    version: version.to_owned(),
                    judged,
                });
            }
        };
        let key = || object::key(&object);
        match list {
            ListKind::ServiceAccounts => {
                let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
                let uid = uid.map(str::to_owned);
                let accounts = Arc::make_mut(&mut self.accounts);
                check_same(accounts.insert(key(), uid.clone()), &uid, kind, &name)
            }
            ListKind::Namespaces => {
                let labels = Arc::new(object::labels(&object));
                let namespaces = Arc::make_mut(&mut self.namespaces);
                let known = namespaces.insert(key().1, Arc::clone(&labels));
                check_same(known, &labels, kind, &name)
            }
            ListKind::Pods => {
                Arc::make_mut(&mut self.pods).push(Pod::of(&object));
                Ok(())
            }
            ListKind::Secrets => {
                let secret = Secret::of(&object);
                let secrets = Arc::make_mut(&mut self.secrets);
                check_same(secrets.insert(key(), secret.clone()), &secret, kind, &name)
            }
            ListKind::TargetClusters => self.add_target(&object, name),
            ListKind::TargetAccesses => self.add_access(&object, name),
            ListKind::AudiencePairings => {
                let pairs = Arc::new(object::pairs(&object));
                check_same(self.pairs.replace(Arc::clone(&pairs)), &pairs, kind, &name)
            }
            ListKind::AdmissionPolicies | ListKind::AdmissionPolicyBindings => {
                self.add_admission(list, &object, &name)
            }
            ListKind::Definitions => {
                Arc::make_mut(&mut self.definitions).insert(key().1);
                Ok(())
            }
            ListKind::ClusterRoles
            | ListKind::ClusterRoleBindings
            | ListKind::Roles
            | ListKind::RoleBindings => add_rbac(&mut self.rbac, object),
        }
    }

    fn add_target(&mut self, object: &Value, name: String) -> Result<(), ObjectError> {
        let wrong = |name| ObjectError::NotOfCluster {
            kind: "TargetCluster",
            name,
        };
        let settings = config::of_hub_objects("hub", "https://keyferry.invalid", "keyferry-system")
            .map_err(|_| wrong(name.clone()))?;
        let (key, target) =
            StoredTarget::read(object, &settings.server).ok_or_else(|| wrong(name.clone()))?;
        let known = Arc::make_mut(&mut self.stored)
            .targets
            .insert(key, target.clone());
        check_same(known, &target, "TargetCluster", &name)
    }

    fn add_access(&mut self, object: &Value, name: String) -> Result<(), ObjectError> {
        let (key, access) =
            StoredAccess::read(object).ok_or_else(|| ObjectError::NotOfCluster {
                kind: "TargetAccess",
                name: name.clone(),
            })?;
        let known = Arc::make_mut(&mut self.stored)
            .accesses
            .insert(key, access.clone());
        check_same(known, &access, "TargetAccess", &name)
    }

    fn add_admission(
        &mut self,
        kind: ListKind,
        object: &Value,
        name: &str,
    ) -> Result<(), ObjectError> {
        let key = (kind, object::key(object).1);
        let known = Arc::make_mut(&mut self.admission).insert(key, object.clone());
        check_same(known, object, kind.object_kind(), name)
    }

    /// What the objects form together.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = match &self.configured {
            Some(policy) => (**policy).clone(),
            None => (*self.stored).clone().assemble(&self.namespace).policy,
        };
        policy
            .accesses
            .retain(|name, _| !self.removed_accesses.contains(name));
        self.open_targets(&mut policy);
        policy
    }

    /// The status of a TargetCluster, as far as it can be read.
    pub(crate) fn target_status(&self, name: &ObjectName) -> Option<TargetClusterStatus> {
        let stored = self.stored.targets.get(name)?;
        serde_json::from_value(stored.record.status.clone()).ok()
    }

    /// The names of all TargetClusters, also of those with mistakes.
    pub(crate) fn target_names(&self) -> impl Iterator<Item = &ObjectName> {
        let of_file = self.configured.iter().flat_map(|it| it.targets.keys());
        let of_hub = (!self.is_configured()).then(|| self.stored.targets.keys());
        of_file.chain(of_hub.into_iter().flatten())
    }

    /// Whether targets and accesses are those of a configuration file.
    pub fn is_configured(&self) -> bool {
        self.configured.is_some()
    }

    /// Removes an access, and what the AudiencePairing has because of it alone.
    fn remove_access(&mut self, name: &AccessName) {
        let policy = self.policy();
        let Some(removed) = policy.accesses.get(name) else {
            return;
        };
        self.removed_accesses.insert(name.clone());
        let remains = policy.accesses.values().any(|other| {
            other.name != *name
                && other.name.namespace == name.namespace
                && other.target == removed.target
                && other.service_account == removed.service_account
        });
        let audience = policy.targets.get(&removed.target);
        if let (false, Some(target), Some(pairs)) = (remains, audience, &mut self.pairs) {
            let account = format!("{}/{}", name.namespace, removed.service_account);
            if let Some(accounts) = Arc::make_mut(pairs).get_mut(target.audience.as_str()) {
                accounts.remove(&account);
            }
        }
    }
}

impl TargetFiles {
    /// Adds an RBAC object. Others are skipped.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn add(&mut self, object: Value) -> Result<(), ObjectError> {
        add_rbac(&mut self.rbac, object)
    }

    /// Whether nobody's rights differ, nor what was read of them.
    pub(crate) fn has_same_rbac(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.lists == other.lists
                && self.rbac.roles().eq(other.rbac.roles())
                && self.rbac.bindings().eq(other.rbac.bindings()))
    }
}

fn add_rbac(policy: &mut keyferry_kube_rbac::Policy, object: Value) -> Result<(), ObjectError> {
    let Some(object) = read_object(object, Reading::Stored)? else {
        return Ok(());
    };
    let id = object.id().clone();
    let Some(known) = policy.insert(object) else {
        return Ok(());
    };
    let is_same = match &known {
        RbacObject::Role(role) => policy.role(&id) == Some(role),
        RbacObject::Binding(binding) => policy.binding(&id) == Some(binding),
    };
    match is_same {
        true => Ok(()),
        false => Err(ObjectError::Contradiction(id.to_string())),
    }
}

fn check_same<T: PartialEq>(
    known: Option<T>,
    new: &T,
    kind: &str,
    name: &str,
) -> Result<(), ObjectError> {
    match known {
        Some(known) if known != *new => Err(ObjectError::Contradiction(format!("{kind} {name}"))),
        _ => Ok(()),
    }
}
