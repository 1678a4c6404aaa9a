//! Translates character classes and escaped characters.

use super::super::unicode::{ClassName, class_name, has_other_folding, other_foldings};
use super::{Translating, Translator, beyond_support, refuse_pattern};

/// The members of a class in brackets.
#[derive(Default)]
struct Members {
    negated: bool,
    ranges: Vec<(char, char)>,
    /// Classes within the class, as written for the crate.
    classes: String,
}

impl Members {
    /// Writes the class. If the case does not matter, characters that Go does not fold are apart.
    fn write_class(&self, folds: bool) -> String {
        let caret = if self.negated { "^" } else { "" };
        let all = format!("{}{}", write_ranges(&self.ranges), self.classes);
        let others = other_foldings();
        let inside = |(low, high): &(char, char)| {
            let cut = |other: &(char, char)| ((*low).max(other.0), (*high).min(other.1));
            others
                .iter()
                .map(cut)
                .filter(|(low, high)| low <= high)
                .collect::<Vec<_>>()
        };
        let apart: Vec<(char, char)> = self.ranges.iter().flat_map(inside).collect();
        if !folds || apart.is_empty() {
            return format!("[{caret}{all}]");
        }
        let rest: Vec<(char, char)> = self
            .ranges
            .iter()
            .flat_map(|r| subtract_ranges(*r, others))
            .collect();
        let rest = format!("{}{}", write_ranges(&rest), self.classes);
        let others = write_ranges(others);
        match (self.negated, rest.is_empty()) {
            (false, true) => format!("(?-i:[{}])", write_ranges(&apart)),
            (false, false) => format!("(?:[{rest}]|(?-i:[{}]))", write_ranges(&apart)),
            (true, true) => format!("(?-i:[^{all}])"),
            (true, false) => format!("(?:[[^{rest}]--[{others}]]|(?-i:[[{others}]&&[^{all}]]))"),
        }
    }
}

fn write_ranges(ranges: &[(char, char)]) -> String {
    let write =
        |(low, high): &(char, char)| format!("{}-{}", write_literal(*low), write_literal(*high));
    ranges.iter().map(write).collect()
}

/// Returns what is left of a range without others, which are sorted.
fn subtract_ranges(range: (char, char), others: &[(char, char)]) -> Vec<(char, char)> {
    let (mut low, high) = (u32::from(range.0), u32::from(range.1));
    let mut left = Vec::new();
    let mut keep = |from: u32, to: u32| {
        // The ends lie on valid characters, or beside one that is cut out and no surrogate.
        left.extend(
            char::from_u32(from)
                .zip(char::from_u32(to))
                .filter(|(a, b)| a <= b),
        );
    };
    for (first, last) in others.iter().map(|(a, b)| (u32::from(*a), u32::from(*b))) {
        if last < low || first > high {
            continue;
        }
        if first > low {
            keep(low, first - 1);
        }
        low = last + 1;
    }
    if low <= high {
        keep(low, high);
    }
    left
}

/// Writes a literal character.
pub(super) fn write_literal(c: char) -> String {
    if c.is_ascii_alphanumeric() {
        c.to_string()
    } else {
        format!("\\x{{{:X}}}", u32::from(c))
    }
}

/// Returns the content of a Perl class, which is ASCII only.
pub(super) fn perl_class(letter: char) -> &'static str {
    match letter {
        'd' => "0-9",
        'D' => "^0-9",
        's' => "\\t\\n\\f\\r ",
        'S' => "^\\t\\n\\f\\r ",
        'w' => "0-9A-Za-z_",
        _ => "^0-9A-Za-z_",
    }
}

/// Returns the content of a class like `[:alpha:]`.
fn posix_class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => "0-9A-Za-z",
        "alpha" => "A-Za-z",
        "ascii" => "\\x00-\\x7F",
        "blank" => "\\t ",
        "cntrl" => "\\x00-\\x1F\\x7F",
        "digit" => "0-9",
        "graph" => "!-~",
        "lower" => "a-z",
        "print" => " -~",
        "punct" => "!-/:-@\\[-`{-~",
        "space" => "\\t-\\r ",
        "upper" => "A-Z",
        "word" => "0-9A-Za-z_",
        "xdigit" => "0-9A-Fa-f",
        _ => return None,
    })
}

impl Translator {
    /// Writes a literal character, which the crate must not fold if Go does not.
    pub(super) fn translate_literal(&self, c: char) -> String {
        if self.folds && has_other_folding(c) {
            format!("(?-i:{})", write_literal(c))
        } else {
            write_literal(c)
        }
    }

    /// Reads the character of an escape, after the backslash.
    pub(super) fn read_escaped(&mut self) -> Translating<char> {
        let Some(c) = self.peek() else {
            return refuse_pattern("trailing backslash at end of expression");
        };
        self.at += 1;
        let plain = match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => return self.read_hexadecimal(),
            '0'..='7' => return self.read_octal(c),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            c => return refuse_pattern(&format!("invalid escape sequence: `\\{c}`")),
        };
        Ok(plain)
    }

    fn read_octal(&mut self, first: char) -> Translating<char> {
        // A lone digit other than 0 would be a back reference.
        if first != '0' && !matches!(self.peek(), Some('0'..='7')) {
            return refuse_pattern(&format!("invalid escape sequence: `\\{first}`"));
        }
        let mut value = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            value = value * 8 + digit;
            self.at += 1;
        }
        char::from_u32(value).map_or_else(|| refuse_pattern("invalid escape sequence"), Ok)
    }

    fn read_hexadecimal(&mut self) -> Translating<char> {
        let digits: String = if self.eat_text("{") {
            let digits = self.text_until('}', self.at);
            self.at += digits.chars().count() + 1;
            digits
        } else {
            let digits: String = self.chars.iter().skip(self.at).take(2).collect();
            self.at += 2;
            if digits.chars().count() < 2 {
                return refuse_pattern("invalid escape sequence");
            }
            digits
        };
        let proper = !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_hexdigit())
            && self.at <= self.chars.len();
        if !proper {
            return refuse_pattern("invalid escape sequence");
        }
        match u32::from_str_radix(&digits, 16)
            .ok()
            .filter(|v| *v <= 0x10_FFFF)
        {
            Some(value) => char::from_u32(value).map_or_else(|| beyond_support("a surrogate"), Ok),
            None => refuse_pattern("invalid escape sequence"),
        }
    }

    /// Translates a class `[...]`.
    pub(super) fn translate_class(&mut self) -> Translating<String> {
        self.at += 1;
        let mut members = Members {
            negated: self.eat_text("^"),
            ..Members::default()
        };
        let mut first = true;
        loop {
            let Some(c) = self.peek() else {
                return refuse_pattern("missing closing ]");
            };
            if c == ']' && !first {
                self.at += 1;
                break;
            }
            // Go's syntax, which includes Perl's, accepts a dash that is not part of a range
            // anywhere.
            first = false;
            if let Some(class) = self.read_posix_class()? {
                members.classes.push_str(&class);
            } else if let Some(class) = self.read_class_escape()? {
                members.classes.push_str(&class);
            } else {
                members.ranges.push(self.read_range()?);
            }
        }
        Ok(members.write_class(self.folds))
    }

    /// Reads a class like `[:alpha:]`, if one is here.
    fn read_posix_class(&mut self) -> Translating<Option<String>> {
        if !self.eat_text("[:") {
            return Ok(None);
        }
        let name: String = self
            .chars
            .iter()
            .skip(self.at)
            .take_while(|c| **c != ':')
            .collect();
        let closed = self
            .chars
            .iter()
            .skip(self.at + name.chars().count())
            .take(2)
            .eq([':', ']'].iter());
        if closed {
            self.at += name.chars().count() + 2;
            let plain = name.strip_prefix('^').unwrap_or(&name);
            let Some(range) = posix_class(plain) else {
                return refuse_pattern("invalid character class range");
            };
            let caret = if plain.len() < name.len() { "^" } else { "" };
            return Ok(Some(format!("[{caret}{range}]")));
        }
        if self
            .chars
            .iter()
            .skip(self.at)
            .collect::<String>()
            .contains(":]")
        {
            return refuse_pattern("invalid character class range");
        }
        self.at -= 2;
        Ok(None)
    }

    /// Reads a class like `\d` or `\pL`, if one is here.
    fn read_class_escape(&mut self) -> Translating<Option<String>> {
        if self.peek() != Some('\\') {
            return Ok(None);
        }
        match self.chars.get(self.at + 1) {
            Some('p' | 'P') => {
                self.at += 1;
                self.unicode_class().map(Some)
            }
            Some(&letter @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                self.at += 2;
                Ok(Some(format!("[{}]", perl_class(letter))))
            }
            _ => Ok(None),
        }
    }

    /// Reads one character, or a range of them.
    fn read_range(&mut self) -> Translating<(char, char)> {
        let low = self.read_member()?;
        if self.peek() != Some('-') || self.chars.get(self.at + 1).is_none_or(|c| *c == ']') {
            return Ok((low, low));
        }
        self.at += 1;
        let high = self.read_member()?;
        if high < low {
            return refuse_pattern("invalid character class range");
        }
        Ok((low, high))
    }

    /// Translates `pL`, `P{Lu}` or `p{^Greek}`, after the backslash.
    pub(super) fn unicode_class(&mut self) -> Translating<String> {
        let mut negated = self.peek() == Some('P');
        self.at += 1;
        let name: String = if self.eat_text("{") {
            let name = self.text_until('}', self.at);
            self.at += name.chars().count() + 1;
            if self.at > self.chars.len() {
                return refuse_pattern("invalid character class range");
            }
            name
        } else {
            let name = self.peek().map(String::from);
            self.at += 1;
            name.unwrap_or_default()
        };
        let plain = name.strip_prefix('^').unwrap_or(&name);
        negated ^= plain.len() < name.len();
        let caret = if negated { "^" } else { "" };
        self.unicode = true;
        self.unassigned |= plain == "C";
        match class_name(plain) {
            ClassName::Known(class) => Ok(format!("[{caret}{class}]")),
            ClassName::Empty if negated => Ok("[\\x{0}-\\x{10FFFF}]".to_owned()),
            ClassName::Empty => Ok("[^\\x{0}-\\x{10FFFF}]".to_owned()),
            ClassName::Open => beyond_support("a Unicode class of a newer Go"),
            ClassName::Unknown => refuse_pattern("invalid character class range"),
        }
    }

    fn read_member(&mut self) -> Translating<char> {
        match self.peek() {
            None => refuse_pattern("missing closing ]"),
            Some('\\') => {
                self.at += 1;
                self.read_escaped()
            }
            Some(c) => {
                self.at += 1;
                Ok(c)
            }
        }
    }
}
