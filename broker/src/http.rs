//! What Keyferry answers over HTTP: the published documents, the token API, and health, each on a listener of its own.

mod connection;
pub mod discovery;
pub mod exchange;
pub mod health;
pub mod kubeconfig;
pub mod listener;
mod own_issuers;
pub mod refusal;
pub mod token_api;
