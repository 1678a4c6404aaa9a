//! `TargetAccess`: which ServiceAccount uses which TargetCluster, and how its credential is
//! delivered.

mod deliveries;
pub(super) mod secret_shape;

use std::collections::BTreeSet;
use std::time::Duration;

use super::access_spec::{ArgoCdForm, DeletionPolicy, DeliveryType, Probe, TargetAccessSpec};
use super::check::Check;
use super::document::{Document, Object, Origin};
use super::generation::Generation;
use super::mistake::Mistake;
use crate::name::{AccessName, Namespace, ObjectName};
use crate::service_account::Uid;

pub use secret_shape::SecretShape;

/// One entry of `deliveries[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its name in the list.
    pub name: ObjectName,
    /// The form in which it issues the credential.
    pub delivery_type: DeliveryType,
    /// The object that it writes, in the access's namespace; `None` for a type that answers
    /// requests.
    pub object_name: Option<ObjectName>,
    /// The lifetime of a token in that object, if the access sets one.
    pub lifetime: Option<Duration>,
    /// What an Argo CD cluster Secret contains besides the connection.
    pub argo_cd: Option<ArgoCd>,
    /// How the Secret of a `KubeConfigSecret` is written, if the access says it.
    pub secret: Option<SecretShape>,
}

impl Delivery {
    /// Whether the object that it writes contains a bearer token.
    pub fn holds_token(&self) -> bool {
        match self.delivery_type {
            DeliveryType::KubeConfigSecret | DeliveryType::ClusterAPISecret => true,
            DeliveryType::ArgoCDSecret => self
                .argo_cd
                .as_ref()
                .is_some_and(|argo_cd| argo_cd.form == ArgoCdForm::BearerToken),
            DeliveryType::ClientCertificateSecret
            | DeliveryType::ClusterProfile
            | DeliveryType::Exec
            | DeliveryType::FluxConfigMap
            | DeliveryType::HTTP => false,
        }
    }

    /// Whether the object that it writes contains a client certificate and its private key.
    pub fn holds_certificate(&self) -> bool {
        self.delivery_type == DeliveryType::ClientCertificateSecret
    }

    /// Whether the object that it writes contains a credential, which expires and is renewed.
    pub fn holds_credential(&self) -> bool {
        self.holds_token() || self.holds_certificate()
    }
}

/// The field `argoCD` of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgoCd {
    /// The AppProject that the cluster is for.
    pub project: String,
    /// How Argo CD gets its credential.
    pub form: ArgoCdForm,
}

/// A checked TargetAccess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAccess {
    /// Its namespace and name, which are also its UID in a file.
    pub name: AccessName,
    /// Its UID on the hub; `None` in a file.
    pub uid: Option<Uid>,
    /// Changes with its spec.
    pub generation: Generation,
    /// The TargetCluster it uses.
    pub target: ObjectName,
    /// The ServiceAccount it mints for, in its own namespace.
    pub service_account: ObjectName,
    /// Other ServiceAccounts of its namespace that may request its token.
    pub callers: BTreeSet<ObjectName>,
    /// The deliveries it requests. Empty means `HTTP` and `Exec`, on request.
    pub deliveries: Vec<Delivery>,
    /// What happens to its objects when it is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Whether the controller tries a token of it at the target.
    pub probe: Probe,
    /// Whether minting is suspended.
    pub suspend: bool,
}

impl TargetAccess {
    /// The delivery of this name.
    pub fn delivery(&self, name: &ObjectName) -> Option<&Delivery> {
        self.deliveries
            .iter()
            .find(|delivery| delivery.name == *name)
    }

    /// Whether this access offers credentials by this delivery type.
    pub fn offers(&self, delivery: DeliveryType) -> bool {
        if self.deliveries.is_empty() {
            return DeliveryType::ON_REQUEST.contains(&delivery);
        }
        self.deliveries
            .iter()
            .any(|offered| offered.delivery_type == delivery)
    }
}

/// Reads one TargetAccess; `None` if it has mistakes.
pub(super) fn read_access(
    document: &Document,
    mistakes: &mut Vec<Mistake>,
) -> Option<TargetAccess> {
    let mut check = Check::new(document, mistakes);
    let Object { metadata, spec, .. } = check.read_fields::<Object<TargetAccessSpec>>(&[])?;
    let namespace = read_namespace(metadata.namespace, &mut check);
    let name = check.take(
        "metadata.name",
        ObjectName::new(metadata.name),
        "name it as a Kubernetes object",
    );
    let target = check.take(
        "spec.targetClusterRef.name",
        ObjectName::new(spec.target_cluster_ref.name),
        "name a TargetCluster",
    );
    let service_account = check.take(
        "spec.serviceAccountName",
        ObjectName::new(spec.service_account_name),
        "name a ServiceAccount of the same namespace",
    );
    let callers = read_callers(spec.callers, &mut check);
    let deliveries = match (&name, &target) {
        (Some(name), Some(target)) => deliveries::read_deliveries(
            spec.deliveries,
            &deliveries::DefaultNames {
                access: name,
                target,
            },
            &mut check,
        ),
        _ => Vec::new(),
    };
    let deletion_policy = DeletionPolicy::read(spec.deletion_policy.as_deref(), &mut check);
    let probes = match check.origin() {
        Origin::File => Probe::WITHOUT_REQUIRE,
        Origin::Hub(_) => Probe::ALL,
    };
    let written_probe = spec.probe.as_deref();
    let probe = check.choose_or_default("spec.probe", written_probe, "a valid value", probes);
    if !check.clean() {
        return None;
    }
    let uid = match document.origin() {
        Origin::File => None,
        Origin::Hub(object) => Some(object.uid.clone()),
    };
    Some(TargetAccess {
        name: AccessName {
            namespace: namespace?,
            name: name?,
        },
        uid,
        generation: document.generation(),
        target: target?,
        service_account: service_account?,
        callers,
        deliveries,
        deletion_policy: deletion_policy?,
        probe: probe?,
        suspend: spec.suspend,
    })
}

fn read_namespace(namespace: Option<String>, check: &mut Check<'_>) -> Option<Namespace> {
    let namespace = namespace
        .ok_or("is missing".to_owned())
        .and_then(|text| Namespace::new(text).map_err(|error| error.to_string()));
    check.take(
        "metadata.namespace",
        namespace,
        "a TargetAccess is namespaced: write its tenant's namespace",
    )
}

fn read_callers(names: Vec<String>, check: &mut Check<'_>) -> BTreeSet<ObjectName> {
    let mut callers = BTreeSet::new();
    for (index, caller) in names.into_iter().enumerate() {
        let path = format!("spec.callers[{index}]");
        if let Some(caller) = check.take(
            &path,
            ObjectName::new(caller),
            "name a ServiceAccount of the same namespace, without a namespace",
        ) {
            let shown = caller.to_string();
            if !callers.insert(caller) {
                check.wrong(
                    &path,
                    format!("{shown:?} is listed twice"),
                    "list each caller once",
                );
            }
        }
    }
    callers
}
