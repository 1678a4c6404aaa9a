//! A change of objects, applied to what was read: the world after it, once the controllers have
//! followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::config::{StoredAccess, StoredTarget};
use keyferry_api::foreign_text::one_line;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::pairing::accounts_by_audience;
use keyferry_kube_rbac::{ObjectId, ObjectKind, ReadError, Reading, read_object};
use serde_json::{Value, json};

use super::{Hub, ObjectError, TargetFiles, World, object};
use crate::hub_search::HubSearch;
use crate::keyferry_mint::View;
use crate::list::{ListKind, Lists};

/// The most characters of a name in an error: no object of a cluster has more in kind, namespace and
/// name.
const MAX_NAME_CHARS: usize = 400;
/// The account that tests audiences, in Keyferry's namespace.
const CANARY: &str = "keyferry-canary";
/// Kinds that change nobody's way, outside the namespaces of the hub and of Keyferry itself.
const HARMLESS_KINDS: [(&str, &str); 9] = [
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
];

/// An object of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedObject {
    /// The target that has it; `None` for the hub.
    pub target: Option<ObjectName>,
    /// Its kind.
    pub kind: String,
    /// Its namespace, empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A change cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The object has no kind, name or namespace.
    #[error("object {0:?} lacks its apiVersion, kind, name or namespace; fix: give it whole")]
    Incomplete(String),
    /// What is deleted was not read.
    #[error("{0} is not in the snapshot; fix: name what is there")]
    Absent(ChangedObject),
    /// The spec of an object of Keyferry has mistakes.
    #[error(
        "{0} has mistakes; fix: check it against the schema, as kubectl apply --dry-run=server does"
    )]
    Invalid(ChangedObject),
    /// An RBAC object has a mistake.
    #[error(transparent)]
    Rbac(#[from] ReadError),
    /// Another object has a mistake.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl fmt::Display for ChangedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        };
        let words = format!("{} {name}", self.kind);
        match &self.target {
            None => f.write_str(words.trim_end()),
            Some(target) => write!(f, "{} at {target}", words.trim_end()),
        }
    }
}

impl ChangedObject {
    /// What an object of a target, or of the hub, is called.
    ///
    /// # Errors
    /// [`ChangeError::Incomplete`].
    pub fn of(value: &Value, target: Option<&ObjectName>) -> Result<Self, ChangeError> {
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = object::key(value);
        let changed = Self {
            target: target.cloned(),
            kind,
            namespace,
            name,
        };
        let list = changed.list();
        let is_namespaced = list.is_some_and(ListKind::is_namespaced);
        let is_file = changed.is_authentication_file();
        if changed.kind.is_empty()
            || !value["apiVersion"].is_string()
            || (changed.name.is_empty() && !is_file)
            || (list.is_some() && is_namespaced == changed.namespace.is_empty())
        {
            return Err(ChangeError::Incomplete(one_line(
                changed.to_string().trim(),
                MAX_NAME_CHARS,
            )));
        }
        Ok(changed)
    }

    fn is_authentication_file(&self) -> bool {
        self.target.is_some() && self.kind == "AuthenticationConfiguration"
    }

    /// The list that it belongs to; `None` for a kind that no answer depends on.
    pub fn list(&self) -> Option<ListKind> {
        let kinds: &[ListKind] = match self.target {
            None => &ListKind::ALL,
            Some(_) => &ListKind::RBAC,
        };
        let mut kinds = kinds.iter().copied();
        kinds.find(|kind| kind.object_kind() == self.kind)
    }

    fn rbac_id(&self) -> Option<ObjectId> {
        let kind = match self.list()? {
            ListKind::ClusterRoles => ObjectKind::ClusterRole,
            ListKind::ClusterRoleBindings => ObjectKind::ClusterRoleBinding,
            ListKind::Roles => ObjectKind::Role,
            ListKind::RoleBindings => ObjectKind::RoleBinding,
            _ => return None,
        };
        Some(ObjectId::namespaced(kind, &self.namespace, &self.name))
    }

    fn access_name(&self) -> Option<AccessName> {
        AccessName::parse(&format!("{}/{}", self.namespace, self.name)).ok()
    }

    /// Why its effect is not judged; `None` if it is, or if it has none.
    fn unjudged_reason(&self, version: &str, own_namespace: &str) -> Option<String> {
        if self.is_authentication_file() {
            return None;
        }
        if let Some(list) = self.list() {
            let own_version = list.api_version();
            return (version != own_version)
                .then(|| format!("its apiVersion is {version}, and {own_version} is judged"));
        }
        // Without a namespace it may be applied to any.
        let is_ours = ["", "kube-system", own_namespace].contains(&self.namespace.as_str());
        let is_harmless = HARMLESS_KINDS.contains(&(version, self.kind.as_str())) && !is_ours;
        (!is_harmless).then(|| "what this kind changes is not judged".to_owned())
    }
}

impl World {
    /// Puts an object in the place of the one of the same kind and name, whole. Returns why its
    /// effect is not judged.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn apply(
        &mut self,
        changed: &ChangedObject,
        value: Value,
        now: Timestamp,
    ) -> Result<Option<String>, ChangeError> {
        let version = value["apiVersion"].as_str().unwrap_or_default();
        if let Some(why) = changed.unjudged_reason(version, self.hub.namespace.as_str()) {
            return Ok(Some(why));
        }
        if let Some(target) = &changed.target {
            let files = Arc::make_mut(self.targets.entry(target.clone()).or_default());
            if changed.is_authentication_file() {
                files.authentication = Some(value.to_string().into_bytes());
            } else if let Some(role_or_binding) = read_object(value, Reading::Strict)? {
                files.rbac.insert(role_or_binding);
            }
        } else if changed.rbac_id().is_some() {
            if let Some(role_or_binding) = read_object(value, Reading::Strict)? {
                self.hub.rbac.insert(role_or_binding);
            }
        } else if let Some(list) = changed.list() {
            self.hub.replace(changed, list, value, now)?;
        }
        Ok(None)
    }

    /// Takes an object away. Returns why its effect is not judged.
    ///
    /// # Errors
    /// [`ChangeError::Absent`].
    pub fn delete(&mut self, changed: &ChangedObject) -> Result<Option<String>, ChangeError> {
        let absent = || ChangeError::Absent(changed.clone());
        let Some(list) = changed.list() else {
            return Ok(Some("what its removal changes is not judged".to_owned()));
        };
        if list == ListKind::Definitions && changed.name.ends_with(".keyferry.dev") {
            return Ok(Some("its objects go with it".to_owned()));
        }
        let is_removed = match (&changed.target, changed.rbac_id()) {
            (Some(target), Some(id)) => {
                let files = self.targets.get_mut(target).ok_or_else(absent)?;
                Arc::make_mut(files).rbac.remove(&id).is_some()
            }
            (_, Some(id)) => self.hub.rbac.remove(&id).is_some(),
            _ => {
                let is_removed = self.hub.remove(changed, list);
                self.hub.remove_dependents(changed, list);
                is_removed
            }
        };
        match is_removed {
            true => Ok(None),
            false => Err(absent()),
        }
    }

    /// Does what controllers do after a change: the aggregation of ClusterRoles, and Keyferry's
    /// AudiencePairing and delivered Secrets. Returns what of it cannot be known.
    pub fn settle(&mut self, before: &Self, changed: &[ChangedObject]) -> Vec<String> {
        let at = |target: Option<&ObjectName>, kind| {
            let mut objects = changed.iter();
            objects.any(|it| it.target.as_ref() == target && it.list() == Some(kind))
        };
        let mut unknown = Vec::new();
        let roles = ListKind::ClusterRoles;
        if at(None, roles) {
            let found = aggregate(&mut self.hub.rbac, &self.hub.lists);
            unknown.extend(found.map(|why| format!("{why} at the hub")));
        }
        for (name, files) in &mut self.targets {
            if at(Some(name), roles) {
                let TargetFiles { rbac, lists, .. } = Arc::make_mut(files);
                unknown.extend(aggregate(rbac, lists).map(|why| format!("{why} at {name}")));
            }
        }
        if !at(None, ListKind::AudiencePairings) {
            self.hub.update_pairing(&before.hub);
        }
        self.add_delivered_secrets();
        unknown.extend(changed.iter().filter_map(|object| self.unread_role(object)));
        unknown
    }

    /// Why it cannot be known what a binding grants.
    fn unread_role(&self, object: &ChangedObject) -> Option<String> {
        let (rbac, lists) = match &object.target {
            None => (&self.hub.rbac, &self.hub.lists),
            Some(target) => {
                let files = self.targets.get(target)?;
                (&files.rbac, &files.lists)
            }
        };
        let binding = rbac.binding(&object.rbac_id()?)?;
        let is_whole = match binding.role_ref.kind.name() {
            "Role" => lists.is_whole_in(ListKind::Roles, &object.namespace),
            _ => lists.is_whole(ListKind::ClusterRoles),
        };
        let is_unread = rbac.granted_role(binding).is_none() && !is_whole;
        is_unread.then(|| format!("what {object} grants, because its role was not read"))
    }

    /// Aggregates every ClusterRole, for a folder that no controller has seen.
    pub fn aggregate_roles(&mut self) -> Vec<String> {
        let all: Vec<ChangedObject> = std::iter::once(None)
            .chain(self.targets.keys().cloned().map(Some))
            .map(|target| ChangedObject {
                target,
                kind: ListKind::ClusterRoles.object_kind().to_owned(),
                namespace: String::new(),
                name: String::new(),
            })
            .filter(|it| {
                let lists = match &it.target {
                    None => Some(&self.hub.lists),
                    Some(target) => self.targets.get(target).map(|files| &files.lists),
                };
                lists.is_some_and(|lists| lists.is_whole(ListKind::ClusterRoles))
            })
            .collect();
        let before = self.clone();
        self.settle(&before, &all)
    }

    /// Adds the Secrets that Keyferry writes for deliveries which policy grants.
    fn add_delivered_secrets(&mut self) {
        let policy = self.hub.policy();
        let is_missing = policy.accesses.values().any(|access| {
            let namespace = access.name.namespace.as_str();
            let names = access.deliveries.iter().filter(|it| it.holds_token());
            let mut names = names.filter_map(|it| it.object_name.as_ref());
            names.any(|name| {
                let key = (namespace.to_owned(), name.to_string());
                !self.hub.secrets.contains_key(&key)
            })
        });
        if !is_missing {
            return;
        }
        let mut added = BTreeMap::new();
        let search = HubSearch::new(self, &policy);
        for ((access, _), grant) in search.delivery_grants() {
            if let (Some(name), Ok(doubts)) = (grant.token_secret, &grant.terms)
                && doubts.is_empty()
            {
                let secret = super::Secret {
                    secret_type: Some("Opaque".to_owned()),
                    access: Some(access.name.to_string()),
                    ..super::Secret::default()
                };
                added.insert((access.namespace.to_string(), name.to_string()), secret);
            }
        }
        let secrets = Arc::make_mut(&mut self.hub.secrets);
        for (key, secret) in added {
            secrets.entry(key).or_insert(secret);
        }
    }
}

/// Does the work of the controller that fills ClusterRoles. Returns why it cannot be known.
fn aggregate(policy: &mut keyferry_kube_rbac::Policy, lists: &Lists) -> Option<String> {
    if !lists.is_whole(ListKind::ClusterRoles) {
        return Some("which rules ClusterRoles gather, because clusterroles were not read".into());
    }
    match policy.aggregate() {
        Ok(result) if result.undetermined.is_empty() => None,
        Ok(result) => Some(format!(
            "whether the aggregated ClusterRoles {} keep their rules",
            result.undetermined.join(", ")
        )),
        Err(fault) => Some(fault.to_string()),
    }
}

impl Hub {
    /// Puts an object in the place of the former one. Copies no more of the hub than that: a change may
    /// have thousands of objects.
    fn replace(
        &mut self,
        changed: &ChangedObject,
        list: ListKind,
        mut value: Value,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        match list {
            ListKind::TargetClusters => return self.replace_target(changed, value, now),
            ListKind::TargetAccesses => return self.replace_access(changed, value, now),
            _ => {}
        }
        let key = (changed.namespace.clone(), changed.name.clone());
        let former_uid = self.accounts.get(&key).cloned().flatten();
        let is_new = !self.remove(changed, list);
        match list {
            ListKind::Namespaces => {
                let labels = &mut value["metadata"]["labels"];
                if !labels.is_object() && !labels.is_null() {
                    return Err(ChangeError::Invalid(changed.clone()));
                }
                labels["kubernetes.io/metadata.name"] = json!(changed.name);
                if is_new {
                    let account = (changed.name.clone(), "default".to_owned());
                    Arc::make_mut(&mut self.accounts).insert(account, None);
                }
            }
            ListKind::ServiceAccounts => value["metadata"]["uid"] = json!(former_uid),
            _ => {}
        }
        Ok(self.add(value)?)
    }

    fn replace_target(
        &mut self,
        changed: &ChangedObject,
        mut value: Value,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let invalid = || ChangeError::Invalid(changed.clone());
        let name = ObjectName::new(&changed.name).map_err(|_| invalid())?;
        let issuer = self.common_issuer();
        let former = Arc::make_mut(&mut self.stored).targets.remove(&name);
        fill_metadata(&mut value, former.as_ref().map(|it| &it.record), now);
        if former.is_none() {
            value["status"]["issuer"] = json!(issuer);
        }
        StoredTarget::read_alone(&value).ok_or_else(invalid)?;
        self.add(value.clone())?;
        if former.is_some_and(|former| self.stored.targets.get(&name) != Some(&former)) {
            raise_generation(&mut value);
            self.remove(changed, ListKind::TargetClusters);
            self.add(value)?;
        }
        Ok(())
    }

    fn replace_access(
        &mut self,
        changed: &ChangedObject,
        mut value: Value,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let invalid = || ChangeError::Invalid(changed.clone());
        let name = changed.access_name().ok_or_else(invalid)?;
        let former = Arc::make_mut(&mut self.stored).accesses.remove(&name);
        fill_metadata(&mut value, former.as_ref().map(|it| &it.record), now);
        let (_, access) = StoredAccess::read(&value).ok_or_else(invalid)?;
        if access.read.is_err() {
            return Err(invalid());
        }
        Ok(self.add(value)?)
    }

    /// The issuer that all statuses name.
    fn common_issuer(&self) -> Option<String> {
        let stored = self.stored.targets.values();
        let issuers: BTreeSet<&str> = stored
            .filter_map(|it| it.record.status.get("issuer")?.as_str())
            .collect();
        let mut issuers = issuers.into_iter();
        issuers
            .next()
            .filter(|_| issuers.next().is_none())
            .map(str::to_owned)
    }

    fn remove(&mut self, changed: &ChangedObject, list: ListKind) -> bool {
        let key = (changed.namespace.clone(), changed.name.clone());
        match list {
            ListKind::ServiceAccounts => Arc::make_mut(&mut self.accounts).remove(&key).is_some(),
            ListKind::Namespaces => {
                let namespaces = Arc::make_mut(&mut self.namespaces);
                namespaces.remove(&changed.name).is_some()
            }
            ListKind::Pods => {
                let pods = Arc::make_mut(&mut self.pods);
                let before = pods.len();
                pods.retain(|pod| (&pod.namespace, &pod.name) != (&key.0, &key.1));
                pods.len() < before
            }
            ListKind::Secrets => Arc::make_mut(&mut self.secrets).remove(&key).is_some(),
            ListKind::TargetClusters => ObjectName::new(&changed.name).is_ok_and(|name| {
                let stored = Arc::make_mut(&mut self.stored);
                stored.targets.remove(&name).is_some()
            }),
            ListKind::TargetAccesses => changed.access_name().is_some_and(|name| {
                let stored = Arc::make_mut(&mut self.stored);
                stored.accesses.remove(&name).is_some()
            }),
            ListKind::AudiencePairings => self.pairs.take().is_some(),
            ListKind::AdmissionPolicies | ListKind::AdmissionPolicyBindings => {
                let admission = Arc::make_mut(&mut self.admission);
                admission.remove(&(list, key.1)).is_some()
            }
            ListKind::Definitions => Arc::make_mut(&mut self.definitions).remove(&key.1),
            ListKind::ClusterRoles
            | ListKind::ClusterRoleBindings
            | ListKind::Roles
            | ListKind::RoleBindings => false,
        }
    }

    /// Removes what the garbage collector removes after a Namespace, an account or an access.
    fn remove_dependents(&mut self, changed: &ChangedObject, list: ListKind) {
        let (namespace, name) = (changed.namespace.as_str(), changed.name.as_str());
        let secrets = Arc::make_mut(&mut self.secrets);
        match list {
            ListKind::ServiceAccounts => secrets.retain(|(own, _), secret| {
                own != namespace || secret.account.as_deref() != Some(name)
            }),
            ListKind::TargetAccesses => secrets.retain(|(own, _), secret| {
                own != namespace || secret.access.as_deref() != Some(name)
            }),
            ListKind::Namespaces => {
                secrets.retain(|(own, _), _| own != name);
                Arc::make_mut(&mut self.accounts).retain(|(own, _), _| own != name);
                Arc::make_mut(&mut self.pods).retain(|pod| pod.namespace != name);
                let stored = Arc::make_mut(&mut self.stored);
                stored
                    .accesses
                    .retain(|own, _| own.namespace.as_str() != name);
                let roles = self.rbac.roles().map(|role| &role.id);
                let bindings = self.rbac.bindings().map(|binding| &binding.id);
                let ids = roles.chain(bindings).filter(|id| id.namespace == name);
                for id in ids.cloned().collect::<Vec<_>>() {
                    self.rbac.remove(&id);
                }
            }
            _ => {}
        }
    }

    /// Changes the AudiencePairing as Keyferry does when policy changes.
    fn update_pairing(&mut self, before: &Self) {
        let (before, after) = (before.granted_pairs(), self.granted_pairs());
        let Some(pairs) = &mut self.pairs else {
            return;
        };
        let pairs = Arc::make_mut(pairs);
        for (audience, accounts) in &before {
            match (after.get(audience), pairs.get_mut(audience)) {
                (None, _) => {
                    pairs.remove(audience);
                }
                (Some(kept), Some(listed)) => {
                    listed.retain(|account| kept.contains(account) || !accounts.contains(account));
                }
                (Some(_), None) => {}
            }
        }
        for (audience, accounts) in after {
            let is_new = before.get(&audience);
            let added = accounts
                .into_iter()
                .filter(|account| is_new.is_none_or(|before| !before.contains(account)));
            let added: Vec<String> = added.collect();
            if !added.is_empty() {
                pairs.entry(audience).or_default().extend(added);
            }
        }
    }

    fn granted_pairs(&self) -> BTreeMap<String, BTreeSet<String>> {
        let policy = self.policy();
        let audiences = policy.targets.values().map(|it| it.audience.to_string());
        let Ok(name) = ObjectName::new(CANARY) else {
            return BTreeMap::new();
        };
        let namespace = self.namespace.clone();
        let canary = ServiceAccount { namespace, name };
        accounts_by_audience(&policy, &View { hub: self }, audiences, &canary)
    }
}

/// Fills what the apiserver and Keyferry write, as it was before.
fn fill_metadata(value: &mut Value, record: Option<&keyferry_api::config::Record>, now: Timestamp) {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let uid = record.map_or_else(|| format!("new-{name:.100}"), |it| it.uid.to_string());
    let created = record.map_or(now, |it| it.created);
    value["metadata"]["uid"] = json!(uid);
    value["metadata"]["resourceVersion"] = json!(record.map_or("0", |it| it.version.as_str()));
    value["metadata"]["generation"] = json!(record.map_or(1, |it| it.generation));
    value["metadata"]["creationTimestamp"] = json!(created.to_string());
    value["status"] = record.map_or_else(|| json!({}), |it| it.status.clone());
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
    }
}

/// A spec that changed may get an audience that the former spec lost.
fn raise_generation(value: &mut Value) {
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    value["metadata"]["generation"] = json!(generation.saturating_add(1));
}
