//! Translates Go's regular expressions to those of the `regex` crate. Every construct is written
//! out again, so that the two libraries cannot read it differently.

mod class;
mod group;

use super::PatternFault;

/// Go's limits: a repeat, the nesting, and the size that nested repeats may reach.
const MAX_REPEAT: u32 = 1000;
const MAX_NESTING: u32 = 50;

type Translating<T> = Result<T, PatternFault>;

/// An expression of the `regex` crate.
pub(super) struct Translated {
    pub(super) text: String,
    /// Whether it has a Unicode class.
    pub(super) unicode: bool,
    /// Whether it has a `\B`.
    pub(super) bytes: bool,
    /// Whether it depends on which code points have no character.
    pub(super) unassigned: bool,
}

/// Translates a whole expression.
pub(super) fn translate_pattern(written: &str) -> Translating<Translated> {
    let mut t = Translator {
        chars: written.chars().collect(),
        at: 0,
        depth: 0,
        unit: true,
        unicode: false,
        bytes: false,
        unassigned: false,
        folds: false,
    };
    if t.chars.len() > 2000 {
        return Err(PatternFault::Beyond("a long pattern".to_owned()));
    }
    let (out, _) = t.translate_alternatives()?;
    if t.at < t.chars.len() {
        return refuse_pattern(&format!("unexpected ): `{written}`"));
    }
    Ok(Translated {
        text: out,
        unicode: t.unicode,
        bytes: t.bytes,
        unassigned: t.unassigned,
    })
}

fn refuse_pattern<T>(what: &str) -> Translating<T> {
    Err(PatternFault::Refused(format!(
        "error parsing regexp: {what}"
    )))
}

fn beyond_support<T>(what: &str) -> Translating<T> {
    Err(PatternFault::Beyond(format!("{what} in a pattern")))
}

struct Translator {
    chars: Vec<char>,
    at: usize,
    depth: u32,
    /// Whether the last construct can be repeated.
    unit: bool,
    /// Whether there is a Unicode class.
    unicode: bool,
    /// Whether there is a `\B`.
    bytes: bool,
    /// Whether there is a class of all code points without a character.
    unassigned: bool,
    /// Whether the case does not matter here.
    folds: bool,
}

impl Translator {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn is_ahead(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn eat_text(&mut self, text: &str) -> bool {
        let found = self.is_ahead(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    /// Returns the text from a place to the next `end`, or to the end of the pattern.
    fn text_until(&self, end: char, from: usize) -> String {
        self.chars
            .iter()
            .skip(from)
            .take_while(|c| **c != end)
            .collect()
    }

    /// Translates everything up to a `)` or the end. Also returns the largest product of repeats in
    /// it.
    fn translate_alternatives(&mut self) -> Translating<(String, u32)> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return beyond_support("much nesting");
        }
        let (mut out, mut largest) = (String::new(), 1);
        let folds = self.folds;
        self.unit = false;
        let mut last_size = 1;
        while let Some(c) = self.peek() {
            match c {
                ')' => break,
                '|' => {
                    self.at += 1;
                    out.push('|');
                    self.unit = false;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    self.require_repeatable(&c.to_string())?;
                    out.push(c);
                    self.translate_lazy(&mut out)?;
                }
                '{' => match self.read_counts()? {
                    Some((low, high)) => {
                        self.require_repeatable("{")?;
                        let size = high.unwrap_or(low).max(1).saturating_mul(last_size);
                        if size > MAX_REPEAT {
                            return refuse_pattern("invalid repeat count");
                        }
                        largest = largest.max(size);
                        match high {
                            Some(high) => out.push_str(&format!("{{{low},{high}}}")),
                            None => out.push_str(&format!("{{{low},}}")),
                        }
                        self.translate_lazy(&mut out)?;
                    }
                    None => {
                        self.at += 1;
                        out.push_str("\\{");
                        self.unit = true;
                        last_size = 1;
                    }
                },
                _ => {
                    let (piece, size) = self.translate_atom(c)?;
                    out.push_str(&piece);
                    last_size = size;
                    largest = largest.max(size);
                }
            }
        }
        self.depth -= 1;
        self.folds = folds;
        Ok((out, largest))
    }

    fn require_repeatable(&self, operator: &str) -> Translating<()> {
        if self.unit {
            Ok(())
        } else {
            refuse_pattern(&format!(
                "missing argument to repetition operator: `{operator}`"
            ))
        }
    }

    /// Translates the `?` after a repeat; another repeat after it is refused.
    fn translate_lazy(&mut self, out: &mut String) -> Translating<()> {
        if self.eat_text("?") {
            out.push('?');
        }
        let again = match self.peek() {
            Some('*' | '+' | '?') => true,
            Some('{') => {
                let at = self.at;
                let counts = self.read_counts()?;
                self.at = at;
                counts.is_some()
            }
            _ => false,
        };
        if again {
            refuse_pattern("invalid nested repetition operator")
        } else {
            Ok(())
        }
    }

    /// Reads `{2}`, `{2,}` or `{2,3}`. Anything else is not a repeat, and its `{` is a literal.
    fn read_counts(&mut self) -> Translating<Option<(u32, Option<u32>)>> {
        let start = self.at;
        let text = self.text_until('}', start + 1);
        let closed = self.chars.get(start + 1 + text.chars().count()) == Some(&'}');
        let number = |t: &str| -> Option<u32> {
            let plain = !t.is_empty()
                && t.bytes().all(|b| b.is_ascii_digit())
                && (t == "0" || !t.starts_with('0'));
            plain.then(|| t.parse().unwrap_or(u32::MAX))
        };
        let parsed = match text.split_once(',') {
            None => number(&text).map(|n| (n, Some(n))),
            Some((low, "")) => number(low).map(|n| (n, None)),
            Some((low, high)) => number(low).zip(number(high)).map(|(l, h)| (l, Some(h))),
        };
        let Some((low, high)) = parsed.filter(|_| closed) else {
            return Ok(None);
        };
        self.at = start + text.chars().count() + 2;
        if low > MAX_REPEAT || high.is_some_and(|h| h > MAX_REPEAT || h < low) {
            return refuse_pattern("invalid repeat count");
        }
        Ok(Some((low, high)))
    }

    fn translate_atom(&mut self, c: char) -> Translating<(String, u32)> {
        self.unit = true;
        match c {
            '(' => self.translate_group(),
            '[' => Ok((self.translate_class()?, 1)),
            '\\' => Ok((self.translate_escape()?, 1)),
            '^' | '$' | '.' => {
                self.at += 1;
                Ok((c.to_string(), 1))
            }
            _ => {
                self.at += 1;
                Ok((self.translate_literal(c), 1))
            }
        }
    }

    fn translate_escape(&mut self) -> Translating<String> {
        self.at += 1;
        let Some(c) = self.peek() else {
            return refuse_pattern("trailing backslash at end of expression");
        };
        match c {
            'A' => {
                self.at += 1;
                Ok("\\A".to_owned())
            }
            'z' => {
                self.at += 1;
                Ok("\\z".to_owned())
            }
            'b' => {
                self.at += 1;
                Ok("(?-u:\\b)".to_owned())
            }
            'B' => {
                self.at += 1;
                self.bytes = true;
                Ok("(?-u:\\B)".to_owned())
            }
            'C' | 'E' => refuse_pattern("invalid escape sequence"),
            'Q' => {
                self.at += 1;
                let mut out = String::new();
                while let Some(c) = self.peek() {
                    if self.eat_text("\\E") {
                        break;
                    }
                    self.at += 1;
                    out.push_str(&self.translate_literal(c));
                }
                // A repeat after a quotation applies only to its last character; the output has the
                // same effect.
                self.unit = !out.is_empty();
                if out.is_empty() {
                    beyond_support("an empty quotation")
                } else {
                    Ok(out)
                }
            }
            'p' | 'P' => self.unicode_class(),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => {
                self.at += 1;
                Ok(format!("[{}]", class::perl_class(c)))
            }
            _ => {
                let c = self.read_escaped()?;
                Ok(self.translate_literal(c))
            }
        }
    }
}
