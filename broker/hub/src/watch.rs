//! Watches of the hub: metadata only for ServiceAccounts and Namespaces, whole objects for
//! TargetClusters and TargetAccesses.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1;
use keyferry_api::config::selects_by;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::delivery::OtherFluxCredential;
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};

use super::client::ClientError;
use super::watch_fault;
use super::watched_object::WatchedObject;
use crate::clock::Clock;
use crate::input_components::{self, InputComponents, InputConfigMap};
use crate::live::{LiveObjects, Watched};
use crate::object_store::{Collection, Listing, ObjectStore};
use crate::watch_health::{LiveWatch, WatchHealth};

/// How long the hub keeps a watch open, in seconds. It is shorter than the idle limit of common
/// load balancers, which drop a watch silently.
const WATCH_SECONDS: u32 = 200;
/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause, after several failures in a row. A recovered hub can go unnoticed for this
/// long.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// How long a watch may be silent. The hub sends a bookmark about once a minute, so a longer
/// silence is a dead connection.
const SILENCE: Duration = Duration::from_secs(90);
/// Objects per page of a list. Kept small because tenants can make each object large.
const PAGE: u32 = 100;

/// Creates the client for watches: with a deadline for each silence, but none for the whole watch.
///
/// # Errors
/// [`ClientError::Credentials`].
pub fn client(mut config: kube::Config) -> Result<Client, ClientError> {
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).map_err(|_| ClientError::Credentials)
}

/// Keeps the ServiceAccounts of `live` current until the task is dropped.
pub async fn service_accounts(client: Client, live: Arc<LiveObjects>, clock: Arc<dyn Clock>) {
    let api: Api<PartialObjectMeta<v1::ServiceAccount>> = Api::all(client);
    let (mut listing, mut credentials) = (HashMap::new(), HashMap::new());
    follow(
        &api,
        &LiveWatch {
            live: &live,
            watched: Watched::ServiceAccounts,
        },
        &*clock,
        |event| match event {
            Change::Listing => {
                listing.clear();
                credentials.clear();
            }
            Change::Listed(object) => {
                if let Some((account, Some(uid))) = identity(&object) {
                    if let Some(credential) = flux_credential(&object) {
                        credentials.insert(account.clone(), credential);
                    }
                    listing.insert(account, uid);
                }
            }
            Change::ListingDone => {
                live.replace_flux_credentials(std::mem::take(&mut credentials));
                live.replace_service_accounts(std::mem::take(&mut listing));
            }
            Change::Set(object) => {
                if let Some((account, uid)) = identity(&object) {
                    live.set_flux_credential(&account, flux_credential(&object));
                    live.set_service_account(account, uid);
                }
            }
            Change::Gone(object) => {
                if let Some((account, _)) = identity(&object) {
                    live.set_flux_credential(&account, None);
                    live.set_service_account(account, None);
                }
            }
        },
    )
    .await;
}

/// Keeps the Namespaces of `live` current until the task is dropped.
pub async fn namespaces(client: Client, live: Arc<LiveObjects>, clock: Arc<dyn Clock>) {
    let api: Api<PartialObjectMeta<v1::Namespace>> = Api::all(client);
    let mut listing = HashMap::new();
    follow(
        &api,
        &LiveWatch {
            live: &live,
            watched: Watched::Namespaces,
        },
        &*clock,
        |event| match event {
            Change::Listing => listing.clear(),
            Change::Listed(object) => {
                if let (Ok(name), true) = (Namespace::new(object.name_any()), is_live(&object)) {
                    listing.insert(name, selected_by(&object));
                }
            }
            Change::ListingDone => live.replace_namespaces(std::mem::take(&mut listing)),
            Change::Set(object) => {
                if let Ok(name) = Namespace::new(object.name_any()) {
                    live.set_namespace(name, is_live(&object).then(|| selected_by(&object)));
                }
            }
            Change::Gone(object) => {
                if let Ok(name) = Namespace::new(object.name_any()) {
                    live.set_namespace(name, None);
                }
            }
        },
    )
    .await;
}

/// Keeps the TargetClusters of `store` current until the task is dropped.
pub async fn target_clusters(
    client: Client,
    store: Arc<ObjectStore>,
    live: Arc<LiveObjects>,
    clock: Arc<dyn Clock>,
) {
    objects(client, Collection::TargetClusters, &store, &live, &*clock).await;
}

/// Keeps the TargetAccesses of `store` current until the task is dropped.
pub async fn target_accesses(
    client: Client,
    store: Arc<ObjectStore>,
    live: Arc<LiveObjects>,
    clock: Arc<dyn Clock>,
) {
    objects(client, Collection::TargetAccesses, &store, &live, &*clock).await;
}

async fn objects(
    client: Client,
    collection: Collection,
    store: &ObjectStore,
    live: &LiveObjects,
    clock: &dyn Clock,
) {
    let (watched, kind, plural) = match collection {
        Collection::TargetClusters => (Watched::TargetClusters, "TargetCluster", "targetclusters"),
        Collection::TargetAccesses => (Watched::TargetAccesses, "TargetAccess", "targetaccesses"),
    };
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("keyferry.dev", "v1alpha1", kind),
        plural,
    );
    let api: Api<WatchedObject> = Api::all_with(client, &resource);
    let mut listing = Listing::of(collection);
    let health = LiveWatch { live, watched };
    follow(&api, &health, clock, |event| match event {
        Change::Listing => listing = Listing::of(collection),
        Change::Listed(object) => store.note(&mut listing, &object.into_value()),
        Change::ListingDone => {
            store.replace_all(std::mem::replace(&mut listing, Listing::of(collection)))
        }
        Change::Set(object) => store.set(collection, &object.into_value()),
        Change::Gone(object) => store.remove(collection, &object.into_value()),
    })
    .await;
}

/// Keeps the fleet inputs of `components` current until the task is dropped.
pub async fn input_config_maps(
    client: Client,
    namespace: Namespace,
    components: Arc<InputComponents>,
    clock: Arc<dyn Clock>,
) {
    let api: Api<InputConfigMap> = Api::namespaced(client, namespace.as_str());
    let mut listing = HashMap::new();
    follow(&api, &*components, &*clock, |event| match event {
        Change::Listing => listing.clear(),
        // Read one by one, so that a list keeps only the collections in memory.
        Change::Listed(config_map) => {
            if let Some((target, read)) = config_map.read() {
                input_components::report(&target, &read);
                listing.insert(target, read);
            }
        }
        Change::ListingDone => components.replace_all(std::mem::take(&mut listing)),
        Change::Set(config_map) => components.set(&config_map),
        Change::Gone(config_map) => components.remove(&config_map),
    })
    .await;
}

enum Change<T> {
    Listing,
    Listed(T),
    ListingDone,
    Set(T),
    Gone(T),
}

/// An object type that the library can watch.
trait Followed:
    Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static
{
}

impl<T: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static> Followed
    for T
{
}

/// Follows a collection for ever. After a failure it lists again instead of resuming the watch. A
/// resumed watch reports nothing until an object changes, so its recovery would go unnoticed.
async fn follow<T: Followed>(
    api: &Api<T>,
    health: &impl WatchHealth,
    clock: &dyn Clock,
    mut act: impl FnMut(Change<T>),
) {
    let mut pause = FIRST_PAUSE;
    loop {
        if follow_once(api, health, clock, &mut act).await == Listed::Yes {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    Yes,
    No,
}

/// Watches until the first failure; returns whether a complete list came before it.
async fn follow_once<T: Followed>(
    api: &Api<T>,
    health: &impl WatchHealth,
    clock: &dyn Clock,
    act: &mut impl FnMut(Change<T>),
) -> Listed {
    let mut listed = Listed::No;
    let config = watcher::Config::default()
        .timeout(WATCH_SECONDS)
        .page_size(PAGE);
    let mut events = pin!(kube::runtime::watcher(api.clone(), config));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => act(Change::Listing),
            Ok(Event::InitApply(object)) => act(Change::Listed(object)),
            Ok(Event::InitDone) => {
                act(Change::ListingDone);
                listed = Listed::Yes;
                health.listed();
            }
            Ok(Event::Apply(object)) => {
                act(Change::Set(object));
                health.answered();
            }
            Ok(Event::Delete(object)) => {
                act(Change::Gone(object));
                health.answered();
            }
            Err(error) => {
                let (watched, fault) = (health.name(), watch_fault::describe(&error));
                match watch_fault::is_expired(&error) {
                    true => tracing::info!(
                        watched,
                        error = fault,
                        "the hub no longer has the changes since the last one; listing again"
                    ),
                    false => tracing::warn!(
                        watched,
                        error = fault,
                        "watching the hub failed; trying again"
                    ),
                }
                // Also after an expired watch: until the new list, changes may have been missed.
                health.failed(clock.now());
                break;
            }
        }
    }
    listed
}

/// Returns the labels that a TargetCluster may select by. The namespace's owner may add any number
/// of others, which are not stored.
fn selected_by(namespace: &PartialObjectMeta<v1::Namespace>) -> BTreeMap<String, String> {
    namespace
        .labels()
        .iter()
        .filter(|(key, _)| selects_by(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// An object that is being deleted counts as gone.
fn is_live<K>(object: &PartialObjectMeta<K>) -> bool {
    object.metadata.deletion_timestamp.is_none()
}

/// Reads the annotations by which Flux chooses a credential.
fn flux_credential(object: &PartialObjectMeta<v1::ServiceAccount>) -> Option<OtherFluxCredential> {
    OtherFluxCredential::of(|key| object.annotations().get(key).map(String::as_str))
}

fn identity(
    object: &PartialObjectMeta<v1::ServiceAccount>,
) -> Option<(ServiceAccount, Option<Uid>)> {
    let namespace = Namespace::new(object.namespace()?).ok()?;
    let name = ObjectName::new(object.name_any()).ok()?;
    let uid = object
        .metadata
        .uid
        .clone()
        .and_then(|uid| Uid::new(uid).ok())
        .filter(|_| is_live(object));
    Some((ServiceAccount { namespace, name }, uid))
}
