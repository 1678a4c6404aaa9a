//! Go's `strconv.Quote` and `%q`.

use std::fmt::Write;

/// A text in double quotes, as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        push(&mut out, character);
    }
    out.push('"');
    out
}

/// A list of texts, as `%q` prints a `[]string`.
pub(crate) fn quote_list<S: AsRef<str>>(texts: &[S]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// The escapes that have a letter, or are the character itself.
pub(crate) fn short_escape(character: char) -> Option<&'static str> {
    Some(match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

fn push(out: &mut String, character: char) {
    if let Some(escape) = short_escape(character) {
        return out.push_str(escape);
    }
    match character {
        printable if is_print(printable) => out.push(printable),
        low if (low as u32) < 0x80 => {
            let _ = write!(out, "\\x{:02x}", low as u32);
        }
        short if (short as u32) < 0x1_0000 => {
            let _ = write!(out, "\\u{:04x}", short as u32);
        }
        long => {
            let _ = write!(out, "\\U{:08x}", long as u32);
        }
    }
}

/// `strconv.IsPrint`, as far as control, format, separator and unassigned characters of the common blocks go.
fn is_print(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\u{ad}' | '\u{7f}'..='\u{a0}' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{feff}' => false,
        '\u{2000}'..='\u{200a}' | '\u{3000}' | '\u{1680}' => false,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_go_does() {
        assert_eq!(quote("a\"b\\c\n\u{1}é\u{feff}"), "\"a\\\"b\\\\c\\n\\x01é\\ufeff\"");
        assert_eq!(quote_list(&["a", "b"]), "[\"a\" \"b\"]");
        assert_eq!(quote_list::<&str>(&[]), "[]");
    }
}
