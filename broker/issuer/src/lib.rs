//! Publishes discovery documents and mints tokens, for the hub's issuer and for managed issuers.
//!
//! [`publication`] decides which keys are active; [`mint`] returns a cached token or mints one for a
//! grant; [`managed_issuer`] creates and rotates the keys of managed issuers.

pub mod advice;
pub mod audience_guard;
pub mod bound_request;
pub mod client_key;
pub mod export;
pub mod key_records;
pub mod managed_issuer;
pub mod mint;
pub mod publication;
pub mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
