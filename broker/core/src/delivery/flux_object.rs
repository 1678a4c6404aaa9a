//! What of Flux's objects says which kubeconfig they read.

use serde::Deserialize;

use super::{ObjectKind, ObjectPlace};

/// A Kustomization or HelmRelease, reduced to its name and the kubeconfig that it names. Its tenant
/// decides how long the rest is, so it is skipped while a list is parsed.
#[derive(Debug, Deserialize)]
pub struct FluxObject {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    spec: Option<FluxSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FluxSpec {
    kube_config: Option<FluxKubeConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FluxKubeConfig {
    secret_ref: Option<Named>,
    config_map_ref: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
struct Named {
    name: Option<String>,
}

impl FluxObject {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it names the Secret or ConfigMap at this place of its own namespace.
    pub fn names(&self, place: &ObjectPlace) -> bool {
        match place.kind {
            ObjectKind::ConfigMap => self.config_map() == Some(place.name.as_str()),
            ObjectKind::ClusterProfile | ObjectKind::Secret => {
                self.secret() == Some(place.name.as_str())
            }
        }
    }

    /// Whether it names a Secret or a ConfigMap of this name.
    pub fn names_any(&self, name: &str) -> bool {
        self.secret() == Some(name) || self.config_map() == Some(name)
    }

    fn secret(&self) -> Option<&str> {
        self.kube_config()?.secret_ref.as_ref()?.name.as_deref()
    }

    fn config_map(&self) -> Option<&str> {
        self.kube_config()?.config_map_ref.as_ref()?.name.as_deref()
    }

    fn kube_config(&self) -> Option<&FluxKubeConfig> {
        self.spec.as_ref()?.kube_config.as_ref()
    }
}
