//! What runs beside the listeners: reading the configuration, the targets' CA certificates and the
//! hub's keys again and again, and, where objects stand on the hub, bringing deliveries and
//! statuses to what policy says.

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
