//! The background tasks: they reload the configuration, the targets' CA certificates and the hub's
//! keys. If policy objects are on the hub, they also reconcile deliveries and statuses.

pub mod admission_policies;
pub mod canary;
pub mod certificates;
pub mod config_file;
pub mod deliver;
pub mod installed_policies;
pub mod issuer_keys;
pub mod key_records;
pub mod lead;
pub mod objects;
pub mod pairing;
pub mod pairing_trial;
pub mod publish;
pub mod renew;
pub mod self_check;
pub mod target_status;
