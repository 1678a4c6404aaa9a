//! Splits a text into the tokens of CEL as cel-go's grammar does: the longest match wins.

use crate::Minor;

/// A token: its kind, and the offset of its first code point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Tok,
    pub(crate) at: u32,
}

/// The kinds of tokens. Texts are as written, with their quotes and prefixes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tok {
    Ident(String),
    /// An identifier in backticks, without them.
    Escaped(String),
    Int(String),
    Uint(String),
    Float(String),
    Str(String),
    Bytes(String),
    Punct(&'static str),
    End,
}

/// The place where no token matches, with the error.
#[derive(Debug)]
pub(crate) struct LexError {
    pub(crate) at: u32,
    pub(crate) message: String,
}

/// The punctuation, longer ones first. `in`, `true`, `false` and `null` are here because they are
/// never identifiers.
const PUNCTUATION_MARKS: [&str; 23] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/",
];

/// Splits the whole text into tokens.
pub(crate) fn read_tokens(text: &[char], minor: Minor) -> Result<Vec<Token>, LexError> {
    let mut tokens = Vec::new();
    let mut i = 0;
    while let Some(&c) = text.get(i) {
        if matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}') {
            i += 1;
            continue;
        }
        if c == '/' && text.get(i + 1) == Some(&'/') {
            while text.get(i).is_some_and(|&c| c != '\n') {
                i += 1;
            }
            continue;
        }
        // The grammar before 1.33 has no backticks.
        if c == '`' && minor < Minor::V1_33 {
            return Err(unknown_character(i, c));
        }
        let (kind, end) = read_token(text, i)?;
        tokens.push(Token {
            kind,
            at: offset_of(i),
        });
        i = end;
    }
    tokens.push(Token {
        kind: Tok::End,
        at: offset_of(text.len()),
    });
    Ok(tokens)
}

fn read_token(text: &[char], i: usize) -> Result<(Tok, usize), LexError> {
    if let Some(string) = read_string(text, i) {
        return Ok(string);
    }
    let c = text.get(i).copied().unwrap_or_default();
    if c.is_ascii_alphabetic() || c == '_' {
        let end = run_end(text, i, |c| c.is_ascii_alphanumeric() || c == '_');
        let word = copy_text(text, i, end);
        let kind = ["in", "true", "false", "null"]
            .into_iter()
            .find(|w| *w == word)
            .map_or(Tok::Ident(word), Tok::Punct);
        return Ok((kind, end));
    }
    if c.is_ascii_digit() || (c == '.' && text.get(i + 1).is_some_and(char::is_ascii_digit)) {
        return Ok(read_number(text, i));
    }
    if c == '`' {
        let end = run_end(text, i + 1, |c| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ')
        });
        if end > i + 1 && text.get(end) == Some(&'`') {
            return Ok((Tok::Escaped(copy_text(text, i + 1, end)), end + 1));
        }
    }
    let two: String = text.iter().skip(i).take(2).collect();
    if c == '%' {
        return Ok((Tok::Punct("%"), i + 1));
    }
    match PUNCTUATION_MARKS.into_iter().find(|p| two.starts_with(p)) {
        Some(punct) => Ok((Tok::Punct(punct), i + punct.len())),
        None => Err(unknown_character(i, c)),
    }
}

fn unknown_character(i: usize, c: char) -> LexError {
    LexError {
        at: offset_of(i),
        message: format!("Syntax error: token recognition error at: '{c}'"),
    }
}

fn read_number(text: &[char], i: usize) -> (Tok, usize) {
    if text.get(i) == Some(&'0') && text.get(i + 1) == Some(&'x') {
        let end = run_end(text, i + 2, |c| c.is_ascii_hexdigit());
        if end > i + 2 {
            return read_unsigned(text, i, end);
        }
    }
    let whole = run_end(text, i, |c| c.is_ascii_digit());
    let mut end = whole;
    if text.get(end) == Some(&'.') {
        let fraction = run_end(text, end + 1, |c| c.is_ascii_digit());
        if fraction > end + 1 {
            end = fraction;
        }
    }
    if matches!(text.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some('+' | '-')));
        let digits = run_end(text, end + 1 + sign, |c| c.is_ascii_digit());
        if digits > end + 1 + sign {
            end = digits;
        }
    }
    if end == whole {
        read_unsigned(text, i, end)
    } else {
        (Tok::Float(copy_text(text, i, end)), end)
    }
}

fn read_unsigned(text: &[char], i: usize, end: usize) -> (Tok, usize) {
    let digits = copy_text(text, i, end);
    if matches!(text.get(end), Some('u' | 'U')) {
        (Tok::Uint(digits), end + 1)
    } else {
        (Tok::Int(digits), end)
    }
}

/// Reads a string or bytes literal that starts at `i`, if there is one.
fn read_string(text: &[char], i: usize) -> Option<(Tok, usize)> {
    let mut at = i;
    let bytes = matches!(text.get(at), Some('b' | 'B'));
    at += usize::from(bytes);
    let raw = matches!(text.get(at), Some('r' | 'R'));
    at += usize::from(raw);
    let quote = *text.get(at).filter(|c| matches!(c, '"' | '\''))?;
    let triple = text.get(at + 1) == Some(&quote) && text.get(at + 2) == Some(&quote);
    let end = triple
        .then(|| close_triple(text, at + 3, quote, raw))
        .flatten()
        .or_else(|| find_close(text, at + 1, quote, raw))?;
    Some(if bytes {
        (Tok::Bytes(copy_text(text, i + 1, end)), end)
    } else {
        (Tok::Str(copy_text(text, i, end)), end)
    })
}

fn find_close(text: &[char], mut at: usize, quote: char, raw: bool) -> Option<usize> {
    loop {
        match *text.get(at)? {
            c if c == quote => return Some(at + 1),
            '\n' | '\r' => return None,
            '\\' if !raw => at = escape_end(text, at)?,
            _ => at += 1,
        }
    }
}

fn close_triple(text: &[char], mut at: usize, quote: char, raw: bool) -> Option<usize> {
    loop {
        match *text.get(at)? {
            c if c == quote
                && text.get(at + 1) == Some(&quote)
                && text.get(at + 2) == Some(&quote) =>
            {
                return Some(at + 3);
            }
            '\\' if !raw => at = escape_end(text, at)?,
            _ => at += 1,
        }
    }
}

/// Returns the end of the escape sequence that starts at `at`.
fn escape_end(text: &[char], at: usize) -> Option<usize> {
    let digits = |n: usize, ok: fn(&char) -> bool| {
        let all = (0..n).all(|k| text.get(at + 2 + k).is_some_and(ok));
        all.then_some(at + 2 + n)
    };
    match *text.get(at + 1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(at + 2),
        'x' | 'X' => digits(2, char::is_ascii_hexdigit),
        'u' => digits(4, char::is_ascii_hexdigit),
        'U' => digits(8, char::is_ascii_hexdigit),
        '0'..='3' => digits(2, |c| ('0'..='7').contains(c)),
        _ => None,
    }
}

fn run_end(text: &[char], from: usize, ok: impl Fn(char) -> bool) -> usize {
    from + text.iter().skip(from).take_while(|&&c| ok(c)).count()
}

fn copy_text(text: &[char], from: usize, to: usize) -> String {
    text.get(from..to).unwrap_or_default().iter().collect()
}

fn offset_of(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}
