//! Reads PEM as Go's `pem.Decode` does, block by block.

use crate::base64::decode_standard;

/// A PEM block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The label after `BEGIN`.
    pub label: Vec<u8>,
    /// Whether it has headers.
    pub headers: bool,
    /// The decoded content.
    pub bytes: Vec<u8>,
}

const START: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// Returns the next block and what follows it. `None` if there is no further block.
pub fn decode(data: &[u8]) -> Option<(Block, &[u8])> {
    let mut rest = data;
    loop {
        let end = find(rest, END)?;
        match attempt(rest, end) {
            Attempt::Block(block, after) => return Some((block, after)),
            Attempt::NoMore => return None,
            Attempt::Skip(after) => rest = after,
        }
    }
}

enum Attempt<'a> {
    Block(Block, &'a [u8]),
    NoMore,
    Skip(&'a [u8]),
}

/// Tries to read a block from the last `BEGIN` before the `END` at that place.
fn attempt(rest: &[u8], end: usize) -> Attempt<'_> {
    let after_end = rest.get(end + END.len()..).unwrap_or_default();
    let before = rest.get(..end).unwrap_or_default();
    let Some(begin) =
        rfind(before, START).filter(|begin| *begin == 0 || rest.get(begin - 1) == Some(&b'\n'))
    else {
        return Attempt::Skip(after_end);
    };
    let (type_line, mut body) = line(rest.get(begin + START.len()..).unwrap_or_default());
    let Some(label) = type_line.strip_suffix(DASHES) else {
        return Attempt::Skip(after_end);
    };
    let mut headers = false;
    loop {
        if body.is_empty() {
            return Attempt::NoMore;
        }
        let (header, next) = line(body);
        if !header.contains(&b':') {
            break;
        }
        headers = true;
        body = next;
    }
    // The body can begin after the newline at the start of `END`, if the block is empty. It can
    // also begin after `END`, if a header consumed it.
    let start = rest.len() - body.len();
    if headers && start > end {
        return Attempt::Skip(after_end);
    }
    let trailer = after_end
        .strip_prefix(label)
        .and_then(|trailer| trailer.strip_prefix(DASHES));
    let Some(trailer) = trailer.filter(|trailer| line(trailer).0.is_empty()) else {
        return Attempt::Skip(after_end);
    };
    let base64: Vec<u8> = rest
        .get(start..end)
        .unwrap_or_default()
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b' ' | b'\t'))
        .collect();
    match decode_standard(&base64) {
        Ok(bytes) => Attempt::Block(
            Block {
                label: label.to_vec(),
                headers,
                bytes,
            },
            line(trailer).1,
        ),
        Err(_) => Attempt::Skip(after_end),
    }
}

/// Splits off a line, without its end and trailing blanks.
fn line(data: &[u8]) -> (&[u8], &[u8]) {
    let (text, rest) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (
            data.get(..end).unwrap_or_default(),
            data.get(end + 1..).unwrap_or_default(),
        ),
        None => (data, &[][..]),
    };
    let text = if rest.len() < data.len() - text.len() {
        text.strip_suffix(b"\r").unwrap_or(text)
    } else {
        text
    };
    let end = text
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | b'\t'))
        .map_or(0, |last| last + 1);
    (text.get(..end).unwrap_or_default(), rest)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn rfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .rposition(|window| window == needle)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_other_text() {
        let text = b"x\n-----BEGIN A-----\nYWI=\n-----END A-----\nrest";
        let (block, rest) = decode(text).unwrap();
        assert_eq!(
            block,
            Block {
                label: b"A".to_vec(),
                headers: false,
                bytes: b"ab".to_vec()
            }
        );
        assert_eq!(rest, b"rest");
        assert!(decode(rest).is_none());
    }

    #[test]
    fn headers_are_seen_and_broken_blocks_skipped() {
        let (block, _) = decode(b"-----BEGIN A-----\nk: v\n\nYWI=\n-----END A-----").unwrap();
        assert!(block.headers);
        let (block, _) = decode(
            b"-----BEGIN A-----\n!!\n-----END A-----\n-----BEGIN B-----\nYWI=\n-----END B-----\n",
        )
        .unwrap();
        assert_eq!(block.label, b"B");
        for broken in [
            "",
            "-----BEGIN A-----\nYWI=\n-----END B-----\n",
            "-----BEGIN A-----\nYWI=\n-----END A-----x\n",
            "YWI=",
        ] {
            assert!(decode(broken.as_bytes()).is_none(), "{broken}");
        }
        assert_eq!(
            decode(b"-----BEGIN A-----\n-----END A-----\n")
                .unwrap()
                .0
                .bytes,
            b""
        );
    }
}
