//! The source of randomness, injected wherever random numbers are needed.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use keyferry_core::request_id::RequestId;

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// Fills `bytes`; false if the system's randomness failed.
    fn fill_bytes(&self, bytes: &mut [u8]) -> bool;

    /// Returns a number from 0 to 1.
    fn unit_fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        if self.fill_bytes(&mut bytes) {
            f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
        } else {
            0.0
        }
    }

    /// Returns an id for a request or for anything else that needs one.
    fn request_id(&self) -> RequestId {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_be_bytes(bytes).into()
    }
}

/// The operating system's randomness.
#[derive(Debug, Default)]
pub struct SystemRandomness {
    system: SystemRandom,
}

impl Random for SystemRandomness {
    fn fill_bytes(&self, bytes: &mut [u8]) -> bool {
        self.system.fill(bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Random, SystemRandomness};

    #[test]
    fn no_two_requests_have_one_id() {
        let random = SystemRandomness::default();
        let ids: BTreeSet<String> = (0..1000).map(|_| random.request_id().to_string()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
