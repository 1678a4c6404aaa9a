//! Reads anchors, aliases, tags and directives.

use super::Fault;
use super::scanner::{Kind, Scanner};
use super::source::{is_blank, is_blank_or_end, is_word};

/// The place of a tag's handle; in a `%TAG` directive it must be a complete one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Node,
    Directive,
}

impl Scanner<'_> {
    pub(super) fn fetch_anchor(&mut self, alias: bool) -> Result<(), Fault> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.source.mark;
        self.source.skip();
        let name = self.read_word()?;
        let after = self.source.current_char();
        let ended = is_blank_or_end(after)
            || matches!(after, '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`');
        if name.is_empty() || !ended {
            return Err(self.problem_here("did not find expected alphabetic or numeric character"));
        }
        self.push_token(
            if alias {
                Kind::Alias(name)
            } else {
                Kind::Anchor(name)
            },
            start,
        );
        Ok(())
    }

    fn read_word(&mut self) -> Result<String, Fault> {
        let mut word = String::new();
        self.source.ensure(1)?;
        while is_word(self.source.current_char()) {
            self.source.read(&mut word);
            self.source.ensure(1)?;
        }
        Ok(word)
    }

    pub(super) fn fetch_tag(&mut self) -> Result<(), Fault> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.source.mark;
        let kind = self.read_tag()?;
        self.source.ensure(1)?;
        if !is_blank_or_end(self.source.current_char()) {
            return Err(self.problem_here("did not find expected whitespace or line break"));
        }
        self.push_token(kind, start);
        Ok(())
    }

    /// Reads `!<uri>`, `!handle!suffix`, `!suffix` or `!`.
    fn read_tag(&mut self) -> Result<Kind, Fault> {
        self.source.ensure(2)?;
        if self.source.peek(1) == '<' {
            self.source.skip_all(2);
            let suffix = self.read_uri("")?;
            if self.source.current_char() != '>' {
                return Err(self.problem_here("did not find the expected '>'"));
            }
            self.source.skip();
            return Ok(Kind::Tag {
                handle: String::new(),
                suffix,
            });
        }
        let handle = self.read_handle(Of::Node)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.read_uri("")?;
            return Ok(Kind::Tag { handle, suffix });
        }
        // It was not a handle but the start of a suffix.
        let suffix = self.read_uri(&handle)?;
        Ok(if suffix.is_empty() {
            Kind::Tag {
                handle: String::new(),
                suffix: "!".to_owned(),
            }
        } else {
            Kind::Tag {
                handle: "!".to_owned(),
                suffix,
            }
        })
    }

    fn read_handle(&mut self, of: Of) -> Result<String, Fault> {
        self.source.ensure(1)?;
        if self.source.current_char() != '!' {
            return Err(self.problem_here("did not find expected '!'"));
        }
        let mut handle = String::new();
        self.source.read(&mut handle);
        self.source.ensure(1)?;
        handle.push_str(&self.read_word()?);
        if self.source.current_char() == '!' {
            self.source.read(&mut handle);
        } else if of == Of::Directive && handle != "!" {
            return Err(self.problem_here("did not find expected '!'"));
        }
        Ok(handle)
    }

    /// Reads the rest of a tag. `head` is the part that was taken for its handle.
    fn read_uri(&mut self, head: &str) -> Result<String, Fault> {
        let mut uri: Vec<u8> = head.bytes().skip(1).collect();
        let mut any = !head.is_empty();
        self.source.ensure(1)?;
        loop {
            let here = self.source.current_char();
            if here == '%' {
                self.read_escape(&mut uri)?;
            } else if is_word(here) || ";/?:@&=+$,.!~*'()[]".contains(here) {
                uri.extend(here.to_string().bytes());
                self.source.skip();
            } else {
                break;
            }
            self.source.ensure(1)?;
            any = true;
        }
        if !any {
            return Err(self.problem_here("did not find expected tag URI"));
        }
        // An escape can produce bytes that are not UTF-8; no tag with a meaning here contains such
        // bytes.
        Ok(String::from_utf8_lossy(&uri).into_owned())
    }

    /// Reads one character, written as `%` and two digits for each of its bytes.
    fn read_escape(&mut self, uri: &mut Vec<u8>) -> Result<(), Fault> {
        let mut left = 0;
        loop {
            self.source.ensure(3)?;
            let digits = [
                self.source.peek(1).to_digit(16),
                self.source.peek(2).to_digit(16),
            ];
            let (true, [Some(high), Some(low)]) = (self.source.current_char() == '%', digits)
            else {
                return Err(self.problem_here("did not find URI escaped octet"));
            };
            let octet = u8::try_from(high * 16 + low).unwrap_or_default();
            if left == 0 {
                left = match octet {
                    0..=0x7f => 1,
                    0xc0..=0xdf => 2,
                    0xe0..=0xef => 3,
                    0xf0..=0xf7 => 4,
                    _ => return Err(self.problem_here("found an incorrect leading UTF-8 octet")),
                };
            } else if octet & 0xc0 != 0x80 {
                return Err(self.problem_here("found an incorrect trailing UTF-8 octet"));
            }
            uri.push(octet);
            self.source.skip_all(3);
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Reads `%YAML` or `%TAG`, to the end of its line.
    pub(super) fn read_directive(&mut self) -> Result<Kind, Fault> {
        self.source.skip();
        let name = self.read_word()?;
        if name.is_empty() {
            return Err(self.problem_here("could not find expected directive name"));
        }
        if !is_blank_or_end(self.source.current_char()) {
            return Err(self.problem_here("found unexpected non-alphabetical character"));
        }
        let kind = match name.as_str() {
            "YAML" => self.read_version()?,
            "TAG" => self.tag_directive()?,
            _ => return Err(self.problem_here("found unknown directive name")),
        };
        self.skip_rest_of_line()?;
        Ok(kind)
    }

    fn read_version(&mut self) -> Result<Kind, Fault> {
        self.source.skip_blanks()?;
        let major = self.version_number()?;
        if self.source.current_char() != '.' {
            return Err(self.problem_here("did not find expected digit or '.' character"));
        }
        self.source.skip();
        let minor = self.version_number()?;
        Ok(Kind::Version { major, minor })
    }

    fn version_number(&mut self) -> Result<u8, Fault> {
        self.source.ensure(1)?;
        let mut digits = String::new();
        while self.source.current_char().is_ascii_digit() {
            if digits.len() == 2 {
                return Err(self.problem_here("found extremely long version number"));
            }
            self.source.read(&mut digits);
            self.source.ensure(1)?;
        }
        digits
            .parse()
            .map_err(|_| self.problem_here("did not find expected version number"))
    }

    fn tag_directive(&mut self) -> Result<Kind, Fault> {
        self.source.skip_blanks()?;
        let handle = self.read_handle(Of::Directive)?;
        self.source.ensure(1)?;
        if !is_blank(self.source.current_char()) {
            return Err(self.problem_here("did not find expected whitespace"));
        }
        self.source.skip_blanks()?;
        let prefix = self.read_uri("")?;
        self.source.ensure(1)?;
        if !is_blank_or_end(self.source.current_char()) {
            return Err(self.problem_here("did not find expected whitespace or line break"));
        }
        Ok(Kind::TagDirective { handle, prefix })
    }
}
