//! Computes the values of literals: quoted strings and numbers.

use crate::Minor;
use crate::value::Val;

/// The kind of a quoted literal. Before 1.33 a surrogate becomes the replacement character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    LooseText,
    Bytes,
}

/// The fault of a literal that old releases treat as a text that is not UTF-8. It is undetermined
/// here.
pub(crate) const BROKEN_TEXT: &str = "a text that is no UTF-8";

/// Returns the value of a string literal, given with its quotes.
pub(crate) fn string_value(written: &str, minor: Minor) -> Result<Val, &'static str> {
    let bytes = unquote_text(
        written,
        if minor < Minor::V1_33 {
            Kind::LooseText
        } else {
            Kind::Text
        },
    )?;
    String::from_utf8(bytes)
        .map(Val::from)
        .map_err(|_| "unable to unescape string")
}

/// Returns the value of a bytes literal, given without its `b`.
pub(crate) fn bytes_value(written: &str) -> Result<Val, &'static str> {
    Ok(Val::Bytes(unquote_text(written, Kind::Bytes)?.into()))
}

/// Reads an integer, `0x` or decimal; `negative` is a minus directly before it.
pub(crate) fn int_value(digits: &str, negative: bool) -> Result<Val, &'static str> {
    let (digits, radix) = split_radix(digits);
    let signed = if negative {
        format!("-{digits}")
    } else {
        digits.to_owned()
    };
    i64::from_str_radix(&signed, radix)
        .map(Val::Int)
        .map_err(|_| "invalid int literal")
}

/// Reads an unsigned integer, given without its `u`.
pub(crate) fn uint_value(digits: &str) -> Result<Val, &'static str> {
    let (digits, radix) = split_radix(digits);
    u64::from_str_radix(digits, radix)
        .map(Val::Uint)
        .map_err(|_| "invalid uint literal")
}

/// Reads a floating point number. Go refuses numbers beyond its range.
pub(crate) fn float_value(digits: &str, negative: bool) -> Result<Val, &'static str> {
    let value: f64 = digits.parse().map_err(|_| "invalid double literal")?;
    if value.is_infinite() {
        return Err("invalid double literal");
    }
    Ok(Val::Double(if negative { -value } else { value }))
}

fn split_radix(digits: &str) -> (&str, u32) {
    digits
        .strip_prefix("0x")
        .map_or((digits, 10), |hex| (hex, 16))
}

fn unquote_text(written: &str, kind: Kind) -> Result<Vec<u8>, &'static str> {
    let normal = written.replace("\r\n", "\n").replace('\r', "\n");
    let raw = normal.starts_with(['r', 'R']);
    let quoted = if raw {
        normal.get(1..).unwrap_or_default()
    } else {
        &normal
    };
    let triple = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let edge = if triple { 3 } else { 1 };
    let inner = quoted
        .get(edge..quoted.len().saturating_sub(edge))
        .ok_or("unable to unescape string")?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            unescape_next(&mut rest, kind, &mut out)?;
        } else {
            push_char(&mut out, c);
        }
    }
    Ok(out)
}

fn unescape_next(
    rest: &mut std::str::Chars<'_>,
    kind: Kind,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const BAD_ESCAPE: &str = "unable to unescape string";
    let c = rest.next().ok_or(BAD_ESCAPE)?;
    let plain = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => u8::try_from(c).map_err(|_| BAD_ESCAPE)?,
        'x' | 'X' => return read_code_point(rest, 2, 16, kind, out),
        'u' | 'U' if kind == Kind::Bytes => return Err(BAD_ESCAPE),
        'u' => return read_code_point(rest, 4, 16, kind, out),
        'U' => return read_code_point(rest, 8, 16, kind, out),
        '0'..='3' => {
            let tail = format!("{c}{}", rest.as_str());
            let mut octal = tail.chars();
            read_code_point(&mut octal, 3, 8, kind, out)?;
            *rest = rest.as_str().get(2..).unwrap_or_default().chars();
            return Ok(());
        }
        _ => return Err(BAD_ESCAPE),
    };
    out.push(plain);
    Ok(())
}

fn read_code_point(
    rest: &mut std::str::Chars<'_>,
    digits: usize,
    radix: u32,
    kind: Kind,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let mut value: u32 = 0;
    for _ in 0..digits {
        let digit = rest
            .next()
            .and_then(|c| c.to_digit(radix))
            .ok_or("unable to unescape string")?;
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    match kind {
        Kind::Bytes => out.push(u8::try_from(value).map_err(|_| "unable to unescape string")?),
        Kind::Text => push_char(
            out,
            char::from_u32(value).ok_or("invalid unicode code point")?,
        ),
        // Go stores it in 32 bits with a sign, and keeps the lowest byte of a negative one.
        Kind::LooseText if value > u32::MAX / 2 => match u8::try_from(value & 0xff) {
            Ok(byte) if byte.is_ascii() => out.push(byte),
            _ => return Err(BROKEN_TEXT),
        },
        Kind::LooseText if value > u32::from(char::MAX) => return Err("unable to unescape string"),
        Kind::LooseText => push_char(
            out,
            char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER),
        ),
    }
    Ok(())
}

fn push_char(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}
