//! Unpacks a response that a server packed although the client did not ask for it.
//!
//! Servers of stored objects do so. Go's clients read such a document, and a target is one, so a
//! document that only Keyferry cannot read would be a false alarm.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Why a packed body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GzipError {
    /// It is longer than the limit once it is unpacked.
    #[error("the answer is too long once it is unpacked")]
    TooLong,
    /// It is not gzip, is cut off, or has the wrong checksum.
    #[error("the answer is not the gzip that its Content-Encoding says it is")]
    Malformed,
}

/// Whether the headers say that the body is gzip. Other encodings are not unpacked, as in Go's
/// `net/http`.
pub fn is_packed(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}

/// Unpacks a body to at most `limit` bytes. What is beyond them is never unpacked, so a small body
/// cannot fill the memory.
pub fn unpack_gzip(packed: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let mut body = Vec::new();
    // Go does not unpack a body of no bytes either, such as that of a 204.
    if packed.is_empty() {
        return Ok(body);
    }
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(packed)
        .take(bound)
        .read_to_end(&mut body)
        .map_err(|_| GzipError::Malformed)?;
    if body.len() > limit {
        return Err(GzipError::TooLong);
    }
    Ok(body)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_limit_holds_for_the_unpacked_bytes() {
        let body = vec![b'x'; 1000];
        assert_eq!(unpack_gzip(&packed(&body), 1000), Ok(body.clone()));
        assert_eq!(unpack_gzip(&packed(&body), 999), Err(GzipError::TooLong));
        // As Go's reader, which goes on with the next member.
        let two = [packed(b"one "), packed(b"two")].concat();
        assert_eq!(unpack_gzip(&two, 7), Ok(b"one two".to_vec()));
        assert_eq!(unpack_gzip(&two, 6), Err(GzipError::TooLong));
    }

    /// 4 MiB of zeros in 4 KiB. If they were unpacked to the end, what follows them would be the
    /// error.
    #[test]
    fn a_bomb_is_unpacked_to_the_limit_and_no_further() {
        let mut bomb = packed(&vec![0; 4 << 20]);
        assert!(bomb.len() < 1 << 13, "{}", bomb.len());
        bomb.extend_from_slice(b"no gzip");
        assert_eq!(unpack_gzip(&bomb, 1 << 20), Err(GzipError::TooLong));
        assert_eq!(unpack_gzip(&bomb, 8 << 20), Err(GzipError::Malformed));
    }

    #[test]
    fn a_broken_body_is_refused() {
        let good = packed(b"a body");
        let mut checksum = good.clone();
        let at = checksum.len() - 8;
        checksum[at] ^= 1;
        for bad in [
            &good[..good.len() - 1],
            &checksum,
            &[&good[..], b"tail"].concat(),
            b"{\"keys\":[]}",
        ] {
            assert_eq!(unpack_gzip(bad, 100), Err(GzipError::Malformed));
        }
    }

    #[test]
    fn a_body_of_no_bytes_is_empty() {
        assert_eq!(unpack_gzip(b"", 0), Ok(Vec::new()));
    }

    #[test]
    fn only_gzip_by_name_is_unpacked() {
        let named = |name: &'static str| {
            let header = (CONTENT_ENCODING, http::HeaderValue::from_static(name));
            is_packed(&HeaderMap::from_iter([header]))
        };
        assert!(named("gzip") && named("GZIP"));
        assert!(!named("br") && !named("identity") && !named("gzip, gzip"));
        assert!(!is_packed(&HeaderMap::new()));
    }
}
