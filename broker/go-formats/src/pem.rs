//! Reads PEM as Go's `pem.Decode` does, block by block.

use crate::GoRelease;
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

/// Returns all blocks that a release of Go finds.
pub fn blocks(data: &[u8], go: GoRelease) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !go.has_fixes_of_2025() {
        let mut scan = FrontScan {
            data,
            at: 0,
            end: 0,
        };
        while let Some(block) = scan.next_block() {
            blocks.push(block);
        }
        return blocks;
    }
    let mut rest = data;
    while let Some((block, after)) = decode(rest) {
        blocks.push(block);
        rest = after;
    }
    blocks
}

/// Returns the next block and what follows it. `None` if there is no further block.
fn decode(data: &[u8]) -> Option<(Block, &[u8])> {
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
        // The line of `END` is a header too. Go's index of what follows `END` is then negative, and Go
        // gives up. To read on would also take minutes for a text of megabytes with many `END`s.
        if rest.len() - body.len() > end {
            return Attempt::NoMore;
        }
        headers = true;
        body = next;
    }
    // The headers consumed the newline at the start of `END`.
    if headers && rest.len() - body.len() > end {
        return Attempt::Skip(after_end);
    }
    // The body can begin after the newline at the start of `END`, if the block is empty.
    let start = rest.len() - body.len();
    let trailer = after_end
        .strip_prefix(label)
        .and_then(|trailer| trailer.strip_prefix(DASHES));
    let Some(trailer) = trailer.filter(|trailer| line(trailer).0.is_empty()) else {
        return Attempt::Skip(after_end);
    };
    match decode_body(rest.get(start..end).unwrap_or_default()) {
        Some(bytes) => Attempt::Block(
            Block {
                label: label.to_vec(),
                headers,
                bytes,
            },
            line(trailer).1,
        ),
        None => Attempt::Skip(after_end),
    }
}

/// Finds blocks as Go did before October 2025: each `BEGIN` is tried with the `END` that follows.
struct FrontScan<'a> {
    data: &'a [u8],
    at: usize,
    /// The last `END` that was found. It is kept, so that many `BEGIN`s do not search for it again.
    end: usize,
}

impl FrontScan<'_> {
    fn rest(&self) -> &[u8] {
        self.data.get(self.at..).unwrap_or_default()
    }

    /// Reads a line without its end, and moves behind it.
    fn read_line(&mut self) -> Vec<u8> {
        let (text, after) = line(self.rest());
        let (text, at) = (text.to_vec(), self.data.len() - after.len());
        self.at = at;
        text
    }

    /// Returns the position of the next newline with `END` after it.
    fn find_end(&mut self) -> Option<usize> {
        let is_end = |at: &usize| {
            let rest = self.data.get(*at..).unwrap_or_default();
            rest.starts_with(END)
        };
        let found = (self.end.max(self.at)..self.data.len()).find(is_end);
        // Also that there is none is remembered: else each of many beginnings would look again.
        self.end = found.unwrap_or(self.data.len());
        found
    }

    fn next_block(&mut self) -> Option<Block> {
        loop {
            let rest = self.rest();
            if rest.starts_with(START) {
                self.at += START.len();
            } else {
                let begin = (0..rest.len()).find(|at| {
                    let line = rest.get(*at..).and_then(|rest| rest.strip_prefix(b"\n"));
                    line.is_some_and(|line| line.starts_with(START))
                })?;
                self.at += begin + 1 + START.len();
            }
            let type_line = self.read_line();
            let Some(label) = type_line.strip_suffix(DASHES) else {
                continue;
            };
            if let Some(block) = self.read_block(label)? {
                return Some(block);
            }
        }
    }

    /// Reads the rest of a block. The outer result is `None` if the text ends with the headers.
    fn read_block(&mut self, label: &[u8]) -> Option<Option<Block>> {
        let mut headers = false;
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return None;
            }
            if !line(rest).0.contains(&b':') {
                break;
            }
            headers = true;
            self.read_line();
        }
        // An empty block has no newline of its own before its end.
        let at_once = !headers
            && END
                .strip_prefix(b"\n")
                .is_some_and(|end| self.rest().starts_with(end));
        let (end, trailer) = if at_once {
            (self.at, self.at + END.len() - 1)
        } else {
            match self.find_end() {
                Some(end) => (end, end + END.len()),
                None => return Some(None),
            }
        };
        let trailer = self.data.get(trailer..).unwrap_or_default();
        let after = trailer
            .strip_prefix(label)
            .and_then(|trailer| trailer.strip_prefix(DASHES))
            .filter(|trailer| line(trailer).0.is_empty());
        let Some(after) = after else {
            return Some(None);
        };
        let body = self.data.get(self.at..end).unwrap_or_default();
        let Some(bytes) = decode_body(body) else {
            return Some(None);
        };
        self.at = self.data.len() - line(after).1.len();
        let label = label.to_vec();
        Some(Some(Block {
            label,
            headers,
            bytes,
        }))
    }
}

/// Decodes the lines of base64 between the headers and the end.
fn decode_body(body: &[u8]) -> Option<Vec<u8>> {
    // The next `BEGIN` shows early that there is no base64.
    if body.contains(&b'-') {
        return None;
    }
    let base64: Vec<u8> = body
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b' ' | b'\t'))
        .collect();
    decode_standard(&base64).ok()
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

    fn first(data: &[u8]) -> Option<(Block, &[u8])> {
        decode(data)
    }

    #[test]
    fn blocks_are_found_between_other_text() {
        let text = b"x\n-----BEGIN A-----\nYWI=\n-----END A-----\nrest";
        let (block, rest) = first(text).unwrap();
        assert_eq!(
            block,
            Block {
                label: b"A".to_vec(),
                headers: false,
                bytes: b"ab".to_vec()
            }
        );
        assert_eq!(rest, b"rest");
        assert!(first(rest).is_none());
    }

    #[test]
    fn headers_are_seen_and_broken_blocks_skipped() {
        let (block, _) = first(b"-----BEGIN A-----\nk: v\n\nYWI=\n-----END A-----").unwrap();
        assert!(block.headers);
        let (block, _) = first(
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
            assert!(first(broken.as_bytes()).is_none(), "{broken}");
        }
        assert_eq!(
            first(b"-----BEGIN A-----\n-----END A-----\n")
                .unwrap()
                .0
                .bytes,
            b""
        );
    }

    #[test]
    fn before_the_fixes_the_first_begin_counts() {
        let nested = b"-----BEGIN A-----\n-----BEGIN A-----k: v\nYWI=\n-----END A-----\n";
        let count_blocks = |text: &[u8], go| blocks(text, go).len();
        for go in GoRelease::ALL {
            let expected = usize::from(!go.has_fixes_of_2025());
            assert_eq!(count_blocks(nested, go), expected, "{}", go.name());
            // These were the same in every release.
            for (text, count) in [
                ("x\n-----BEGIN A-----\nYWI=\n-----END A-----\nrest", 1),
                ("-----BEGIN A-----\n-----END A-----\n", 1),
                (
                    "-----BEGIN A-----\n-----BEGIN B-----\nYWI=\n-----END B-----\n",
                    1,
                ),
                (
                    "-----BEGIN A-----\n!\n-----END A-----\n-----BEGIN B-----\n-----END B-----",
                    1,
                ),
                ("-----BEGIN A-----\nk: v\n\nYWI=\n-----END A-----\n", 1),
                ("-----BEGIN A-----\nk: v\n-----END A-----\n", 0),
                (" -----BEGIN A-----\nYWI=\n-----END A-----\n", 0),
                ("-----BEGIN A-----\nYWI=\n-----END B-----\n", 0),
                ("-----BEGIN A-----\nYWI=\n-----END A-----x\n", 0),
                ("", 0),
            ] {
                assert_eq!(
                    count_blocks(text.as_bytes(), go),
                    count,
                    "{}: {text}",
                    go.name()
                );
            }
        }
    }

    /// The texts are so long that a second look at the rest for each marker would take this test
    /// many minutes: some 10^11 bytes.
    #[test]
    fn a_text_is_read_once_however_many_markers_it_has() {
        const MARKERS: usize = 200_000;
        let begin = "-----BEGIN A-----\n";
        for (what, text) in [
            ("no end", begin.repeat(MARKERS)),
            ("another end", begin.repeat(MARKERS) + "-----END B-----\n"),
            ("its end", begin.repeat(MARKERS) + "-----END A-----x\n"),
            ("no beginning", "-----END A-----\n".repeat(MARKERS)),
            (
                "a header that goes on",
                "-----BEGIN :-----\n-----END :\n".repeat(MARKERS) + "YWI=",
            ),
            (
                "headers to the end",
                "-----BEGIN :-----\n-----END :\n".repeat(MARKERS),
            ),
        ] {
            for go in [GoRelease::V1_22, *GoRelease::ALL.last().unwrap()] {
                assert_eq!(blocks(text.as_bytes(), go).len(), 0, "{what}");
            }
        }
    }

    /// Recorded from Go 1.22.12 and 1.25.1, and from Go 1.24.13, 1.25.14 and 1.26.11.
    #[test]
    fn headers_that_consume_an_end_are_read_as_by_each_release() {
        let good = "-----BEGIN B-----\nYWI=\n-----END B-----\n";
        for (before, old, fixed) in [
            ("-----BEGIN A-----\nk: v\n-----END A:\n", 1, 0),
            ("-----BEGIN A-----\nk: v\n-----END A:\na: b\n", 1, 0),
            ("-----BEGIN A-----\nk: v\n-----END A-----:\nx\n", 1, 0),
            ("-----BEGIN A-----\n-----END A:\n", 1, 0),
            ("-----BEGIN A-----\n-----END A:\nx\n", 1, 0),
            ("-----BEGIN A-----\nk: v\n-----END A-----\n", 1, 1),
            ("-----BEGIN A-----\nk: v\n\n-----END A:\n", 1, 1),
        ] {
            for go in GoRelease::ALL {
                let count = if go.has_fixes_of_2025() { fixed } else { old };
                let found = blocks(format!("{before}{good}").as_bytes(), go);
                assert_eq!(found.len(), count, "{}: {before:?}", go.name());
                let none = blocks(before.as_bytes(), go);
                assert!(none.is_empty(), "{}: {before:?}", go.name());
            }
        }
    }
}
