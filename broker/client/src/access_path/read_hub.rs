//! Reads the objects of an access's path from the hub.

use futures::future::join_all;
use keyferry_api::config::{
    Delivery, DeliveryType, StoredAccess, StoredTarget, TargetAccess, TargetCluster,
};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_core::delivery::ObjectKind;
use keyferry_hub::client::HubClient;
use serde_json::Value;

use super::flux_consumers::{FluxConsumer, list_consumers};
use super::observed::Observed;
use crate::doctor::flux::FluxKind;
use crate::object_view::{AccessStatusView, AccessView, TargetView};

/// Asks for an object without its content: no value of a Secret leaves the apiserver.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const GROUP_PATH: &str = "/apis/keyferry.dev/v1alpha1";

/// What was read of an access and of the objects that it names.
#[derive(Debug)]
pub(crate) struct AccessReading {
    /// The TargetAccess. Nothing else is read without it.
    pub(crate) access: Observed<ObservedAccess>,
    /// The rest; `None` if the TargetAccess could not be read, or its spec has a mistake.
    pub(crate) named: Option<NamedObjects>,
}

/// A TargetAccess with what Keyferry states of it.
#[derive(Debug)]
pub(crate) struct ObservedAccess {
    /// The checked spec; `None` if it has mistakes.
    pub(crate) spec: Option<TargetAccess>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// The status; `None` if it is about an earlier spec, or there is none.
    pub(crate) status: Option<AccessStatusView>,
}

/// The objects that an access names.
#[derive(Debug)]
pub(crate) struct NamedObjects {
    pub(crate) service_account: Observed<()>,
    pub(crate) target: Observed<ObservedTarget>,
    pub(crate) delivered: Vec<DeliveredObject>,
    pub(crate) flux: Vec<(FluxKind, Observed<Vec<FluxConsumer>>)>,
}

/// A TargetCluster with what Keyferry states of it.
#[derive(Debug)]
pub(crate) struct ObservedTarget {
    /// The checked spec; `None` if it has mistakes.
    pub(crate) spec: Option<TargetCluster>,
    /// The status; `None` if it is about an earlier spec, or there is none.
    pub(crate) status: Option<TargetClusterStatus>,
}

/// An object that a delivery writes.
#[derive(Debug)]
pub(crate) struct DeliveredObject {
    pub(crate) delivery_type: DeliveryType,
    pub(crate) kind: ObjectKind,
    pub(crate) name: ObjectName,
    pub(crate) live: Observed<()>,
}

/// Reads an access and the objects that it names.
pub(crate) async fn read_access(client: &HubClient, access: &AccessName) -> AccessReading {
    let path = format!(
        "{GROUP_PATH}/namespaces/{}/targetaccesses/{}",
        access.namespace, access.name
    );
    let object = client.get_object::<Value>(&path, "TargetAccess").await;
    let right = format!("get targetaccesses.keyferry.dev in {}", access.namespace);
    let access = Observed::of(object, right).and_then(|object| observe_access(&object));
    let named = match &access {
        Observed::Known(ObservedAccess {
            spec: Some(spec), ..
        }) => Some(read_named(client, spec).await),
        _ => None,
    };
    AccessReading { access, named }
}

pub(crate) fn observe_access(object: &Value) -> Option<ObservedAccess> {
    let (_, stored) = StoredAccess::read(object)?;
    let AccessView {
        metadata, status, ..
    } = AccessView::of(object);
    let is_current =
        metadata.generation.is_some() && status.observed_generation == metadata.generation;
    Some(ObservedAccess {
        spec: stored.read.ok(),
        deleting: metadata.is_deleting(),
        status: is_current.then_some(status),
    })
}

pub(crate) fn observe_target(object: &Value) -> ObservedTarget {
    let view = TargetView::of(object);
    ObservedTarget {
        spec: StoredTarget::read_alone(object),
        status: view.current_status().cloned(),
    }
}

async fn read_named(client: &HubClient, access: &TargetAccess) -> NamedObjects {
    let namespace = &access.name.namespace;
    let account = read_existence(
        client,
        "serviceaccounts",
        namespace,
        access.service_account.as_str(),
        "v1",
    );
    let delivered = access
        .deliveries
        .iter()
        .map(|delivery| read_delivered(client, namespace, delivery));
    let flux = [FluxKind::Kustomization, FluxKind::HelmRelease]
        .into_iter()
        .filter(|_| access.deliveries.iter().any(is_used_by_flux))
        .map(async |kind| (kind, list_consumers(client, namespace, kind).await));
    let (service_account, target, delivered, flux) = futures::join!(
        account,
        read_target(client, &access.target),
        join_all(delivered),
        join_all(flux)
    );
    NamedObjects {
        service_account,
        target,
        delivered: delivered.into_iter().flatten().collect(),
        flux,
    }
}

/// Whether a Kustomization or a HelmRelease can use what the delivery writes.
pub(crate) fn is_used_by_flux(delivery: &Delivery) -> bool {
    matches!(
        delivery.delivery_type,
        DeliveryType::FluxConfigMap
            | DeliveryType::KubeConfigSecret
            | DeliveryType::ClusterAPISecret
    )
}

async fn read_target(client: &HubClient, name: &ObjectName) -> Observed<ObservedTarget> {
    let path = format!("{GROUP_PATH}/targetclusters/{name}");
    let object = client.get_object::<Value>(&path, "TargetCluster").await;
    Observed::of(object, "get targetclusters.keyferry.dev")
        .and_then(|object| Some(observe_target(&object)))
}

async fn read_delivered(
    client: &HubClient,
    namespace: &Namespace,
    delivery: &Delivery,
) -> Option<DeliveredObject> {
    let kind = ObjectKind::of(delivery.delivery_type)?;
    let name = delivery.object_name.clone()?;
    let plural = match kind {
        ObjectKind::ClusterProfile => "clusterprofiles",
        ObjectKind::ConfigMap => "configmaps",
        ObjectKind::Secret => "secrets",
    };
    let live = read_existence(client, plural, namespace, name.as_str(), kind.api_version()).await;
    Some(DeliveredObject {
        delivery_type: delivery.delivery_type,
        kind,
        name,
        live,
    })
}

/// Asks whether an object of a namespace exists.
async fn read_existence(
    client: &HubClient,
    plural: &'static str,
    namespace: &Namespace,
    name: &str,
    api_version: &str,
) -> Observed<()> {
    let (base, resource) = match api_version.split_once('/') {
        Some((group, _)) => (format!("/apis/{api_version}"), format!("{plural}.{group}")),
        None => (format!("/api/{api_version}"), plural.to_owned()),
    };
    let path = format!("{base}/namespaces/{namespace}/{plural}/{name}");
    let answer = client.get(&path, METADATA).await.map(drop);
    Observed::of(answer, format!("get {resource} in {namespace}"))
}
