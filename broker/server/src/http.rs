//! The HTTP servers: the published documents, the token API, and health, each on its own listener.

mod api_route;
mod bearer;
pub mod discovery;
pub mod exchange;
pub mod health;
mod inputs;
pub mod kubeconfig;
pub mod listener;
mod managed_issuers;
pub mod metadata;
pub mod metrics;
mod openapi;
pub mod redirect;
pub mod refusal;
pub mod token_api;

#[cfg(test)]
mod tests;
