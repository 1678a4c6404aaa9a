//! Escapes text from other systems, such as a server's error, a user name or an annotation. The
//! result is safe to show in a status, an Event, a log or a terminal.
//!
//! Such text can move a terminal's cursor, add lines that look like Keyferry's own, or reverse the
//! order in which a line is read (Unicode TR 36 and UAX 9, CVE-2021-42574). A misleading character
//! is written as its code point, and nothing is removed but credentials.
//!
//! ```
//! use keyferry_api::foreign_text::ForeignText;
//!
//! assert_eq!(ForeignText::new("a\nb\u{202e}c").to_string(), r"a\u{a}b\u{202e}c");
//! ```

mod credentials;

use std::fmt::{self, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::credentials::{hide_credentials, hide_credentials_in};

/// The most characters of a [`ForeignText`].
const MAX_CHARACTERS: usize = 2000;

/// Text that another system wrote: a message of a target, an error of a server, a user name.
///
/// The only way out is its `Display`, which is one line of bounded length. So such a text cannot
/// print a line of its own, such as one that begins with `fix:`, wherever a message contains it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct ForeignText(String);

impl ForeignText {
    /// Takes the text's first 2000 characters.
    pub fn new(text: &str) -> Self {
        Self(one_line(text, MAX_CHARACTERS))
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for ForeignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ForeignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Compares the text as it is shown.
impl PartialEq<str> for ForeignText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl From<&str> for ForeignText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Writes the text as it is shown.
impl Serialize for ForeignText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ForeignText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

/// The text on one line: its first `most` characters, and `...` if there are more.
pub fn one_line(text: &str, most: usize) -> String {
    show_characters(text, most, is_hidden)
}

/// As [`one_line`], but keeps line feeds: for text with several lines that is shown as a block.
pub fn plain_lines(text: &str, most: usize) -> String {
    show_characters(text, most, |character| {
        character != '\n' && is_hidden(character)
    })
}

/// Writes every misleading character of a JSON text as a JSON escape. Outside its strings a JSON
/// text contains none but line feeds.
pub fn escape_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Writes every misleading character of a YAML text but line feeds as a YAML escape. Each must be in
/// a double-quoted text: see [`misleads`].
pub fn escape_yaml(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && is_hidden(character) {
            let _ = write!(shown, "\\U{:08x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a text has a character that acts on the text around it, ends a line, or cannot be seen.
pub fn misleads(text: &str) -> bool {
    text.chars().any(is_hidden)
}

/// The text's first `most` characters, with `?` for each that is not visible ASCII: for an
/// unverified name that has no other characters if it is valid.
pub fn visible_ascii(text: &str, most: usize) -> String {
    text.chars()
        .take(most)
        .map(|character| {
            if character.is_ascii_graphic() {
                character
            } else {
                '?'
            }
        })
        .collect()
}

fn show_characters(text: &str, most: usize, is_hidden: impl Fn(char) -> bool) -> String {
    let text = hide_credentials(text);
    let mut shown = String::with_capacity(text.len().min(most));
    let mut characters = text.chars();
    for character in characters.by_ref().take(most) {
        if is_hidden(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown
}

/// Whether a character acts on the text around it, ends a line, or cannot be seen.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, combining grapheme joiner, Arabic letter mark, Hangul and Khmer fillers,
            // Mongolian selectors.
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            // Zero width, direction marks; line and paragraph separators; embeddings, overrides,
            // isolates, invisible operators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            // Variation selectors, musical formatting, tags.
            | '\u{fe00}'..='\u{fe0f}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ForeignText, is_hidden, one_line, plain_lines, visible_ascii};

    /// Whether a character could mislead a terminal or a reader, listed independently of the code.
    fn misleads(character: char) -> bool {
        let code = u32::from(character);
        let bidi = [0x61c, 0x200e, 0x200f].contains(&code)
            || (0x202a..=0x202e).contains(&code)
            || (0x2066..=0x2069).contains(&code);
        let zero_width = [0x200b, 0x200c, 0x200d, 0x2060, 0xfeff].contains(&code);
        let breaks = [0xa, 0xb, 0xc, 0xd, 0x85, 0x2028, 0x2029].contains(&code);
        code < 0x20 || (0x7f..0xa0).contains(&code) || bidi || zero_width || breaks
    }

    #[test]
    fn every_character_that_misleads_is_written_out() {
        for character in '\0'..=char::MAX {
            let shown = one_line(&character.to_string(), 10);
            assert!(
                !shown.chars().any(misleads),
                "U+{:04X}",
                u32::from(character)
            );
            assert!(shown.chars().all(|shown| !is_hidden(shown)));
            if character.is_alphanumeric() && !is_hidden(character)
                || character.is_ascii_graphic()
                || character == ' '
            {
                assert_eq!(
                    shown,
                    character.to_string(),
                    "what can be read stays as it is"
                );
            }
        }
    }

    #[test]
    fn a_foreign_text_is_one_bounded_line_however_it_is_read() {
        let hostile = "x\nfix: a\r\nhint: b\u{2028}c\u{202e}d\u{1b}[2J";
        let shown = r"x\u{a}fix: a\u{d}\u{a}hint: b\u{2028}c\u{202e}d\u{1b}[2J";
        let read: Option<ForeignText> =
            serde_json::from_value(serde_json::Value::from(hostile)).ok();
        assert_eq!(read, Some(ForeignText::new(hostile)));
        assert_eq!(ForeignText::new(hostile).to_string(), shown);
        assert!(!format!("{:?}", ForeignText::new(hostile)).contains('\n'));
        let long = ForeignText::new(&"a".repeat(3000)).to_string();
        assert!(long.len() == 2003 && long.ends_with("..."), "{long}");
    }

    #[test]
    fn only_visible_ascii_stays_in_a_name() {
        assert_eq!(visible_ascii("a b\n\u{1b}\u{e9}c", 6), "a?b???");
    }

    #[test]
    fn lines_stay_only_where_they_are_meant_to() {
        assert_eq!(
            plain_lines("a\nb\r\u{1b}[31m", 100),
            "a\nb\\u{d}\\u{1b}[31m"
        );
        assert_eq!(
            one_line("error: x\nall is well", 100),
            "error: x\\u{a}all is well"
        );
        assert_eq!(
            (one_line("abc", 3), one_line("abcd", 3), one_line("", 0)),
            ("abc".to_owned(), "abc...".to_owned(), String::new())
        );
    }

    /// Text with many of the characters in question.
    fn text() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(
            "\u{202e}\u{2066}\u{2069}\u{200b}\u{feff}\n\r\t\u{1b}\u{85}\u{2028}\u{0}\u{e0041}"
                .chars()
                .collect::<Vec<_>>(),
        );
        prop::collection::vec(prop_oneof![any::<char>(), odd], 0..200)
            .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_text_misleads(text in text(), most in 0_usize..250) {
            let (line, block) = (one_line(&text, most), plain_lines(&text, most));
            prop_assert!(!line.chars().any(misleads));
            prop_assert!(!block.chars().any(|character| character != '\n' && misleads(character)));
            prop_assert!(line.chars().count() <= most * 10 + 3, "it stays bounded");
            prop_assert_eq!(one_line(&line, usize::MAX), line.clone(), "shown twice it is the same");
            prop_assert_eq!(block.matches('\n').count(), text.chars().take(most).filter(|character| *character == '\n').count());
        }
    }
}
