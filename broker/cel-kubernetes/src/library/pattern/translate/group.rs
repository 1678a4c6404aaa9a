//! Translates groups, their names and flags.

use super::{Translating, Translator, beyond_support, refuse_pattern};

impl Translator {
    pub(super) fn translate_group(&mut self) -> Translating<(String, u32)> {
        self.at += 1;
        let mut open = String::from("(?:");
        let mut inside = None;
        if self.eat_text("?P<") || self.eat_text("?<") {
            let name = self.text_until('>', self.at);
            let closed = self.chars.get(self.at + name.chars().count()) == Some(&'>');
            let word =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !closed || !word {
                return if name.is_ascii() {
                    refuse_pattern("invalid named capture")
                } else {
                    beyond_support("a group's name")
                };
            }
            // Go accepts a duplicate name. No caller reads groups, so the output has no names.
            self.at += name.chars().count() + 1;
        } else if self.eat_text("?") {
            match self.read_flags()? {
                (flags, true) => {
                    open = format!("(?{flags}:");
                    inside = Some(flags);
                }
                (flags, false) => {
                    self.set_folding(&flags);
                    if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
                        return beyond_support("a repeat after flags");
                    }
                    self.unit = false;
                    return Ok((
                        if flags.is_empty() {
                            String::new()
                        } else {
                            format!("(?{flags})")
                        },
                        1,
                    ));
                }
            }
        }
        let folds = self.folds;
        self.set_folding(inside.as_deref().unwrap_or_default());
        let (inner, size) = self.translate_alternatives()?;
        self.folds = folds;
        if !self.eat_text(")") {
            return refuse_pattern("missing closing )");
        }
        self.unit = true;
        Ok((format!("{open}{inner})"), size))
    }

    fn set_folding(&mut self, flags: &str) {
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        self.folds = (self.folds || on.contains('i')) && !off.contains('i');
    }

    /// Reads `i`, `m`, `s`, `U` and their negations; also returns whether a group follows.
    fn read_flags(&mut self) -> Translating<(String, bool)> {
        let (mut on, mut off, mut negated, mut any) = (String::new(), String::new(), false, false);
        loop {
            let Some(c) = self.peek() else {
                return refuse_pattern("missing closing )");
            };
            self.at += 1;
            match c {
                'i' | 'm' | 's' | 'U' => {
                    // Go accepts a duplicate flag, the crate refuses it. Of two that contradict
                    // each other, the last counts.
                    let (on, off) = (&mut on, &mut off);
                    let (this, other) = if negated { (off, on) } else { (on, off) };
                    other.retain(|flag| flag != c);
                    if !this.contains(c) {
                        this.push(c);
                    }
                    any = true;
                }
                '-' if !negated => {
                    negated = true;
                    any = false;
                }
                ':' | ')' if !negated || any => {
                    let off = if off.is_empty() {
                        String::new()
                    } else {
                        format!("-{off}")
                    };
                    return Ok((format!("{on}{off}"), c == ':'));
                }
                _ => return refuse_pattern("invalid or unsupported Perl syntax"),
            }
        }
    }
}
