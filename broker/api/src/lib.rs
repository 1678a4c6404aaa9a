//! What administrators and tenants write, and how Keyferry reports on it.
//!
//! [`config`] reads the configuration file and the objects TargetCluster and TargetAccess into one
//! checked policy. [`condition`] and [`summary`] are the parts of their status. The other modules
//! are the names that all crates share: an [`issuer`], an [`audience`], a [`reason`].
//!
//! Code in this crate is synchronous and total: it opens no socket, reads no file and asks no
//! clock. `broker/cli/tests/architecture.rs` enforces this.

pub mod audience;
pub mod condition;
pub mod config;
pub mod foreign_text;
pub mod issuer;
pub mod lifetime;
pub mod managed_issuer;
pub mod moment;
pub mod name;
pub mod reason;
pub mod service_account;
pub mod summary;
