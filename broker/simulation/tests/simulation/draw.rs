//! Numbers that depend on the seed and on what they are for, never on the order of the draws: two
//! tasks that wake at one moment draw the same numbers in either order.

use keyferry_platform::random::Random;
use parking_lot::Mutex;

/// Draws the number for the `count`th use of `purpose`.
pub(crate) fn draw(seed: u64, purpose: &str, count: u64) -> u64 {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    for byte in purpose.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(state ^ mix(count))
}

/// The finaliser of SplitMix64.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Adds a text to a hash.
pub(crate) fn add_to_hash(hash: u64, text: &str) -> u64 {
    draw(hash, text, 0)
}

/// A stream of numbers, for the plan of a schedule.
pub(crate) struct Stream {
    seed: u64,
    count: u64,
}

impl Stream {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.count += 1;
        draw(self.seed, "stream", self.count) % bound
    }
}

/// The randomness of one replica.
pub(crate) struct SeededRandomness {
    seed: u64,
    count: Mutex<u64>,
}

impl SeededRandomness {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            count: Mutex::new(0),
        }
    }
}

impl Random for SeededRandomness {
    fn fill_bytes(&self, bytes: &mut [u8]) -> bool {
        let mut count = self.count.lock();
        for chunk in bytes.chunks_mut(8) {
            *count += 1;
            let drawn = draw(self.seed, "bytes", *count).to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        true
    }
}
