//! Fakes that tests of several crates share: a clock, a network with its names, and
//! targets that nobody asks.

mod address_forms;
mod fake_clock;
mod network;
mod silent_targets;

pub use self::address_forms::REFUSED_ADDRESS_FORMS;
pub use self::fake_clock::FakeClock;
pub use self::network::{
    CountingListener, ScriptedResolver, hub_networks, loopback_guard, strict_guard,
};
pub use self::silent_targets::SilentTargets;
