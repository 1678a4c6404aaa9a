//! Calls the hub's API, and caches its objects. Only this crate writes a TokenRequest
//! ([`token_request`]). It also holds the clock, randomness and metrics that the crates above share.
//! It decides nothing about authorisation.
//!
//! The interfaces are in [`ports`]; [`client`] speaks HTTP, [`kube_hub`] implements the calls of the
//! request path, and [`watch`] follows objects.

mod access_review;
pub mod address_guard;
pub mod admission_policy;
pub mod certificate_secret;
mod circuit;
pub mod client;
pub mod clock;
pub mod config_file;
pub mod connection_fault;
mod endpoint_slice;
pub mod event;
pub mod external_issuer_documents;
pub mod finalizer;
pub mod fleet_index;
pub mod forbidden;
pub mod https_client;
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
pub mod metrics;
pub mod name_resolver;
pub mod object_store;
pub mod objects;
pub mod policy_store;
pub mod ports;
pub mod public_documents;
pub mod random;
pub mod regular_file;
pub mod reload_signal;
mod secret;
pub mod secret_store;
pub mod self_review;
pub mod serving_secret;
pub mod single_flight;
pub mod state_directory;
pub mod targets;
pub mod tenant_limit;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timed_hub;
pub mod token_request;
mod token_review;
pub mod watch;
mod watch_fault;
mod watch_health;
mod watched_object;
