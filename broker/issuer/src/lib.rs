//! What the hub's own issuer and Keyferry's managed issuers publish and sign.
//!
//! [`publication`] decides which keys verifiers can already see; [`mint`] returns a cached token or
//! mints one for a grant; [`managed_issuer`] holds signing keys of Keyferry's own.

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
