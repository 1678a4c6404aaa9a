//! A random code that proves by itself that its holder may do something.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use secrecy::{ExposeSecret, SecretString};

use crate::random::Random;

/// The length of a code in bytes: 256 bits.
const CODE_BYTES: usize = 32;

/// A code of 256 random bits. It is never printed by accident, and compared in constant time.
pub struct SecretCode(SecretString);

/// The machine gives no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("making a random code: the system gives no random numbers")]
pub struct NoRandomness;

impl SecretCode {
    /// Makes a new code.
    ///
    /// # Errors
    /// [`NoRandomness`]: a code that others could guess is none.
    pub fn generate(random: &dyn Random) -> Result<Self, NoRandomness> {
        let mut bytes = [0; CODE_BYTES];
        if !random.fill_bytes(&mut bytes) {
            return Err(NoRandomness);
        }
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(SecretString::from(digits)))
    }

    /// The code as 64 hexadecimal digits, which need no encoding in a URL.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Whether a text is this code. How long that takes does not depend on how much of the text is
    /// right.
    pub fn matches(&self, text: &str) -> bool {
        verify_slices_are_equal(self.expose().as_bytes(), text.as_bytes()).is_ok()
    }
}

impl fmt::Debug for SecretCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretCode")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{NoRandomness, SecretCode};
    use crate::random::{Random, SystemRandomness};

    struct BrokenRandomness;

    impl Random for BrokenRandomness {
        fn fill_bytes(&self, _: &mut [u8]) -> bool {
            false
        }
    }

    #[test]
    fn a_code_is_long_and_its_own() {
        let random = SystemRandomness::default();
        let [code, other_code] = [(), ()].map(|()| SecretCode::generate(&random).unwrap());
        assert_eq!(code.expose().len(), 64);
        assert!(code.matches(code.expose()) && !code.matches(other_code.expose()));
        for part in ["", &code.expose()[..63], &format!("{}a", code.expose())] {
            assert!(!code.matches(part), "{part}");
        }
        assert_eq!(format!("{code:?}"), "SecretCode");
        assert_eq!(
            SecretCode::generate(&BrokenRandomness).unwrap_err(),
            NoRandomness
        );
    }
}
