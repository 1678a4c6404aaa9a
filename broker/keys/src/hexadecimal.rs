//! Bytes as hexadecimal text.

use std::fmt::Write as _;

/// Writes bytes in lower-case hexadecimal.
pub(crate) fn to_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
