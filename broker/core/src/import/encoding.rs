//! The encodings in which people have kubeconfigs, as client-go and kubectl read them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ImportError, MAX_IMPORT_BYTES};

/// Decodes text in UTF-8, or in UTF-16 with a byte order mark, which Windows PowerShell writes.
pub(super) fn decode_text(bytes: &[u8]) -> Result<String, ImportError> {
    if bytes.len() > MAX_IMPORT_BYTES {
        return Err(ImportError::Form(0));
    }
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
    };
    text.ok_or(ImportError::Encoding)
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let pairs = bytes.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units).collect::<Result<_, _>>().ok()
}

/// Decodes base64 as Go does: line ends inside it do not count.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(join_base64_lines(text).trim_ascii())
}

/// Joins base64 that is wrapped over several lines. Go's decoder, and so kubectl, skips line ends,
/// and no other white space.
pub fn join_base64_lines(text: &str) -> String {
    text.chars()
        .filter(|letter| !matches!(letter, '\r' | '\n'))
        .collect()
}

/// Says why a text that should be PEM in base64 is none.
pub(super) fn base64_problem(text: &str) -> &'static str {
    let text = text.trim();
    if text.starts_with("-----BEGIN") {
        "are PEM itself; encode them in base64, as `base64 -w0 ca.crt` prints them"
    } else if text.starts_with('<') || text.ends_with('>') {
        "are in angle brackets, which stand for a place to fill in; remove them"
    } else if text.starts_with('/') || text.starts_with("./") || text.ends_with(".crt") {
        "are a path; put the content of the file in base64 there"
    } else if text.contains([' ', '\t']) {
        "have spaces inside the base64, as a folded text (`>`) has in the place of line ends; use \
         `|`, or write it on one line"
    } else {
        "are not base64 of PEM"
    }
}
