//! Explores one target with libFuzzer, guided by coverage. `cargo xtask fuzz` calls it.
#![no_main]

use std::sync::LazyLock;

use keyferry_fuzz::{Property, find};

/// The property of the target that `KEYFERRY_FUZZ_TARGET` names. The engine itself takes no name.
static PROPERTY: LazyLock<Property> = LazyLock::new(|| {
    let name = std::env::var("KEYFERRY_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("KEYFERRY_FUZZ_TARGET names no target: {name:?}"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| PROPERTY(data));
