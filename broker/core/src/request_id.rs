//! The id that links a response to its audit record.

use std::fmt;

/// A request's id: 16 hex digits, the same in the `X-Request-Id` header and in the audit record's
/// `requestId`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestId(u64);

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::RequestId;

    #[test]
    fn an_id_has_sixteen_hex_digits() {
        assert_eq!(RequestId::from(0xab).to_string(), "00000000000000ab");
        assert_eq!(RequestId::from(u64::MAX).to_string(), "ffffffffffffffff");
    }
}
