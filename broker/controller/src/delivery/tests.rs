//! Deliveries on a hub in memory whose calls fail, and with an embedded hub that mints.

mod bench;
mod certificates;
mod failures;
mod interrupted;
mod order;
mod revoked;
mod status;
mod target_drain;
