//! The client of the hub's API, with one call per module. It makes calls and decides nothing about
//! who is authorised.

pub mod access_review;
pub mod certificate_secret;
pub mod client;
mod endpoint_slice;
pub mod hub;
pub mod hub_facts;
pub mod issuer_documents;
pub mod issuer_keys;
pub mod lease;
pub mod objects;
pub mod secret_store;
pub mod self_review;
pub mod token_request;
pub mod token_review;
pub mod watch;
mod watch_fault;
mod watched_object;
