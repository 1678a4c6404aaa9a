//! Keyferry, the cross-cluster workload-identity token broker.
//!
//! The request path: [`http`] reads the request, [`broker`] decides on it with [`authenticate`] and
//! [`delegate`], and [`mint`] returns a cached token or mints one. [`serve`] builds all of them and
//! connects them. The decisions and the document formats are in `keyferry_core`; the client of the
//! hub is in [`kube`].

pub mod admission_policy;
pub mod advice;
pub mod audience_guard;
pub mod audit;
pub mod authenticate;
pub mod bound_request;
pub mod broker;
pub mod circuit;
pub mod cli;
pub mod client;
pub mod clock;
pub mod connection_fault;
pub mod controller;
pub mod delegate;
pub mod delivery;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod event;
pub mod export;
pub mod finalizer;
pub mod flight;
pub mod http;
mod in_time;
pub mod key_record_store;
pub mod kube;
pub mod leadership;
pub mod live;
pub mod managed_issuer;
pub mod metrics;
pub mod mint;
mod new_callers;
pub mod object_store;
pub mod policy_store;
pub mod ports;
pub mod publication;
pub mod random;
mod rate;
mod refusal_summary;
pub mod regular_file;
pub mod reload_signal;
pub mod serve;
pub mod settings;
pub mod source;
pub mod state_directory;
pub mod target_probe;
pub mod targets;
#[cfg(all(test, feature = "embedded"))]
pub(crate) mod testing;
pub mod timed_hub;
pub mod turns;
pub mod view;
