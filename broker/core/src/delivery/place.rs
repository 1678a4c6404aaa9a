//! The kind, namespace and name of a delivered object.

use std::fmt;

use keyferry_api::config::{Delivery, DeliveryType, TargetAccess};
use keyferry_api::name::{Namespace, ObjectName};

/// The kinds of objects that deliveries write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// `multicluster.x-k8s.io/v1alpha1`.
    ClusterProfile,
    /// `v1`.
    ConfigMap,
    /// `v1`.
    Secret,
}

impl ObjectKind {
    /// The kind of the object that a delivery of this type writes; `None` if it writes no object.
    pub fn of(delivery_type: DeliveryType) -> Option<Self> {
        match delivery_type {
            DeliveryType::ArgoCDSecret
            | DeliveryType::ClientCertificateSecret
            | DeliveryType::ClusterAPISecret
            | DeliveryType::KubeConfigSecret => Some(Self::Secret),
            DeliveryType::ClusterProfile => Some(Self::ClusterProfile),
            DeliveryType::FluxConfigMap => Some(Self::ConfigMap),
            DeliveryType::Exec | DeliveryType::HTTP => None,
        }
    }

    /// `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ClusterProfile => "multicluster.x-k8s.io/v1alpha1",
            Self::ConfigMap | Self::Secret => "v1",
        }
    }

    /// `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterProfile => "ClusterProfile",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// The kind, namespace and name of one delivered object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPlace {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace, which is the access's.
    pub namespace: Namespace,
    /// Its name.
    pub name: ObjectName,
}

impl ObjectPlace {
    /// The object that a delivery writes; `None` for a type that only answers requests.
    pub fn of(access: &TargetAccess, delivery: &Delivery) -> Option<Self> {
        let kind = ObjectKind::of(delivery.delivery_type)?;
        Some(Self {
            kind,
            namespace: access.name.namespace.clone(),
            name: delivery.object_name.clone()?,
        })
    }

    /// The path of its collection in the API.
    pub fn collection(&self) -> String {
        let (root, plural) = match self.kind {
            ObjectKind::ClusterProfile => {
                ("apis/multicluster.x-k8s.io/v1alpha1", "clusterprofiles")
            }
            ObjectKind::ConfigMap => ("api/v1", "configmaps"),
            ObjectKind::Secret => ("api/v1", "secrets"),
        };
        format!("/{root}/namespaces/{}/{plural}", self.namespace)
    }

    /// Its path in the API.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

impl fmt::Display for ObjectPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}
