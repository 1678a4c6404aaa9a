//! The server's background tasks. [`publish`] reloads the hub's keys, and [`certificates`] the
//! targets' CAs; [`renew`] renews cached tokens.
//!
//! If policy objects are on the hub, [`deliver`] decides which access is next, [`delivery`]
//! reconciles it, and [`target_status`] and [`pairing`] write the other objects.

pub mod admission_policies;
pub mod canary;
pub mod certificates;
pub mod deliver;
pub mod delivery;
pub mod input_credentials;
pub mod installed_policies;
pub mod issuer_keys;
pub mod lead;
pub mod pairing;
pub mod pairing_trial;
pub mod policy_assembly;
pub mod publish;
pub mod renew;
pub mod self_check;
pub mod target_status;
