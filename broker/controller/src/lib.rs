//! The background tasks: they reload the targets' CA certificates and the hub's keys. If policy
//! objects are on the hub, they also reconcile deliveries and statuses.
//!
//! One delivery is reconciled in [`delivery`]; [`deliver`] decides which is next.

pub mod admission_policies;
pub mod caller_trust;
pub mod canary;
pub mod certificates;
pub mod deliver;
pub mod delivery;
pub mod input_credentials;
pub mod installed_policies;
pub mod issuer_keys;
pub mod lead;
pub mod objects;
pub mod pairing;
pub mod pairing_trial;
pub mod publish;
pub mod renew;
pub mod self_check;
pub mod target_probe;
pub mod target_status;
