//! The token API: [`http`] reads a request, [`broker`] decides on it with [`authenticate`] and
//! [`delegate`], and the mint returns a token. [`caller_trust`] reloads the CAs of callers.

pub mod audit;
pub mod authenticate;
pub mod broker;
pub mod caller_trust;
pub mod certificate_source;
pub mod delegate;
pub mod external_callers;
pub mod fips;
pub mod http;
pub mod inputs;
pub mod metrics_readers;
pub mod new_callers;
pub mod refusal_budget;
pub mod refusal_delay;
pub mod refusal_summary;
