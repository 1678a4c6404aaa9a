//! Splits what is read of a file into lines of bounded length, whatever the file's own length.

/// Lines that arrive in pieces. It holds one line at most, and of a line that is too long nothing.
#[derive(Debug)]
pub(super) struct LineSplitter {
    max_bytes: usize,
    partial: Vec<u8>,
    is_too_long: bool,
}

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitLine<'a> {
    Whole(&'a [u8]),
    /// The last one of a file that has no end: it may still be written.
    Unfinished(&'a [u8]),
    TooLong,
}

impl LineSplitter {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            partial: Vec::new(),
            is_too_long: false,
        }
    }

    /// Takes the next piece of the file, and gives each line that ends in it.
    pub(super) fn push(&mut self, piece: &[u8], mut each_line: impl FnMut(SplitLine<'_>)) {
        let mut lines = piece.split(|byte| *byte == b'\n');
        // What follows the last line feed, which is empty if the piece ends with one.
        let rest = lines.next_back().unwrap_or_default();
        for line in lines {
            if self.is_too_long || self.partial.len() + line.len() > self.max_bytes {
                each_line(SplitLine::TooLong);
            } else if self.partial.is_empty() {
                each_line(SplitLine::Whole(line));
            } else {
                self.partial.extend_from_slice(line);
                each_line(SplitLine::Whole(&self.partial));
            }
            self.partial.clear();
            self.is_too_long = false;
        }
        if self.is_too_long || self.partial.len() + rest.len() > self.max_bytes {
            self.is_too_long = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(rest);
        }
    }

    /// Gives what follows the last line feed, and forgets it.
    pub(super) fn finish(&mut self, each_line: impl FnOnce(SplitLine<'_>)) {
        if self.is_too_long {
            each_line(SplitLine::TooLong);
        } else if !self.partial.is_empty() {
            each_line(SplitLine::Unfinished(&self.partial));
        }
        *self = Self::new(self.max_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: SplitLine<'_>) -> String {
        match line {
            SplitLine::Whole(line) => String::from_utf8_lossy(line).into_owned(),
            SplitLine::Unfinished(line) => format!("{}...", String::from_utf8_lossy(line)),
            SplitLine::TooLong => "too long".to_owned(),
        }
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut_into_pieces() {
        let text = b"one\n\nfour\nlonger than ten\nten bytes!\nlonger than ten again\nlast";
        let wanted = [
            "one",
            "",
            "four",
            "too long",
            "ten bytes!",
            "too long",
            "last...",
        ];
        for size in 1..=text.len() {
            let (mut splitter, mut lines) = (LineSplitter::new(10), Vec::new());
            for piece in text.chunks(size) {
                splitter.push(piece, |line| lines.push(shown(line)));
                assert!(splitter.partial.len() <= 10);
            }
            splitter.finish(|line| lines.push(shown(line)));
            assert_eq!(lines, wanted, "pieces of {size} bytes");
        }
    }

    #[test]
    fn a_line_that_is_too_long_at_the_end_is_no_unfinished_one() {
        let (mut splitter, mut lines) = (LineSplitter::new(3), Vec::new());
        splitter.push(b"abcd", |line| lines.push(shown(line)));
        splitter.finish(|line| lines.push(shown(line)));
        splitter.push(b"abc\n", |line| lines.push(shown(line)));
        splitter.finish(|line| lines.push(shown(line)));
        assert_eq!(lines, ["too long", "abc"]);
    }
}
