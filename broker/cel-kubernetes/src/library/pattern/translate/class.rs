//! Translates character classes and escaped characters.

use super::{Translating, Translator, beyond, refused};

/// Writes a literal character.
pub(super) fn literal(c: char) -> String {
    if c.is_ascii_alphanumeric() {
        c.to_string()
    } else {
        format!("\\x{{{:X}}}", u32::from(c))
    }
}

/// Returns the content of a Perl class, which is ASCII only.
pub(super) fn perl(letter: char) -> &'static str {
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
fn posix(name: &str) -> Option<&'static str> {
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
    /// Reads the character of an escape, after the backslash.
    pub(super) fn escaped(&mut self) -> Translating<char> {
        let Some(c) = self.peek() else {
            return refused("trailing backslash at end of expression");
        };
        self.at += 1;
        let plain = match c {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => return self.hexadecimal(),
            '0'..='7' => return self.octal(c),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            c => return refused(&format!("invalid escape sequence: `\\{c}`")),
        };
        Ok(plain)
    }

    fn octal(&mut self, first: char) -> Translating<char> {
        // A lone digit other than 0 would be a back reference.
        if first != '0' && !matches!(self.peek(), Some('0'..='7')) {
            return refused(&format!("invalid escape sequence: `\\{first}`"));
        }
        let mut value = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            value = value * 8 + digit;
            self.at += 1;
        }
        char::from_u32(value).map_or_else(|| refused("invalid escape sequence"), Ok)
    }

    fn hexadecimal(&mut self) -> Translating<char> {
        let digits: String = if self.eat("{") {
            let digits = self.text_until('}', self.at);
            self.at += digits.chars().count() + 1;
            digits
        } else {
            let digits: String = self.chars.iter().skip(self.at).take(2).collect();
            self.at += 2;
            if digits.chars().count() < 2 {
                return refused("invalid escape sequence");
            }
            digits
        };
        let proper = !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_hexdigit())
            && self.at <= self.chars.len();
        if !proper {
            return refused("invalid escape sequence");
        }
        match u32::from_str_radix(&digits, 16)
            .ok()
            .filter(|v| *v <= 0x10_FFFF)
        {
            Some(value) => char::from_u32(value).map_or_else(|| beyond("a surrogate"), Ok),
            None => refused("invalid escape sequence"),
        }
    }

    /// Translates a class `[...]`.
    pub(super) fn class(&mut self) -> Translating<String> {
        self.at += 1;
        let mut out = String::from(if self.eat("^") { "[^" } else { "[" });
        let mut first = true;
        loop {
            let Some(c) = self.peek() else {
                return refused("missing closing ]");
            };
            if c == ']' && !first {
                self.at += 1;
                break;
            }
            // Go's syntax, which includes Perl's, accepts a dash that is not part of a range
            // anywhere.
            first = false;
            if self.eat("[:") {
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
                    let Some(members) = posix(plain) else {
                        return refused("invalid character class range");
                    };
                    let caret = if plain.len() < name.len() { "^" } else { "" };
                    out.push_str(&format!("[{caret}{members}]"));
                    continue;
                }
                if self
                    .chars
                    .iter()
                    .skip(self.at)
                    .collect::<String>()
                    .contains(":]")
                {
                    return refused("invalid character class range");
                }
                self.at -= 2;
            }
            if c == '\\' {
                match self.chars.get(self.at + 1) {
                    Some('p' | 'P') => {
                        self.at += 1;
                        out.push_str(&self.unicode_class()?);
                        continue;
                    }
                    Some(&letter @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                        self.at += 2;
                        out.push_str(&format!("[{}]", perl(letter)));
                        continue;
                    }
                    _ => {}
                }
            }
            let low = self.member()?;
            out.push_str(&literal(low));
            if self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|c| *c != ']') {
                self.at += 1;
                let high = self.member()?;
                if high < low {
                    return refused("invalid character class range");
                }
                out.push('-');
                out.push_str(&literal(high));
            }
        }
        out.push(']');
        Ok(out)
    }

    /// Translates `pL`, `P{Lu}` or `p{^Greek}`, after the backslash. Go knows many more names, and
    /// its releases differ in some.
    pub(super) fn unicode_class(&mut self) -> Translating<String> {
        const KNOWN: [&str; 14] = [
            "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "Z", "Greek", "Latin",
        ];
        let mut negated = self.peek() == Some('P');
        self.at += 1;
        let name: String = if self.eat("{") {
            let name = self.text_until('}', self.at);
            self.at += name.chars().count() + 1;
            if self.at > self.chars.len() {
                return refused("invalid character class range");
            }
            name
        } else {
            let name = self.peek().map(String::from);
            self.at += 1;
            name.unwrap_or_default()
        };
        let plain = name.strip_prefix('^').unwrap_or(&name);
        negated ^= plain.len() < name.len();
        if KNOWN.contains(&plain) {
            self.unicode = true;
            return Ok(format!("\\{}{{{plain}}}", if negated { 'P' } else { 'p' }));
        }
        // Only these letters name a category.
        let no_category = plain.len() == 1
            && plain
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() && !b"CLMNPSZ".contains(&letter));
        if no_category {
            refused("invalid character class range")
        } else {
            beyond("a Unicode class")
        }
    }

    fn member(&mut self) -> Translating<char> {
        match self.peek() {
            None => refused("missing closing ]"),
            Some('\\') => {
                self.at += 1;
                self.escaped()
            }
            Some(c) => {
                self.at += 1;
                Ok(c)
            }
        }
    }
}
