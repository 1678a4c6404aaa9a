//! Calls the hub's API, and caches its objects. Only this crate writes a TokenRequest
//! ([`token_request`]). It decides nothing about authorisation.
//!
//! The interfaces are in [`ports`]; [`client`] speaks HTTP, [`kube_hub`] implements the calls of the
//! request path, and [`watch`] follows objects.

mod access_review;
pub mod admission_policy;
pub mod certificate_secret;
mod circuit;
pub mod client;
mod collection_watch;
mod endpoint_slice;
pub mod event;
pub mod finalizer;
pub mod forbidden;
pub mod hub_facts;
pub mod hub_networks;
pub mod input_components;
pub mod input_credentials;
pub mod issuer_documents;
pub mod issuer_keys;
pub mod key_record_store;
pub mod kube_hub;
pub mod leadership;
pub mod lease;
pub mod live;
pub mod object_store;
pub mod objects;
pub mod ports;
mod secret;
pub mod secret_store;
pub mod self_review;
pub mod serving_secret;
mod slim_object;
mod streamed_json;
mod streamed_list;
pub mod targets;
pub mod tenant_limit;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod token_request;
mod token_review;
pub mod watch;
mod watch_fault;
mod watch_health;
pub mod watched_object;
