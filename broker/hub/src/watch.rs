//! The watched collections of the hub, and where their objects are kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{ObjectSize, ReducedObject};
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_platform::clock::Clock;
use kube::Client;

use super::client::ClientError;
use super::watched_object::{WatchedNamespace, WatchedServiceAccount};
use crate::collection_watch::{Change, follow_collection};
use crate::input_components::{self, InputComponents, InputConfigMap};
use crate::live::{LiveObjects, LiveWatch, Watched};
use crate::object_store::{Collection, Listing, ObjectStore};

/// How long a watch may be silent. The hub sends a bookmark about once a minute, so a longer
/// silence is a dead connection.
const MAX_WATCH_SILENCE: Duration = Duration::from_secs(90);

/// A client for watches.
pub type WatchClient = Client;

/// Creates the client for watches: with a deadline for each silence, but none for the whole watch.
///
/// # Errors
/// [`ClientError::Credentials`].
pub fn watch_client(mut config: kube::Config) -> Result<WatchClient, ClientError> {
    config.read_timeout = Some(MAX_WATCH_SILENCE);
    Client::try_from(config).map_err(|_| ClientError::Credentials)
}

/// Keeps the ServiceAccounts of `live` current until the task is dropped.
pub async fn service_accounts(client: Client, live: Arc<LiveObjects>, clock: Arc<dyn Clock>) {
    let (mut listing, mut credentials) = (HashMap::new(), HashMap::new());
    follow_collection(
        &client,
        "/api/v1/serviceaccounts",
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
            Change::Listed(WatchedServiceAccount {
                account: Some(account),
                uid: Some(uid),
                flux_credential,
                ..
            }) => {
                if let Some(credential) = flux_credential {
                    credentials.insert(account.clone(), credential);
                }
                listing.insert(account, uid);
            }
            Change::Listed(_) => {}
            Change::ListingDone => {
                live.replace_flux_credentials(std::mem::take(&mut credentials));
                live.replace_service_accounts(std::mem::take(&mut listing));
            }
            Change::Set(object) => {
                if let Some(account) = object.account {
                    live.set_flux_credential(&account, object.flux_credential);
                    live.set_service_account(account, object.uid);
                }
            }
            Change::Gone(object) => {
                if let Some(account) = object.account {
                    live.set_flux_credential(&account, None);
                    live.set_service_account(account, None);
                }
            }
        },
    )
    .await;
}

/// Keeps the Namespaces of `live` current until the task is dropped.
pub async fn watch_namespaces(client: Client, live: Arc<LiveObjects>, clock: Arc<dyn Clock>) {
    let mut listing = HashMap::new();
    follow_collection(
        &client,
        "/api/v1/namespaces",
        &LiveWatch {
            live: &live,
            watched: Watched::Namespaces,
        },
        &*clock,
        |event: Change<WatchedNamespace>| match event {
            Change::Listing => listing.clear(),
            Change::Listed(object) => {
                if let (Some(name), Some(labels)) = (object.name, object.labels) {
                    listing.insert(name, labels);
                }
            }
            Change::ListingDone => live.replace_namespaces(std::mem::take(&mut listing)),
            Change::Set(object) => {
                if let Some(name) = object.name {
                    live.set_namespace(name, object.labels);
                }
            }
            Change::Gone(object) => {
                if let Some(name) = object.name {
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
    watch_objects(client, Collection::TargetClusters, &store, &live, &*clock).await;
}

/// Keeps the TargetAccesses of `store` current until the task is dropped.
pub async fn target_accesses(
    client: Client,
    store: Arc<ObjectStore>,
    live: Arc<LiveObjects>,
    clock: Arc<dyn Clock>,
) {
    watch_objects(client, Collection::TargetAccesses, &store, &live, &*clock).await;
}

async fn watch_objects(
    client: Client,
    collection: Collection,
    store: &ObjectStore,
    live: &LiveObjects,
    clock: &dyn Clock,
) {
    let (watched, path) = match collection {
        Collection::TargetClusters => (
            Watched::TargetClusters,
            "/apis/keyferry.dev/v1alpha1/targetclusters",
        ),
        Collection::TargetAccesses => (
            Watched::TargetAccesses,
            "/apis/keyferry.dev/v1alpha1/targetaccesses",
        ),
    };
    let mut listing = Listing::of_collection(collection);
    let health = LiveWatch { live, watched };
    follow_collection(&client, path, &health, clock, |event| match event {
        Change::Listing => listing = Listing::of_collection(collection),
        Change::Listed(object) => {
            report_size(watched, &object);
            store.note_listed(&mut listing, &object);
        }
        Change::ListingDone => store.replace_all(std::mem::replace(
            &mut listing,
            Listing::of_collection(collection),
        )),
        Change::Set(object) => {
            report_size(watched, &object);
            store.store_object(collection, &object);
        }
        Change::Gone(object) => store.remove_object(collection, &object),
    })
    .await;
}

/// Logs that an object is too large to be kept. Its status says so too.
fn report_size(watched: Watched, object: &ReducedObject) {
    if object.size() != ObjectSize::Kept {
        tracing::error!(
            reason = %Reason::ObjectTooLarge,
            watched = watched.as_str(),
            object = object.full_name(),
            "an object needs more memory than one may, so nothing is granted by it; fix: make it \
             smaller"
        );
    }
}

/// Keeps the fleet inputs of `components` current until the task is dropped.
pub async fn input_config_maps(
    client: Client,
    namespace: Namespace,
    components: Arc<InputComponents>,
    clock: Arc<dyn Clock>,
) {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut listing = HashMap::new();
    follow_collection(&client, &path, &*components, &*clock, |event| match event {
        Change::Listing => listing.clear(),
        // Read one by one, so that a list keeps only the collections in memory.
        Change::Listed(config_map) => {
            if let Some((target, read)) = InputConfigMap::read_target_inputs(&config_map) {
                input_components::report_fault(&target, &read);
                listing.insert(target, read);
            }
        }
        Change::ListingDone => components.replace_all(std::mem::take(&mut listing)),
        Change::Set(config_map) => components.set_inputs(&config_map),
        Change::Gone(config_map) => components.remove_inputs(&config_map),
    })
    .await;
}
