//! Keys, tokens and certificates: parsed, checked and tracked, without I/O.
//!
//! [`jwt`] and [`jwks`] parse, [`verify`] checks signatures, [`discovery`] writes the documents
//! that targets read. [`tracked_keys`] decides which keys of the hub are active, [`key_journal`]
//! stores that, and [`managed_issuer`] holds the keys of managed issuers.
//!
//! Code in this crate is synchronous and total: it opens no socket, reads no file and asks no
//! clock. `broker/cli/tests/architecture.rs` enforces this.

pub mod bound_token;
pub mod ca_bundle;
pub mod caller_certificate;
pub mod certificate_names;
pub mod claims;
pub mod client_certificate;
pub mod discovery;
mod hexadecimal;
pub mod id_token;
pub mod json;
pub mod jwks;
pub mod jwt;
pub mod key_journal;
pub mod managed_issuer;
pub mod serving_certificate;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tracked_keys;
pub mod verify;
