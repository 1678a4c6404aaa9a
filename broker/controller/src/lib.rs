//! The server's background tasks; [`tasks`] lists them all.
//!
//! If policy objects are on the hub, [`delivery_queue`] decides which access is next, [`delivery`]
//! reconciles it, and [`target_status`] and [`audience_pairing`] write the other objects.

pub mod admission_policies;
pub mod audience_pairing;
pub mod context;
pub mod delivery;
pub mod delivery_queue;
pub mod input_credentials;
pub mod installed_policies;
pub mod key_refresh;
pub mod leader_election;
pub mod mint_rights_check;
pub mod pairing_trial;
pub mod target_certificates;
pub mod target_status;
pub mod tasks;
