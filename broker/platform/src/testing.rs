//! Fakes that unit tests of several crates share: a clock, and a network with its names.

mod address_forms;
mod fake_clock;
mod network;

pub use self::address_forms::REFUSED_ADDRESS_FORMS;
pub use self::fake_clock::FakeClock;
pub use self::network::{
    CountingListener, ScriptedResolver, hub_networks, loopback_guard, strict_guard,
};
