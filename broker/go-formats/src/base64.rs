//! Decodes and encodes as Go's `encoding/base64`: newlines are skipped, loose trailing bits are
//! allowed, and an error names a byte offset.

/// Why a text is not base64; it prints as Go's `CorruptInputError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct CorruptInput(usize);

/// Decodes as `base64.RawURLEncoding.DecodeString`.
pub fn decode_raw_url(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    decode(text, Alphabet::Url, Padding::None)
}

/// Decodes as `base64.StdEncoding.DecodeString`.
pub fn decode_standard(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    decode(text, Alphabet::Standard, Padding::Required)
}

/// Encodes as `base64.RawURLEncoding.EncodeToString`.
pub fn encode_raw_url(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[derive(Clone, Copy)]
enum Alphabet {
    Standard,
    Url,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    None,
    Required,
}

impl Alphabet {
    fn value(self, byte: u8) -> Option<u32> {
        let value = match (byte, self) {
            (b'A'..=b'Z', _) => byte - b'A',
            (b'a'..=b'z', _) => byte - b'a' + 26,
            (b'0'..=b'9', _) => byte - b'0' + 52,
            (b'+', Self::Standard) | (b'-', Self::Url) => 62,
            (b'/', Self::Standard) | (b'_', Self::Url) => 63,
            _ => return None,
        };
        Some(u32::from(value))
    }
}

fn decode(text: &[u8], alphabet: Alphabet, padding: Padding) -> Result<Vec<u8>, CorruptInput> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut group, mut held) = (0_u32, 0_usize);
    for (index, byte) in text.iter().enumerate() {
        match *byte {
            b'\r' | b'\n' => {}
            b'=' if padding == Padding::Required => {
                end_padding(text, index, held)?;
                push(&mut out, group, held);
                return Ok(out);
            }
            byte => {
                let value = alphabet.value(byte).ok_or(CorruptInput(index))?;
                group = (group << 6) | value;
                held += 1;
                if held == 4 {
                    push(&mut out, group, 4);
                    (group, held) = (0, 0);
                }
            }
        }
    }
    if held == 1 || (held > 0 && padding == Padding::Required) {
        return Err(CorruptInput(text.len().saturating_sub(held)));
    }
    push(&mut out, group, held);
    Ok(out)
}

/// Checks what follows the first `=`, at `index`, in a group with `held` digits.
fn end_padding(text: &[u8], index: usize, held: usize) -> Result<(), CorruptInput> {
    if held < 2 {
        return Err(CorruptInput(index));
    }
    let mut rest = text
        .iter()
        .enumerate()
        .skip(index + 1)
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    if held == 2 {
        match rest.next() {
            Some((_, b'=')) => {}
            Some((wrong, _)) => return Err(CorruptInput(wrong.saturating_sub(1))),
            None => return Err(CorruptInput(text.len())),
        }
    }
    rest.next()
        .map_or(Ok(()), |(wrong, _)| Err(CorruptInput(wrong)))
}

fn push(out: &mut Vec<u8>, group: u32, held: usize) {
    let shifted = group << (6 * (4 - held.min(4)));
    let bytes = shifted.to_be_bytes();
    out.extend(bytes.iter().skip(1).take(held.saturating_sub(1)));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_alphabet_skips_newlines_and_refuses_padding() {
        assert_eq!(decode_raw_url(b"eyJ9").unwrap(), b"{\"}");
        assert_eq!(decode_raw_url(b"e\r\nyJ9\n").unwrap(), b"{\"}");
        assert_eq!(decode_raw_url(b"YR").unwrap(), b"a", "loose trailing bits");
        assert_eq!(decode_raw_url(b"").unwrap(), b"");
        for (text, offset) in [
            ("YQ==", 2),
            ("YW J", 2),
            ("Y", 0),
            ("YWJjZ", 4),
            ("YWJ+", 3),
        ] {
            assert_eq!(
                decode_raw_url(text.as_bytes()),
                Err(CorruptInput(offset)),
                "{text}"
            );
        }
    }

    #[test]
    fn the_standard_alphabet_wants_padding() {
        assert_eq!(decode_standard(b"YQ==").unwrap(), b"a");
        assert_eq!(decode_standard(b"YWI=\n").unwrap(), b"ab");
        for text in ["YQ", "YQ=", "YQ==x", "YQ=x", "=", "YW_j"] {
            assert!(decode_standard(text.as_bytes()).is_err(), "{text}");
        }
    }
}
