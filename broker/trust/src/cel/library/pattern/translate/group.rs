//! Groups, their names and the flags.

use super::{Translating, Translator, beyond, refused};

impl Translator {
    pub(super) fn group(&mut self) -> Translating<(String, u32)> {
        self.at += 1;
        let mut open = String::from("(?:");
        let python = self.eat("?P<");
        if python || self.eat("?<") {
            let name: String = self.chars.iter().skip(self.at).take_while(|c| **c != '>').collect();
            let closed = self.chars.get(self.at + name.chars().count()) == Some(&'>');
            let word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !closed || !word {
                return if name.is_ascii() { refused("invalid named capture") } else { beyond("a group's name") };
            }
            if let Some((_, before)) = self.names.iter().find(|(n, _)| *n == name) {
                // Go overlooks some that are written without the P.
                return if python && *before { refused("duplicate capture group name") } else { beyond("a repeated group name") };
            }
            self.at += name.chars().count() + 1;
            self.names.push((name, python));
            self.groups += 1;
        } else if self.eat("?") {
            match self.flags()? {
                (flags, true) => open = format!("(?{flags}:"),
                (flags, false) => {
                    if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
                        return beyond("a repeat after flags");
                    }
                    self.unit = false;
                    return Ok((if flags.is_empty() { String::new() } else { format!("(?{flags})") }, 1));
                }
            }
        } else {
            self.groups += 1;
        }
        let (inner, size) = self.alternatives()?;
        if !self.eat(")") {
            return refused("missing closing )");
        }
        self.unit = true;
        Ok((format!("{open}{inner})"), size))
    }

    /// `i`, `m`, `s`, `U` and what they are turned off by; whether a group follows.
    fn flags(&mut self) -> Translating<(String, bool)> {
        let (mut flags, mut negated, mut any) = (String::new(), false, false);
        loop {
            let Some(c) = self.peek() else { return refused("missing closing )") };
            self.at += 1;
            match c {
                'i' | 'm' | 's' | 'U' => {
                    // A flag given twice is one to Go and a mistake to others.
                    if flags.contains(c) {
                        return beyond("a repeated flag");
                    }
                    flags.push(c);
                    any = true;
                }
                '-' if !negated => {
                    negated = true;
                    flags.push('-');
                    any = false;
                }
                ':' | ')' if !negated || any => return Ok((flags, c == ':')),
                _ => return refused("invalid or unsupported Perl syntax"),
            }
        }
    }
}
