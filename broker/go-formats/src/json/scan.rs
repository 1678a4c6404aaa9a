//! Parses JSON text in one pass, with the errors of Go's scanner.

use std::collections::BTreeSet;

use super::{Deep, Json, JsonFault, MAX_DEPTH, MAX_DEPTH_OF_GO, quote_byte};

pub(super) fn parse_json(bytes: &[u8]) -> Result<Json, JsonFault> {
    parse_to(bytes, MAX_DEPTH_OF_GO)
}

pub(super) fn parse_at_any_depth(bytes: &[u8]) -> Result<Json, JsonFault> {
    parse_to(bytes, usize::MAX)
}

fn parse_to(bytes: &[u8], depth_limit: usize) -> Result<Json, JsonFault> {
    let mut scan = Scan {
        bytes,
        at: 0,
        depth_limit,
    };
    let value = scan.read_value(0)?;
    scan.skip_space();
    match scan.peek() {
        None => Ok(value),
        Some(byte) => Err(invalid_byte(byte, "after top-level value")),
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth_limit: usize,
}

/// A container that is open, and the names in it so far.
struct OpenContainer {
    bracket: u8,
    names: BTreeSet<String>,
}

impl OpenContainer {
    fn new(bracket: u8) -> Self {
        Self {
            bracket,
            names: BTreeSet::new(),
        }
    }
}

fn invalid_byte(byte: u8, context: &str) -> JsonFault {
    JsonFault::Syntax(format!("invalid character {} {context}", quote_byte(byte)))
}

fn end_of_input() -> JsonFault {
    JsonFault::Syntax("unexpected end of JSON input".to_owned())
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, JsonFault> {
        let byte = self.peek().ok_or_else(end_of_input)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn next_visible(&mut self) -> Result<u8, JsonFault> {
        self.skip_space();
        self.next()
    }

    fn read_value(&mut self, depth: usize) -> Result<Json, JsonFault> {
        match self.next_visible()? {
            open @ (b'{' | b'[') if depth >= MAX_DEPTH => self.check_container(open, depth),
            b'{' => self.read_object(depth),
            b'[' => self.read_list(depth),
            b'"' => Ok(Json::Text(self.read_text()?)),
            b't' => self.read_literal("true", Json::Bool(true)),
            b'f' => self.read_literal("false", Json::Bool(false)),
            b'n' => self.read_literal("null", Json::Null),
            first @ (b'-' | b'0'..=b'9') => self.read_number(first),
            byte => Err(invalid_byte(byte, "looking for beginning of value")),
        }
    }

    /// Checks a container without keeping its content. Open containers are tracked on the heap, so
    /// that no depth exhausts the stack.
    fn check_container(&mut self, first: u8, depth: usize) -> Result<Json, JsonFault> {
        let mut deep = Deep {
            kind: if first == b'{' { "object" } else { "array" },
            duplicate_name: None,
            has_huge_number: false,
        };
        let mut open = vec![OpenContainer::new(first)];
        // Whether the innermost container may still close at once, before its first value and
        // without a comma.
        let mut fresh = true;
        while let Some(innermost) = open.last_mut() {
            if self.closes_container(innermost.bracket, fresh)? {
                open.pop();
                fresh = false;
                continue;
            }
            if innermost.bracket == b'{' {
                let name = self.read_key()?;
                if innermost.names.contains(&name) {
                    deep.duplicate_name.get_or_insert(name);
                } else {
                    innermost.names.insert(name);
                }
            }
            fresh = false;
            self.skip_space();
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    self.at += 1;
                    if depth + open.len() >= self.depth_limit {
                        return Err(invalid_byte(byte, "exceeded max depth"));
                    }
                    open.push(OpenContainer::new(byte));
                    fresh = true;
                }
                _ => deep.has_huge_number |= self.read_value(0)?.is_huge_number(),
            }
        }
        Ok(Json::Deep(Box::new(deep)))
    }

    /// Whether the innermost container closes here; otherwise reads the comma before its next value.
    fn closes_container(&mut self, bracket: u8, fresh: bool) -> Result<bool, JsonFault> {
        let close = if bracket == b'{' { b'}' } else { b']' };
        self.skip_space();
        if fresh {
            let closes = self.peek() == Some(close);
            self.at += usize::from(closes);
            return Ok(closes);
        }
        match self.next()? {
            b',' => Ok(false),
            byte if byte == close => Ok(true),
            byte if bracket == b'{' => Err(invalid_byte(byte, "after object key:value pair")),
            byte => Err(invalid_byte(byte, "after array element")),
        }
    }

    /// Reads the name of a member, and the colon after it.
    fn read_key(&mut self) -> Result<String, JsonFault> {
        match self.next_visible()? {
            b'"' => {}
            byte => {
                return Err(invalid_byte(
                    byte,
                    "looking for beginning of object key string",
                ));
            }
        }
        let key = self.read_text()?;
        match self.next_visible()? {
            b':' => Ok(key),
            byte => Err(invalid_byte(byte, "after object key")),
        }
    }

    fn read_literal(&mut self, word: &'static str, value: Json) -> Result<Json, JsonFault> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                return Err(invalid_byte(
                    byte,
                    &format!("in literal {word} (expecting {})", quote_byte(expected)),
                ));
            }
        }
        Ok(value)
    }

    fn read_list(&mut self, depth: usize) -> Result<Json, JsonFault> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.read_value(depth + 1)?);
            match self.next_visible()? {
                b',' => {}
                b']' => return Ok(Json::List(items)),
                byte => return Err(invalid_byte(byte, "after array element")),
            }
        }
    }

    fn read_object(&mut self, depth: usize) -> Result<Json, JsonFault> {
        let mut members = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(members));
        }
        loop {
            let key = self.read_key()?;
            members.push((key, self.read_value(depth + 1)?));
            match self.next_visible()? {
                b',' => {}
                b'}' => return Ok(Json::Object(members)),
                byte => return Err(invalid_byte(byte, "after object key:value pair")),
            }
        }
    }

    fn read_number(&mut self, first: u8) -> Result<Json, JsonFault> {
        let start = self.at - 1;
        let lead = if first == b'-' { self.next()? } else { first };
        match lead {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            byte => return Err(invalid_byte(byte, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.read_digit("after decimal point in numeric literal")?;
            self.skip_digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.read_digit("in exponent of numeric literal")?;
            self.skip_digits();
        }
        let digits = self.bytes.get(start..self.at).unwrap_or_default();
        Ok(Json::Number(String::from_utf8_lossy(digits).into_owned()))
    }

    fn read_digit(&mut self, context: &str) -> Result<(), JsonFault> {
        let byte = self.next()?;
        if byte.is_ascii_digit() {
            Ok(())
        } else {
            Err(invalid_byte(byte, context))
        }
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Reads the rest of a string, after its opening quote.
    fn read_text(&mut self) -> Result<String, JsonFault> {
        let mut out = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Ok(replace_broken(&out)),
                b'\\' => self.read_escape(&mut out)?,
                byte if byte < 0x20 => return Err(invalid_byte(byte, "in string literal")),
                byte => out.push(byte),
            }
        }
    }

    fn read_escape(&mut self, out: &mut Vec<u8>) -> Result<(), JsonFault> {
        let plain = match self.next()? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            same @ (b'"' | b'\\' | b'/') => same,
            b'u' => {
                let character = self.read_unicode()?;
                out.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            byte => return Err(invalid_byte(byte, "in string escape code")),
        };
        out.push(plain);
        Ok(())
    }

    /// Reads the character of a `\u`. A surrogate without its other half is replaced, and a
    /// following escape is read on its own.
    fn read_unicode(&mut self) -> Result<char, JsonFault> {
        let first = self.read_hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if self.bytes.get(self.at..self.at + 2) == Some(b"\\u") && first < 0xdc00 {
            let back = self.at;
            self.at += 2;
            let second = self.read_hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn read_hex4(&mut self) -> Result<u32, JsonFault> {
        let mut value = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or_else(|| invalid_byte(byte, "in \\u hexadecimal character escape"))?;
            value = value * 16 + digit;
        }
        Ok(value)
    }
}

/// Replaces each byte that is not part of a character by one U+FFFD, as Go's `utf8.DecodeRune`
/// does.
fn replace_broken(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                return out;
            }
            Err(error) => {
                let (valid, broken) = rest.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(valid).unwrap_or_default());
                out.push(char::REPLACEMENT_CHARACTER);
                rest = broken.get(1..).unwrap_or_default();
            }
        }
    }
}
