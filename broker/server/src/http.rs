//! The HTTP servers: the published documents, the token API, and health, each on its own listener.

mod acceptor;
mod api_route;
mod bearer;
mod bodies;
mod certificate_reload;
mod certificate_source;
mod client_certificate;
mod connection;
mod connection_requests;
pub mod discovery;
mod discovery_authority;
pub mod exchange;
mod framing;
mod gate;
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
mod serving_certificate;
mod shares;
pub mod token_api;
