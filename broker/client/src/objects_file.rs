//! Objects of a hub in a file, as `kubectl get targetclusters,targetaccesses -A -o yaml` prints
//! them, for commands whose user cannot ask the hub. They mean what the hub's own objects mean.

use std::path::{Path, PathBuf};

use keyferry_api::config::{
    ConfigError, Configuration, ObjectList, StoredAccess, StoredObjects, StoredTarget,
    TargetCluster,
};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use serde_json::Value;

use super::object_view::{AccessView, ObjectMetadata, TargetView};
use super::objects_of_hub::published_issuer;
use super::stated_settings::settings_in;
use super::wanted_objects::Wanted;

/// The content of a file with objects of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectsFile {
    path: PathBuf,
    targets: Vec<Listed<TargetView>>,
    accesses: Vec<Listed<AccessView>>,
}

/// An object of the file, with what commands read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed<T> {
    object: Value,
    view: T,
}

impl<T> Listed<T> {
    fn all(objects: Vec<Value>, view: impl Fn(&Value) -> T) -> Vec<Self> {
        let listed = |object| Self {
            view: view(&object),
            object,
        };
        objects.into_iter().map(listed).collect()
    }
}

/// A file with objects of a hub cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reading the hub's objects from {}: {problem}", path.display())]
pub struct ObjectsFileError {
    /// The file; `-` is standard input.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: ObjectsProblem,
}

/// What is wrong with a file of objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsProblem {
    /// It is not text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// It has something else than TargetClusters and TargetAccesses of a hub.
    #[error("it has mistakes:\n{0}")]
    Mistakes(#[from] ConfigError),
    /// It has no TargetCluster.
    #[error("there is no TargetCluster")]
    NoTargetClusters,
    /// It has no TargetCluster of this name.
    #[error("there is no TargetCluster {0:?}")]
    NoSuchTarget(String),
    /// It has no TargetAccess of this name that leads to a TargetCluster.
    #[error("there is no TargetAccess {0} that leads to a TargetCluster")]
    NoSuchAccess(String),
    /// The TargetCluster has changed since Keyferry wrote its status.
    #[error("the status of TargetCluster {0:?} is not about its current spec")]
    StaleTarget(String),
    /// No status of a TargetCluster has the settings of the server.
    #[error(
        "no TargetCluster has a status about its current spec with usernamePrefix, discoveryURL and \
         clusterResourceNamespace"
    )]
    NoSettings,
}

impl ObjectsProblem {
    /// Says what to do, where the text of the error does not.
    pub fn fix(&self) -> Option<&'static str> {
        match self {
            // Each mistake has its own fix.
            Self::Mistakes(_) => None,
            Self::StaleTarget(_) | Self::NoSettings => Some(
                "wait until Keyferry has written the status, then list the objects again, with \
                 -o yaml or -o json",
            ),
            _ => Some("list them with kubectl get targetclusters,targetaccesses -A -o yaml"),
        }
    }
}

impl ObjectsFile {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`ObjectsFileError`].
    pub fn parse_objects(path: &Path, bytes: Vec<u8>) -> Result<Self, ObjectsFileError> {
        let read = String::from_utf8(bytes)
            .map_err(|_| ObjectsProblem::NotUtf8)
            .and_then(|text| Ok(ObjectList::read(&text)?));
        match read {
            Ok(objects) => Ok(Self {
                path: path.to_owned(),
                targets: Listed::all(objects.targets, TargetView::of),
                accesses: Listed::all(objects.accesses, AccessView::of),
            }),
            Err(problem) => Err(ObjectsFileError {
                path: path.to_owned(),
                problem,
            }),
        }
    }

    /// The file; `-` is standard input.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the status of one TargetCluster; the default if it has none that can be read.
    pub fn target_status(&self, target: &ObjectName) -> TargetClusterStatus {
        let status = self.target(target).and_then(|it| it.view.status.clone());
        status.unwrap_or_default()
    }

    /// Returns the names of the TargetAccesses. Leaves out those that are being deleted.
    pub fn access_names(&self) -> Vec<AccessName> {
        let accesses = self.accesses.iter().map(|access| &access.view.metadata);
        accesses
            .filter(|metadata| !metadata.is_deleting())
            .filter_map(ObjectMetadata::access_name)
            .collect()
    }

    /// Returns the TargetClusters without mistakes.
    pub fn targets(&self) -> impl Iterator<Item = TargetCluster> {
        self.targets
            .iter()
            .filter_map(|target| StoredTarget::read_alone(&target.object))
    }

    /// Returns the settings that the wanted objects' status states, with all objects of the file as
    /// the policy.
    ///
    /// # Errors
    /// [`ObjectsFileError`].
    pub fn read_configuration(
        &self,
        wanted: Wanted<'_>,
    ) -> Result<Configuration, ObjectsFileError> {
        self.assemble_configuration(wanted)
            .map_err(|problem| ObjectsFileError {
                path: self.path.clone(),
                problem,
            })
    }

    fn assemble_configuration(&self, wanted: Wanted<'_>) -> Result<Configuration, ObjectsProblem> {
        let targets = &self.targets;
        let wanted_target = match wanted {
            Wanted::All => None,
            Wanted::Target(name) | Wanted::Cluster(name) => Some(
                self.target(name)
                    .ok_or_else(|| ObjectsProblem::NoSuchTarget(name.to_string()))?,
            ),
            Wanted::Access(access) => Some(
                self.target_of(access)
                    .ok_or_else(|| ObjectsProblem::NoSuchAccess(access.to_string()))?,
            ),
        };
        let settings = match wanted_target {
            // Only the server has seen all targets, and knows whether an older one has the audience.
            Some(target) if target.view.current_status().is_none() => {
                let name = target.view.metadata.name.clone();
                return Err(ObjectsProblem::StaleTarget(name));
            }
            Some(target) => settings_in(&target.view),
            None if targets.is_empty() => return Err(ObjectsProblem::NoTargetClusters),
            None => targets.iter().find_map(|target| settings_in(&target.view)),
        };
        let mut configuration = settings.ok_or(ObjectsProblem::NoSettings)?;
        let server = &mut configuration.server;
        let mut objects = StoredObjects::default();
        objects.targets.extend(
            targets
                .iter()
                .filter_map(|target| StoredTarget::read(&target.object, server)),
        );
        let accesses = self.accesses.iter();
        objects
            .accesses
            .extend(accesses.filter_map(|access| StoredAccess::read(&access.object)));
        let stated = objects.targets.iter().filter(|(name, _)| {
            wanted_target.is_none_or(|wanted| wanted.view.metadata.name == name.as_str())
        });
        server.hub_issuer = published_issuer(stated.map(|(_, target)| target));
        configuration.policy = objects
            .assemble(&configuration.server.cluster_resource_namespace)
            .policy;
        Ok(configuration)
    }

    fn target(&self, name: &ObjectName) -> Option<&Listed<TargetView>> {
        self.targets
            .iter()
            .find(|target| target.view.metadata.name == name.as_str())
    }

    fn target_of(&self, access: &AccessName) -> Option<&Listed<TargetView>> {
        let is_named = |listed: &&Listed<AccessView>| {
            let metadata = &listed.view.metadata;
            metadata.name == access.name.as_str()
                && metadata.namespace.as_deref() == Some(access.namespace.as_str())
        };
        let listed = self.accesses.iter().find(is_named)?;
        let target = listed.view.spec.target_cluster_ref.name.as_str();
        self.target(&ObjectName::new(target).ok()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(name: &str, created: &str, audience: &str) -> Value {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "generation": 2, "resourceVersion": "7",
                "creationTimestamp": created,
            },
            "spec": {
                "address": "https://prod.example.com", "audience": audience, "issuer": "Hub",
                "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"] }],
            },
            "status": {
                "observedGeneration": 2, "usernamePrefix": "hub:", "issuer": "https://hub.example.com",
                "discoveryURL": "https://keys.example.com/.well-known/openid-configuration",
                "clusterResourceNamespace": "keyferry-system",
            },
        })
    }

    fn access(name: &str, target: &str) -> Value {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": name, "namespace": "tenant-a", "uid": format!("uid-of-{name}"), "generation": 1,
                "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "targetClusterRef": { "name": target }, "serviceAccountName": "reconciler" },
        })
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:01Z";

    fn file(items: &[Value]) -> ObjectsFile {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        ObjectsFile::parse_objects(Path::new("-"), list.to_string().into_bytes()).unwrap()
    }

    fn named(name: &str) -> ObjectName {
        ObjectName::new(name).unwrap()
    }

    #[test]
    fn a_file_means_what_the_hub_means() {
        let file = file(&[
            target("prod", EARLY, "https://prod"),
            target("late", LATE, "https://prod"),
            access("apps", "prod"),
        ]);
        let configuration = file.read_configuration(Wanted::All).unwrap();
        let server = &configuration.server;
        assert_eq!(server.hub_name, "hub");
        assert_eq!(
            server.hub_issuer.as_ref().map(|issuer| issuer.as_str()),
            Some("https://hub.example.com")
        );
        let targets: Vec<&str> = configuration
            .policy
            .targets
            .keys()
            .map(|name| name.as_str())
            .collect();
        assert_eq!(targets, ["prod"], "the older one keeps the audience");
        assert_eq!(configuration.policy.accesses.len(), 1);
        let apps = AccessName::parse("tenant-a/apps").unwrap();
        let (prod, late) = (named("prod"), named("late"));
        for wanted in [Wanted::Access(&apps), Wanted::Target(&prod)] {
            let one = file.read_configuration(wanted).unwrap();
            assert!(one.policy.targets.contains_key(&prod), "{wanted:?}");
        }
        let one = file.read_configuration(Wanted::Target(&late)).unwrap();
        assert!(!one.policy.targets.contains_key(&late));
    }

    #[test]
    fn a_target_that_the_server_has_not_judged_is_refused() {
        let wanted = named("prod");
        let problem = |object: Value| {
            let error = file(&[object]).read_configuration(Wanted::Target(&wanted));
            error.unwrap_err().problem
        };
        for (pointer, value) in [
            ("/status/observedGeneration", json!(1)),
            ("/status/observedGeneration", json!(null)),
            ("/metadata/generation", json!(3)),
            ("/status", json!(null)),
        ] {
            let mut object = target("prod", EARLY, "https://prod");
            *object.pointer_mut(pointer).unwrap() = value;
            let problem = problem(object);
            assert!(
                matches!(&problem, ObjectsProblem::StaleTarget(name) if name == "prod"),
                "{pointer}: {problem}"
            );
            assert!(problem.fix().is_some());
        }
        let mut without = target("prod", EARLY, "https://prod");
        without["status"]["usernamePrefix"] = json!(null);
        assert!(matches!(problem(without), ObjectsProblem::NoSettings));
        // The status of another target does not speak for this one.
        let mut stale = target("prod", EARLY, "https://prod");
        stale["status"]["observedGeneration"] = json!(1);
        let both = file(&[stale, target("other", EARLY, "https://other")]);
        assert!(both.read_configuration(Wanted::Target(&wanted)).is_err());
        assert!(both.read_configuration(Wanted::All).is_ok());
    }

    #[test]
    fn what_is_not_in_the_file_is_named() {
        let some = file(&[
            target("prod", EARLY, "https://prod"),
            access("apps", "none"),
        ]);
        let problem = |file: &ObjectsFile, wanted: Wanted<'_>| {
            file.read_configuration(wanted).unwrap_err().to_string()
        };
        let (other, apps) = (named("other"), AccessName::parse("tenant-a/apps").unwrap());
        assert_eq!(
            problem(&some, Wanted::Target(&other)),
            "reading the hub's objects from -: there is no TargetCluster \"other\""
        );
        assert!(problem(&some, Wanted::Access(&apps)).contains("no TargetAccess tenant-a/apps"));
        assert!(problem(&file(&[]), Wanted::All).contains("there is no TargetCluster"));
        let latin = ObjectsFile::parse_objects(Path::new("a"), vec![0xe4]).unwrap_err();
        assert!(matches!(latin.problem, ObjectsProblem::NotUtf8), "{latin}");
        let wrong =
            ObjectsFile::parse_objects(Path::new("a"), b"kind: Secret".to_vec()).unwrap_err();
        assert!(wrong.problem.fix().is_none(), "{wrong}");
    }
}
