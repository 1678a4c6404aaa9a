//! Reads PEM text in one pass. Only certificates are decoded; the content of any other block is
//! never copied.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::MAX_PEM_MARKERS;
use super::error::CaBundleError;

/// The blocks of a PEM text.
pub(super) struct Blocks {
    /// The decoded `CERTIFICATE_LABEL` blocks, in order.
    pub(super) certificates: Vec<Vec<u8>>,
    /// The number of other blocks.
    pub(super) ignored: usize,
}

const CERTIFICATE_LABEL: &[u8] = b"CERTIFICATE";

/// Reads the blocks of a PEM text. Lines between blocks are comments.
pub(super) fn read_blocks(bytes: &[u8]) -> Result<Blocks, CaBundleError> {
    let mut blocks = Blocks {
        certificates: Vec::new(),
        ignored: 0,
    };
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    let mut markers = 0;
    let mut last_line = 0;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        last_line = index + 1;
        let broken = CaBundleError::BrokenMarker(last_line);
        let marker = Marker::read(line).map_err(|BrokenMarker| broken.clone())?;
        markers += usize::from(marker.is_some());
        if markers > MAX_PEM_MARKERS {
            return Err(CaBundleError::TooManyMarkers);
        }
        open = match (marker, open) {
            (
                Some(Marker {
                    kind: Kind::Begin,
                    label,
                }),
                None,
            ) => Some((label, Vec::new())),
            (
                Some(Marker {
                    kind: Kind::End,
                    label,
                }),
                Some((begin, body)),
            ) if begin == label => {
                close_block(begin, &body, &mut blocks)?;
                None
            }
            (Some(_), _) => return Err(broken),
            (None, Some((label, mut body))) => {
                if label == CERTIFICATE_LABEL {
                    body.extend(line.iter().filter(|byte| !byte.is_ascii_whitespace()));
                }
                Some((label, body))
            }
            (None, None) => None,
        };
    }
    if open.is_some() {
        Err(CaBundleError::BrokenMarker(last_line))
    } else {
        Ok(blocks)
    }
}

fn close_block(label: &[u8], body: &[u8], blocks: &mut Blocks) -> Result<(), CaBundleError> {
    if label == CERTIFICATE_LABEL {
        let position = blocks.certificates.len() + 1;
        blocks.certificates.push(
            STANDARD
                .decode(body)
                .map_err(|_| CaBundleError::NotBase64(position))?,
        );
    } else {
        blocks.ignored += 1;
    }
    Ok(())
}

struct Marker<'a> {
    kind: Kind,
    label: &'a [u8],
}

enum Kind {
    Begin,
    End,
}

struct BrokenMarker;

impl<'a> Marker<'a> {
    fn read(line: &'a [u8]) -> Result<Option<Self>, BrokenMarker> {
        let (kind, rest) = if let Some(rest) = line.strip_prefix(b"-----BEGIN ") {
            (Kind::Begin, rest)
        } else if let Some(rest) = line.strip_prefix(b"-----END ") {
            (Kind::End, rest)
        } else {
            return Ok(None);
        };
        let label = rest.strip_suffix(b"-----").ok_or(BrokenMarker)?;
        if label.windows(5).any(|window| window == b"-----") {
            Err(BrokenMarker)
        } else {
            Ok(Some(Marker { kind, label }))
        }
    }
}
