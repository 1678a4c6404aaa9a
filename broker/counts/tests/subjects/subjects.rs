//! What is counted: an exchange, a delivery and an evaluation, each made of the product's own
//! parts. Only the hub's answers are remembered, so that the hub's work is not counted.

#![allow(
    dead_code,
    reason = "each test includes this tree and needs a part of it"
)]

pub mod delivery;
pub mod evaluation;
pub mod exchange;
pub mod remembering_hub;

use std::sync::Arc;

use keyferry_issuer::testing::SmallWorld;

use self::remembering_hub::RememberingHub;

/// Starts a hub with its two tenants, whose answers are remembered.
pub async fn start_world() -> SmallWorld {
    let mut world = SmallWorld::start().await;
    world.port = Arc::new(RememberingHub::new(Arc::clone(&world.port)));
    world
}
