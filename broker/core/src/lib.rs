//! Keyferry's decisions, as pure functions.
//!
//! Code in this crate is synchronous and total: it takes the time, bytes and objects as arguments
//! and returns a value or a named error. It opens no socket, reads no file and asks no clock. The
//! manifest's dependencies and `broker/cli/tests/architecture.rs` enforce this.
//!
//! Where to start: policy decisions are in [`authorise`]; the meaning of the configuration is in
//! [`config`]; signature checks are in [`verify`]. The documents that Keyferry sends are made in
//! [`kubeconfig`], [`discovery`] and [`jwks`].

pub mod access_status;
pub mod admission_policy;
pub mod audience;
pub mod audit;
pub mod authorise;
pub mod bound_token;
pub mod ca_bundle;
pub mod caller;
pub mod certificate_names;
pub mod claims;
pub mod condition;
pub mod config;
pub mod delivery;
pub mod discovery;
pub mod exchange;
pub mod exec_credential;
pub mod foreign_text;
pub mod import;
pub mod issuer;
pub mod json;
pub mod jwks;
pub mod jwt;
pub mod key_journal;
pub mod kubeconfig;
pub mod lifetime;
pub mod managed_issuer;
pub mod moment;
pub mod name;
pub mod pairing;
pub mod public_cluster;
pub mod reason;
pub mod received_kubeconfig;
pub mod request_id;
pub mod service_account;
pub mod serving_certificate;
pub mod static_verdict;
pub mod summary;
pub mod tracked_keys;
pub mod verify;
