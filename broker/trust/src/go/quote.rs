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

fn push(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
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
