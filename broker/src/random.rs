//! Randomness, drawn in one place and passed in everywhere else.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// Fills `bytes`; false if the system has no randomness to give.
    fn fill(&self, bytes: &mut [u8]) -> bool;

    /// A number from 0 to 1.
    fn unit(&self) -> f64 {
        let mut bytes = [0; 4];
        if self.fill(&mut bytes) { f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX) } else { 0.0 }
    }

    /// An id that joins an answer to its audit record: 16 hex digits.
    fn request_id(&self) -> String {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        format!("{:016x}", u64::from_be_bytes(bytes))
    }
}

/// The operating system's randomness.
#[derive(Debug, Default)]
pub struct SystemRandomness(SystemRandom);

impl Random for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> bool {
        self.0.fill(bytes).is_ok()
    }
}
