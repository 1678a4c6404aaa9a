//! Flux's objects as tests write them, and functions that wait for their conditions.

use std::time::Duration;

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::rest::{RestClient, RestError};
use crate::runner::TestError;
use crate::wait::until_object;

const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1";
const KUSTOMIZE: &str = "/apis/kustomize.toolkit.fluxcd.io/v1";
/// How long to wait. Flux retries after the interval of the object, which is a few seconds in these
/// tests.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A GitRepository of a test.
#[derive(Debug, Clone, Copy)]
pub struct GitSource<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The URL of the repository; the branch is `main`.
    pub url: &'a str,
}

impl GitSource<'_> {
    /// Its API path on the hub.
    pub fn path(&self) -> String {
        format!(
            "{SOURCES}/namespaces/{}/gitrepositories/{}",
            self.namespace, self.name
        )
    }

    /// Applies the GitRepository.
    ///
    /// # Errors
    /// Any error from the hub.
    pub async fn apply(&self, by: &RestClient) -> Result<Value, RestError> {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": { "interval": "5s", "url": self.url, "ref": { "branch": "main" } },
        });
        by.apply(&self.path(), &object).await
    }
}

/// The reference with which a Kustomization finds its target.
#[derive(Debug, Clone, Copy)]
pub enum KubeConfigRef<'a> {
    /// `secretRef`, key `value`.
    Secret(&'a str),
    /// `configMapRef`.
    ConfigMap(&'a str),
}

/// A Kustomization for a target, with pruning.
#[derive(Debug, Clone, Copy)]
pub struct KustomizationSpec<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The name of the GitRepository, in the same namespace.
    pub source: &'a str,
    /// The folder in the repository.
    pub path: &'a str,
    /// The reference to the target.
    pub kube_config: KubeConfigRef<'a>,
    /// `spec.serviceAccountName`: the user that Flux impersonates at the target.
    pub impersonating: Option<&'a str>,
}

impl KustomizationSpec<'_> {
    /// Its API path on the hub.
    pub fn path(&self) -> String {
        format!(
            "{KUSTOMIZE}/namespaces/{}/kustomizations/{}",
            self.namespace, self.name
        )
    }

    /// Applies the Kustomization.
    ///
    /// # Errors
    /// Any error from the hub.
    pub async fn apply(&self, by: &RestClient) -> Result<Value, RestError> {
        let kube_config = match self.kube_config {
            KubeConfigRef::Secret(name) => json!({ "secretRef": { "name": name } }),
            KubeConfigRef::ConfigMap(name) => json!({ "configMapRef": { "name": name } }),
        };
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": {
                "interval": "5s",
                "retryInterval": "2s",
                "timeout": "20s",
                "prune": true,
                "path": self.path,
                "sourceRef": { "kind": "GitRepository", "name": self.source },
                "kubeConfig": kube_config,
            },
        });
        if let Some(account) = self.impersonating {
            object["spec"]["serviceAccountName"] = account.into();
        }
        by.apply(&self.path(), &object).await
    }
}

/// Waits until an object is Ready in its current generation; returns it.
///
/// # Errors
/// It is not Ready within a minute. The error contains its Ready condition.
pub async fn until_ready(hub: &ControlPlane, path: &str) -> Result<Value, TestError> {
    until(hub, path, "Ready", |object, ready| {
        ready["status"] == "True"
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    })
    .await
}

/// Waits until the Ready condition of an object is False with this text in its message; returns the
/// object.
///
/// # Errors
/// The condition does not have it within a minute. The error contains the condition.
pub async fn until_said(hub: &ControlPlane, path: &str, text: &str) -> Result<Value, TestError> {
    let says = |_: &Value, ready: &Value| {
        ready["status"] == "False"
            && ready["message"]
                .as_str()
                .is_some_and(|said| said.contains(text))
    };
    until(hub, path, &format!("not Ready with {text:?}"), says).await
}

/// A condition of an object, or null if it has none of that type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == kind)
        .unwrap_or(&Value::Null)
}

async fn until(
    hub: &ControlPlane,
    path: &str,
    wanted: &str,
    holds: impl Fn(&Value, &Value) -> bool,
) -> Result<Value, TestError> {
    until_object(hub.admin(), path, wanted, WAIT_LIMIT, |object| {
        holds(object, condition(object, "Ready"))
    })
    .await
}
