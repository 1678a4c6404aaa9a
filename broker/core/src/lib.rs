//! Keyferry's decisions, as pure functions.
//!
//! Code in this crate is synchronous and total: it takes the time, bytes and objects as arguments
//! and returns a value or a named error. It opens no socket, reads no file and reads no clock. The
//! manifest's dependencies and `broker/cli/tests/architecture.rs` enforce this.
//!
//! Where to start: policy decisions are in [`authorise`]. The documents for callers and consumers
//! are made in [`kubeconfig`], [`exec_credential`] and [`delivery`].

pub mod access_status;
mod address_warning;
pub mod admission_policy;
pub mod audit;
pub mod authorise;
pub mod caller;
pub mod client_certificate;
pub mod client_document;
pub mod configuration_warnings;
pub mod delivery;
pub mod exchange;
pub mod exec_credential;
pub mod import;
pub mod inputs;
pub mod kubeconfig;
pub mod pairing;
pub mod public_cluster;
pub mod readiness;
pub mod received_kubeconfig;
pub mod request_id;
pub mod self_subject_review;
pub mod static_verdict;
pub mod target_address;
