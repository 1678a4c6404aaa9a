//! What runs beside the listeners: reading the configuration, the targets' CA certificates and the hub's keys again and again.

pub mod canary;
pub mod certificates;
pub mod config_file;
pub mod issuer_keys;
pub mod key_records;
pub mod lead;
pub mod publish;
pub mod renew;
pub mod self_check;
