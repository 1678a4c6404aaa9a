//! The source of randomness, injected wherever random numbers are needed.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use keyferry_core::request_id::RequestId;
use parking_lot::Mutex;

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// Fills `bytes`; false if the system's randomness failed.
    fn fill(&self, bytes: &mut [u8]) -> bool;

    /// Returns a number from 0 to 1.
    fn unit(&self) -> f64 {
        let mut bytes = [0; 4];
        if self.fill(&mut bytes) {
            f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
        } else {
            0.0
        }
    }

    /// Returns an id for a request or for anything else that needs one.
    fn request_id(&self) -> RequestId {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes).into()
    }
}

/// How many ids are drawn at once: a draw costs as much for one as for many.
const IDS: usize = 256;

/// The operating system's randomness.
#[derive(Debug, Default)]
pub struct SystemRandomness {
    system: SystemRandom,
    /// Ids that are not used yet. They are not secret.
    ids: Mutex<Vec<RequestId>>,
}

impl Random for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> bool {
        self.system.fill(bytes).is_ok()
    }

    fn request_id(&self) -> RequestId {
        let mut ids = self.ids.lock();
        if ids.is_empty() {
            let mut drawn = [[0; 8]; IDS];
            if self.fill(drawn.as_flattened_mut()) {
                ids.extend(drawn.map(|bytes| RequestId::from(u64::from_be_bytes(bytes))));
            }
        }
        ids.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{IDS, Random, SystemRandomness};

    #[test]
    fn no_two_requests_have_one_id() {
        let random = SystemRandomness::default();
        let ids: BTreeSet<String> = (0..IDS * 3)
            .map(|_| random.request_id().to_string())
            .collect();
        assert_eq!(ids.len(), IDS * 3);
    }
}
