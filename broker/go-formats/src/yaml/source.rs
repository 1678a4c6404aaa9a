//! Reads the characters of a file, decoded piece by piece.
//!
//! The library decodes 512 bytes at a time, and only if its scanner needs more. So a forbidden
//! character is an error only if the scanner gets near it, and one in a later document usually is
//! not. The pieces here are the same.

use super::Fault;

/// The number of bytes that the library decodes at a time.
const PIECE_BYTES: usize = 512;

/// A place in the text; all counts are from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16Little,
    Utf16Big,
}

/// A file and a place in it. The end of the file reads as an endless run of NUL, which no file may
/// contain.
#[derive(Debug)]
pub(super) struct Source<'a> {
    input: &'a [u8],
    /// The number of bytes that were read so far.
    taken: usize,
    /// The number of those that were decoded.
    decoded: usize,
    ended: bool,
    encoding: Option<Encoding>,
    characters: Vec<char>,
    at: usize,
    /// The scanner's place when it last asked for more. The library looks for a byte order mark
    /// there, and not at its current place.
    window: usize,
    pub(super) mark: Mark,
}

impl<'a> Source<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            taken: 0,
            decoded: 0,
            ended: false,
            encoding: None,
            characters: Vec::new(),
            at: 0,
            window: 0,
            mark: Mark::default(),
        }
    }

    /// Returns a character `ahead` of the place. The caller must have called [`Source::ensure`] for
    /// it.
    pub(super) fn peek(&self, ahead: usize) -> char {
        self.characters
            .get(self.at + ahead)
            .copied()
            .unwrap_or('\0')
    }

    /// Returns the character at the place.
    pub(super) fn current_char(&self) -> char {
        self.peek(0)
    }

    /// Whether the line starts with a byte order mark, as the library sees it.
    pub(super) fn byte_order_mark(&self) -> bool {
        self.characters.get(self.window) == Some(&'\u{feff}')
    }

    /// Decodes more, until `length` characters are available.
    pub(super) fn ensure(&mut self, length: usize) -> Result<(), Fault> {
        if self.unread_bytes() >= length {
            return Ok(());
        }
        let encoding = self.detect_encoding();
        self.window = self.at;
        let mut first = true;
        while self.unread_bytes() < length {
            if !first || self.decoded == self.taken {
                self.refill_bytes();
            }
            first = false;
            self.decode_bytes(encoding)?;
            if self.ended {
                self.characters.push('\0');
                break;
            }
        }
        Ok(())
    }

    fn unread_bytes(&self) -> usize {
        self.characters.len() - self.at.min(self.characters.len())
    }

    fn detect_encoding(&mut self) -> Encoding {
        if let Some(encoding) = self.encoding {
            return encoding;
        }
        while !self.ended && self.taken < 3 {
            self.refill_bytes();
        }
        let (encoding, mark) = match self.input {
            [0xff, 0xfe, ..] => (Encoding::Utf16Little, 2),
            [0xfe, 0xff, ..] => (Encoding::Utf16Big, 2),
            [0xef, 0xbb, 0xbf, ..] => (Encoding::Utf8, 3),
            _ => (Encoding::Utf8, 0),
        };
        self.decoded = mark;
        self.encoding = Some(encoding);
        encoding
    }

    fn refill_bytes(&mut self) {
        let room = PIECE_BYTES.saturating_sub(self.taken - self.decoded);
        if self.taken == self.input.len() {
            self.ended = true;
        }
        self.taken = self.input.len().min(self.taken + room);
    }

    /// Decodes the bytes read so far, up to an incomplete character.
    fn decode_bytes(&mut self, encoding: Encoding) -> Result<(), Fault> {
        while self.decoded < self.taken {
            let bytes = self.input.get(self.decoded..self.taken).unwrap_or_default();
            let next = match encoding {
                Encoding::Utf8 => next_utf8(bytes, self.ended),
                Encoding::Utf16Little => next_utf16(bytes, u16::from_le_bytes, self.ended),
                Encoding::Utf16Big => next_utf16(bytes, u16::from_be_bytes, self.ended),
            };
            let Some((character, width)) = next.map_err(Fault::refused)? else {
                return Ok(());
            };
            if !is_allowed(character) {
                return Err(Fault::refused("control characters are not allowed"));
            }
            self.characters.push(character);
            self.decoded += width;
        }
        Ok(())
    }

    /// Advances by one character.
    pub(super) fn skip(&mut self) {
        self.at += 1;
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Advances by `count` characters.
    pub(super) fn skip_all(&mut self, count: usize) {
        (0..count).for_each(|_| self.skip());
    }

    /// Appends the character to a text and advances.
    pub(super) fn read(&mut self, into: &mut String) {
        into.push(self.current_char());
        self.skip();
    }

    /// Advances to the next line, if the place is at the end of one.
    pub(super) fn skip_line(&mut self) {
        let width = match (self.current_char(), self.peek(1)) {
            ('\r', '\n') => 2,
            (here, _) if is_break(here) => 1,
            _ => return,
        };
        self.at += width;
        self.mark.index += width;
        self.mark.column = 0;
        self.mark.line += 1;
    }

    /// Appends the line end to a text and advances to the next line. Only the two Unicode
    /// separators stay unchanged.
    pub(super) fn read_line(&mut self, into: &mut String) {
        match self.current_char() {
            separator @ ('\u{2028}' | '\u{2029}') => into.push(separator),
            '\r' | '\n' | '\u{85}' => into.push('\n'),
            _ => return,
        }
        self.skip_line();
    }

    /// Skips blanks.
    pub(super) fn skip_blanks(&mut self) -> Result<(), Fault> {
        self.ensure(1)?;
        while is_blank(self.current_char()) {
            self.skip();
            self.ensure(1)?;
        }
        Ok(())
    }

    /// Skips a comment, if one starts here.
    pub(super) fn skip_comment(&mut self) -> Result<(), Fault> {
        if self.current_char() == '#' {
            while !is_break_or_end(self.current_char()) {
                self.skip();
                self.ensure(1)?;
            }
        }
        Ok(())
    }

    /// Whether a document starts or ends here: `---` or `...` alone at the start of a line.
    pub(super) fn document_indicator(&self) -> Option<char> {
        let sign = self.current_char();
        let all = self.mark.column == 0
            && matches!(sign, '-' | '.')
            && self.peek(1) == sign
            && self.peek(2) == sign;
        (all && is_blank_or_end(self.peek(3))).then_some(sign)
    }
}

pub(super) fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

pub(super) fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_break_or_end(character: char) -> bool {
    character == '\0' || is_break(character)
}

pub(super) fn is_blank_or_end(character: char) -> bool {
    is_blank(character) || is_break_or_end(character)
}

/// Whether names of anchors, tag handles and directives may contain the character.
pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Returns the first character and its width; `None` if it is incomplete.
fn next_utf8(bytes: &[u8], ended: bool) -> Result<Option<(char, usize)>, &'static str> {
    let Some(first) = bytes.first() else {
        return Ok(None);
    };
    let (width, low, least) = match first {
        0..=0x7f => return Ok(Some((char::from(*first), 1))),
        0xc0..=0xdf => (2, first & 0x1f, 0x80),
        0xe0..=0xef => (3, first & 0x0f, 0x800),
        0xf0..=0xf7 => (4, first & 0x07, 0x1_0000),
        _ => return Err("invalid leading UTF-8 octet"),
    };
    let Some(rest) = bytes.get(1..width) else {
        return if ended {
            Err("incomplete UTF-8 octet sequence")
        } else {
            Ok(None)
        };
    };
    let mut value = u32::from(low);
    for octet in rest {
        if octet & 0xc0 != 0x80 {
            return Err("invalid trailing UTF-8 octet");
        }
        value = (value << 6) + u32::from(octet & 0x3f);
    }
    if value < least {
        return Err("invalid length of a UTF-8 sequence");
    }
    char::from_u32(value)
        .map(|character| Some((character, width)))
        .ok_or("invalid Unicode character")
}

fn next_utf16(
    bytes: &[u8],
    unit: fn([u8; 2]) -> u16,
    ended: bool,
) -> Result<Option<(char, usize)>, &'static str> {
    let at = |index: usize| {
        bytes
            .get(index..index + 2)
            .and_then(|pair| <[u8; 2]>::try_from(pair).ok())
            .map(unit)
    };
    let Some(first) = at(0) else {
        return if ended {
            Err("incomplete UTF-16 character")
        } else {
            Ok(None)
        };
    };
    match first {
        0xdc00..=0xdfff => Err("unexpected low surrogate area"),
        0xd800..=0xdbff => match at(2) {
            None if ended => Err("incomplete UTF-16 surrogate pair"),
            None => Ok(None),
            Some(second @ 0xdc00..=0xdfff) => {
                let value =
                    0x1_0000 + ((u32::from(first) & 0x3ff) << 10) + (u32::from(second) & 0x3ff);
                Ok(char::from_u32(value).map(|character| (character, 4)))
            }
            Some(_) => Err("expected low surrogate area"),
        },
        other => Ok(char::from_u32(u32::from(other)).map(|character| (character, 2))),
    }
}
