//! Reads scalars: plain, quoted and block ones.

use super::Fault;
use super::scanner::{Kind, Scanner};
use super::source::{is_blank, is_blank_or_end, is_break, is_break_or_end};

/// What happens to the line ends at the end of a block scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// Blanks and line ends inside of a scalar, which become text only if more text follows.
#[derive(Debug, Default)]
struct Gap {
    blanks: String,
    first_break: String,
    more_breaks: String,
    broken: bool,
}

impl Gap {
    /// Appends the gap as text: its blanks, or folded lines.
    fn take(&mut self, into: &mut String) {
        if self.broken {
            // One line end becomes a space; of several, the first is dropped.
            if self.first_break.starts_with('\n') {
                into.push_str(if self.more_breaks.is_empty() {
                    " "
                } else {
                    &self.more_breaks
                });
            } else {
                into.push_str(&self.first_break);
                into.push_str(&self.more_breaks);
            }
        } else {
            into.push_str(&self.blanks);
        }
        self.blanks.clear();
        self.first_break.clear();
        self.more_breaks.clear();
        self.broken = false;
    }

    fn is_empty(&self) -> bool {
        !self.broken && self.blanks.is_empty()
    }
}

impl Scanner<'_> {
    pub(super) fn fetch_plain_scalar(&mut self) -> Result<(), Fault> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.source.mark;
        let mut text = String::new();
        let broken = self.read_plain(&mut text)?;
        self.push_token(Kind::Scalar { text, plain: true }, start);
        if broken {
            self.key_allowed = true;
        }
        Ok(())
    }

    /// Reads a plain scalar. Returns true if it ended after a line end.
    fn read_plain(&mut self, text: &mut String) -> Result<bool, Fault> {
        let least = usize::try_from(self.indent + 1).unwrap_or_default();
        let mut gap = Gap::default();
        loop {
            self.source.ensure(4)?;
            if self.source.document_indicator().is_some() || self.source.current_char() == '#' {
                break;
            }
            while !is_blank_or_end(self.source.current_char()) && !self.ends_plain() {
                if !gap.is_empty() {
                    gap.take(text);
                }
                self.source.read(text);
                self.source.ensure(2)?;
            }
            if !is_blank(self.source.current_char()) && !is_break(self.source.current_char()) {
                break;
            }
            self.source.ensure(1)?;
            while is_blank(self.source.current_char()) || is_break(self.source.current_char()) {
                if gap.broken
                    && self.source.mark.column < least
                    && self.source.current_char() == '\t'
                {
                    return Err(
                        self.problem_here("found a tab character that violates indentation")
                    );
                }
                self.take_gap(&mut gap)?;
            }
            if self.flow_level == 0 && self.source.mark.column < least {
                break;
            }
        }
        Ok(gap.broken)
    }

    fn ends_plain(&self) -> bool {
        match self.source.current_char() {
            ':' => is_blank_or_end(self.source.peek(1)),
            here => self.flow_level > 0 && matches!(here, ',' | '?' | '[' | ']' | '{' | '}'),
        }
    }

    /// Takes one blank or line end into the gap.
    fn take_gap(&mut self, gap: &mut Gap) -> Result<(), Fault> {
        if is_blank(self.source.current_char()) {
            if gap.broken {
                self.source.skip();
            } else {
                self.source.read(&mut gap.blanks);
            }
        } else {
            self.source.ensure(2)?;
            if gap.broken {
                self.source.read_line(&mut gap.more_breaks);
            } else {
                gap.blanks.clear();
                self.source.read_line(&mut gap.first_break);
                gap.broken = true;
            }
        }
        self.source.ensure(1)
    }

    pub(super) fn fetch_quoted_scalar(&mut self, single: bool) -> Result<(), Fault> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.source.mark;
        let mut text = String::new();
        self.read_quoted(single, &mut text)?;
        self.push_token(Kind::Scalar { text, plain: false }, start);
        Ok(())
    }

    fn read_quoted(&mut self, single: bool, text: &mut String) -> Result<(), Fault> {
        let quote = if single { '\'' } else { '"' };
        self.source.skip();
        let mut gap = Gap::default();
        loop {
            self.source.ensure(4)?;
            if self.source.document_indicator().is_some() {
                return Err(self.problem_here("found unexpected document indicator"));
            }
            if self.source.current_char() == '\0' {
                return Err(self.problem_here("found unexpected end of stream"));
            }
            while !is_blank_or_end(self.source.current_char()) {
                match self.source.current_char() {
                    '\'' if single && self.source.peek(1) == '\'' => {
                        text.push('\'');
                        self.source.skip_all(2);
                    }
                    here if here == quote => break,
                    '\\' if !single && is_break(self.source.peek(1)) => {
                        // The line end is dropped, and so are the blanks of the next line.
                        self.source.ensure(3)?;
                        self.source.skip();
                        self.source.skip_line();
                        gap.broken = true;
                        break;
                    }
                    '\\' if !single => self.read_escaped(text)?,
                    _ => self.source.read(text),
                }
                self.source.ensure(2)?;
            }
            self.source.ensure(1)?;
            if self.source.current_char() == quote {
                self.source.skip();
                return Ok(());
            }
            while is_blank(self.source.current_char()) || is_break(self.source.current_char()) {
                self.take_gap(&mut gap)?;
            }
            gap.take(text);
        }
    }

    /// Reads a backslash and the escape after it.
    fn read_escaped(&mut self, text: &mut String) -> Result<(), Fault> {
        let plain = match self.source.peek(1) {
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            'e' => '\u{1b}',
            same @ (' ' | '"' | '\'' | '\\') => same,
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            'x' => return self.escaped_code(2, text),
            'u' => return self.escaped_code(4, text),
            'U' => return self.escaped_code(8, text),
            _ => return Err(self.problem_here("found unknown escape character")),
        };
        text.push(plain);
        self.source.skip_all(2);
        Ok(())
    }

    fn escaped_code(&mut self, digits: usize, text: &mut String) -> Result<(), Fault> {
        self.source.skip_all(2);
        self.source.ensure(digits)?;
        let mut value = 0_u32;
        for index in 0..digits {
            match self.source.peek(index).to_digit(16) {
                Some(digit) => value = (value << 4) + digit,
                None => return Err(self.problem_here("did not find expected hexdecimal number")),
            }
        }
        let Some(character) = char::from_u32(value) else {
            return Err(self.problem_here("found invalid Unicode character escape code"));
        };
        text.push(character);
        self.source.skip_all(digits);
        Ok(())
    }

    pub(super) fn fetch_block_scalar(&mut self, literal: bool) -> Result<(), Fault> {
        self.drop_key()?;
        self.key_allowed = true;
        let start = self.source.mark;
        let mut text = String::new();
        self.read_block(literal, &mut text)?;
        self.push_token(Kind::Scalar { text, plain: false }, start);
        Ok(())
    }

    fn read_block(&mut self, literal: bool, text: &mut String) -> Result<(), Fault> {
        self.source.skip();
        let (chomping, increment) = self.block_header()?;
        let outer = usize::try_from(self.indent).unwrap_or_default();
        let mut indent = if increment > 0 { outer + increment } else { 0 };
        let (mut last_break, mut breaks) = (String::new(), String::new());
        let mut after_blank = false;
        self.block_breaks(&mut indent, &mut breaks)?;
        self.source.ensure(1)?;
        while self.source.mark.column == indent && self.source.current_char() != '\0' {
            let blank = is_blank(self.source.current_char());
            // Lines are folded, except next to a line that starts with a blank.
            if !literal && !after_blank && !blank && last_break.starts_with('\n') {
                if breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&last_break);
            }
            last_break.clear();
            text.push_str(&breaks);
            breaks.clear();
            after_blank = blank;
            while !is_break_or_end(self.source.current_char()) {
                self.source.read(text);
                self.source.ensure(1)?;
            }
            self.source.ensure(2)?;
            self.source.read_line(&mut last_break);
            self.block_breaks(&mut indent, &mut breaks)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&last_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks);
        }
        Ok(())
    }

    /// Reads the header after `|` or `>`: `+` or `-`, and the indentation of the text, in either
    /// order.
    fn block_header(&mut self) -> Result<(Chomping, usize), Fault> {
        let (mut chomping, mut increment) = (None, None);
        self.source.ensure(1)?;
        for _ in 0..2 {
            match self.source.current_char() {
                sign @ ('+' | '-') if chomping.is_none() => {
                    chomping = Some(if sign == '+' {
                        Chomping::Keep
                    } else {
                        Chomping::Strip
                    });
                }
                '0' if increment.is_none() => {
                    return Err(self.problem_here("found an indentation indicator equal to 0"));
                }
                digit @ '1'..='9' if increment.is_none() => increment = digit.to_digit(10),
                _ => break,
            }
            self.source.skip();
            self.source.ensure(1)?;
        }
        self.skip_rest_of_line()?;
        Ok((
            chomping.unwrap_or(Chomping::Clip),
            increment
                .and_then(|digit| usize::try_from(digit).ok())
                .unwrap_or_default(),
        ))
    }

    /// Skips indentation and empty lines. The first line with text sets the indentation, if it is
    /// not set yet.
    fn block_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), Fault> {
        let mut deepest = 0;
        loop {
            self.source.ensure(1)?;
            let inside = |indent: usize, column: usize| indent == 0 || column < indent;
            while inside(*indent, self.source.mark.column) && self.source.current_char() == ' ' {
                self.source.skip();
                self.source.ensure(1)?;
            }
            deepest = deepest.max(self.source.mark.column);
            if inside(*indent, self.source.mark.column) && self.source.current_char() == '\t' {
                return Err(self
                    .problem_here("found a tab character where an indentation space is expected"));
            }
            if !is_break(self.source.current_char()) {
                break;
            }
            self.source.ensure(2)?;
            self.source.read_line(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or_default();
            *indent = deepest.max(least).max(1);
        }
        Ok(())
    }
}
