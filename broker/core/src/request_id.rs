//! The id that links a response to its audit record.

use std::fmt;

/// A request's id: 16 hex digits, the same in the `X-Request-Id` header and in the audit record's
/// `requestId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// The digits as text.
    pub fn as_str(&self) -> &str {
        // The digits are ASCII, as `from` made them.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::from(0)
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        let mut digits = [0; 16];
        for (place, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
            place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Self(digits)
    }
}

fn digit(value: u8) -> u8 {
    if value < 10 {
        b'0' + value
    } else {
        b'a' + value - 10
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RequestId;

    proptest! {
        #[test]
        fn it_is_the_number_in_hex(number: u64) {
            prop_assert_eq!(RequestId::from(number).to_string(), format!("{number:016x}"));
        }
    }
}
