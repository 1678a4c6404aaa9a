//! What the crates above need from the machine, and what none of them may have twice: time
//! ([`clock`]), randomness ([`random`]), the metrics ([`metrics`]), files and signals, one cache
//! ([`stale_cache`]), one HTTPS client ([`https_client`]), the connection to a target
//! ([`target_connection`]), and the guard of every address that others chose ([`address_guard`]).
//!
//! Nothing here knows the hub's API: the manifest has no Kubernetes client.

pub mod address_guard;
pub mod audit_sink;
pub mod clock;
pub mod config_file;
pub mod connection_fault;
pub mod external_issuer_documents;
pub mod fleet_index;
pub mod gzip;
pub mod https_client;
pub mod https_probe;
pub mod metrics;
pub mod name_resolver;
pub mod policy_store;
pub mod public_documents;
pub mod random;
pub mod regular_file;
pub mod reload_signal;
pub mod secret_code;
pub mod single_flight;
pub mod stale_cache;
pub mod state_directory;
pub mod target_connection;
pub mod target_probe;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
