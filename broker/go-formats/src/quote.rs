//! Quotes texts as Go's `strconv.Quote` and `%q` do.

use std::fmt::Write;
use std::sync::LazyLock;

/// Returns a text in double quotes, as `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        push(&mut out, character);
    }
    out.push('"');
    out
}

/// Returns bytes in double quotes, as `%q` prints a string of them: what is not UTF-8 is escaped.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push(&mut out, character);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// Returns a list of texts, as `%q` prints a `[]string`.
pub fn quote_list<S: AsRef<str>>(texts: &[S]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Returns a text as a JSON string, as `json.Marshal` prints it: safe to stand in HTML.
pub fn quote_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' | '\u{8}' | '\u{c}' | '\n' | '\r' | '\t' => {
                out.push_str(short_escape(character).unwrap_or_default());
            }
            '<' | '>' | '&' | '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}

/// Returns the escape of a character that has a short one.
pub fn short_escape(character: char) -> Option<&'static str> {
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

/// Code points from U+007F on that `strconv.IsPrint` refuses, as ranges in hexadecimal. They are
/// the same in every release of Go since 1.21, which use Unicode 15.0.
static UNPRINTABLE: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let number = |text: &str| u32::from_str_radix(text, 16).unwrap_or_default();
    let ranges = include_str!("quote/unprintable.txt")
        .split_whitespace()
        .map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges
        .map(|(first, last)| (number(first), number(last)))
        .collect()
});

/// Matches Go's `strconv.IsPrint`.
fn is_print(character: char) -> bool {
    let code = u32::from(character);
    if code < 0x7f {
        return code >= 0x20;
    }
    let after = UNPRINTABLE.partition_point(|(first, _)| *first <= code);
    after
        .checked_sub(1)
        .and_then(|before| UNPRINTABLE.get(before))
        .is_none_or(|(_, last)| code > *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_json_as_go_writes_it() {
        assert_eq!(
            quote_json("<&>\"\\\n\u{1}\u{8}\u{7f}\u{a0}\u{2028}é"),
            "\"\\u003c\\u0026\\u003e\\\"\\\\\\n\\u0001\\b\u{7f}\u{a0}\\u2028é\""
        );
    }

    #[test]
    fn texts_are_quoted_as_go_does() {
        assert_eq!(
            quote("a\"b\\c\n\u{1}é\u{feff}"),
            "\"a\\\"b\\\\c\\n\\x01é\\ufeff\""
        );
        // Private use, noncharacters, unassigned, format and space characters; their neighbours are
        // printed.
        let odd = "\u{e000}\u{f8ff}\u{f900}\u{fdcf}\u{fdd0}\u{fdf0}\u{ffff}\u{1fffe}\u{10ffff}\u{378}\u{377}\u{200b}\u{a0}\u{ad}\u{301}\u{fffd}";
        let quoted = "\"\\ue000\\uf8ff\u{f900}\u{fdcf}\\ufdd0\u{fdf0}\\uffff\\U0001fffe\\U0010ffff\\u0378\u{377}\\u200b\\u00a0\\u00ad\u{301}\u{fffd}\"";
        assert_eq!(quote(odd), quoted);
        assert_eq!(UNPRINTABLE.len(), 711);
        assert_eq!(quote_list(&["a", "b"]), "[\"a\" \"b\"]");
        assert_eq!(quote_list::<&str>(&[]), "[]");
    }
}
