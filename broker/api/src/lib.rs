//! What administrators and tenants write, and how Keyferry reports on it.
//!
//! [`config`] reads the configuration file and the objects TargetCluster and TargetAccess into one
//! checked policy. [`status`], [`condition`] and [`summary`] are their status, [`pairing`] is the
//! object for an admission policy, and [`definition`] prints the CustomResourceDefinitions of all
//! three. [`json_schema`] prints references from the schemas of types. [`object_view`] is what
//! commands read of objects; its parts are [`lenient`] and [`stated_condition`]. The other modules
//! are the names that all crates share: an [`issuer`], an [`audience`], a [`reason`].
//!
//! Code in this crate is synchronous and total: it opens no socket, reads no file and asks no
//! clock. `broker/cli/tests/architecture.rs` enforces this.

pub mod audience;
pub mod bounded_value;
pub mod condition;
pub mod config;
pub mod definition;
pub mod foreign_text;
pub mod issuer;
pub mod json_schema;
pub mod lenient;
pub mod lifetime;
pub mod managed_issuer;
pub mod moment;
pub mod name;
pub mod object_view;
pub mod pairing;
pub mod reason;
mod schema;
pub mod service_account;
pub mod stated_condition;
pub mod status;
pub mod summary;
