//! Fleet inputs: what a child cluster, or a tenant, may read about itself, in the form that Flux
//! Operator's ResourceSetInputProvider of type `ExternalService` reads.
//!
//! A request presents a [`credential`], which yields an [`InputCaller`](credential::InputCaller).
//! This type is not a [`VerifiedCaller`](crate::caller::VerifiedCaller), so the authoriser cannot
//! make a grant from it, and nothing can be minted for it:
//!
//! ```compile_fail,E0308
//! use keyferry_core::authorise::Requester;
//! use keyferry_core::inputs::credential::InputCaller;
//!
//! fn requester(caller: InputCaller) -> Requester {
//!     Requester::Caller(caller)
//! }
//! ```
//!
//! Nor can a client certificate that identifies a credential become one of a ServiceAccount:
//!
//! ```compile_fail,E0308
//! use std::sync::Arc;
//!
//! use keyferry_api::config::InputCredential;
//! use keyferry_core::caller::{VerifiedCaller, accept_certificate};
//! use keyferry_keys::caller_certificate::CertifiedCaller;
//!
//! fn caller(certified: &CertifiedCaller<Arc<InputCredential>>) -> VerifiedCaller {
//!     accept_certificate(certified)
//! }
//! ```
//!
//! Every body is a [`Collection`](collection::Collection), whose constructor refuses what looks
//! like a secret.

pub mod collection;
pub mod components;
pub mod credential;
pub mod documents;
pub mod error;
pub mod fleet_index;
mod input_token;
pub mod presented;
pub mod runtime_info;
pub mod secret_scan;
mod secret_text;
