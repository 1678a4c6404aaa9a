//! Resolves scalars as in YAML 1.1.

use super::Fault;
use super::parser::Scalar;
use super::value::Plain;
use crate::base64;

const STRING_TAG: &str = "tag:yaml.org,2002:str";
const BOOLEAN_TAG: &str = "tag:yaml.org,2002:bool";
const INTEGER_TAG: &str = "tag:yaml.org,2002:int";
const FLOAT_TAG: &str = "tag:yaml.org,2002:float";
const NULL_TAG: &str = "tag:yaml.org,2002:null";
const TIMESTAMP_TAG: &str = "tag:yaml.org,2002:timestamp";
const BINARY_TAG: &str = "tag:yaml.org,2002:binary";
pub(super) const MERGE_TAG: &str = "tag:yaml.org,2002:merge";

/// Returns the value of a scalar, by its tag or its text.
pub(super) fn resolve_scalar(scalar: &Scalar) -> Result<Plain, Fault> {
    let text = &scalar.text;
    let as_text = || Plain::Text(text.clone());
    match scalar.tag.as_str() {
        "" if !scalar.implicit => Ok(as_text()),
        "" => Ok(resolve_plain(text)),
        BINARY_TAG => match base64::decode_standard(text.as_bytes()) {
            Ok(bytes) => Ok(Plain::Text(replace_invalid(&bytes))),
            Err(_) => Err(Fault::refused(
                "!!binary value contains invalid base64 data",
            )),
        },
        tag @ (BOOLEAN_TAG | INTEGER_TAG | FLOAT_TAG | NULL_TAG) => resolve_tagged(tag, text),
        TIMESTAMP_TAG if is_timestamp(text) => Ok(as_text()),
        TIMESTAMP_TAG => resolve_tagged(TIMESTAMP_TAG, text),
        // `!!str`, and tags that the library ignores.
        _ => Ok(as_text()),
    }
}

/// Resolves a scalar whose tag states its type.
fn resolve_tagged(tag: &str, text: &str) -> Result<Plain, Fault> {
    let guessed = resolve_plain(text);
    let found = match guessed {
        Plain::Null => NULL_TAG,
        Plain::Bool(_) => BOOLEAN_TAG,
        Plain::Integer(_) | Plain::Unsigned(_) => INTEGER_TAG,
        Plain::Float(_) => FLOAT_TAG,
        Plain::Text(_) => STRING_TAG,
    };
    match guessed {
        Plain::Integer(value) if tag == FLOAT_TAG => Ok(Plain::Float(value as f64)),
        value if found == tag => Ok(value),
        _ => {
            let short = |tag: &str| tag.replace("tag:yaml.org,2002:", "!!");
            Err(Fault::refused(format!(
                "cannot decode {} `{text}` as a {}",
                short(found),
                short(tag)
            )))
        }
    }
}

/// Resolves a plain text. Timestamps stay texts.
fn resolve_plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Plain::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Plain::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Plain::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Plain::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Plain::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes() {
        [b'.', ..] => read_dotted(text),
        [b'+' | b'-' | b'0'..=b'9', ..] => read_number(&text.replace('_', "")),
        _ => None,
    };
    number.unwrap_or_else(|| Plain::Text(text.to_owned()))
}

fn read_number(text: &str) -> Option<Plain> {
    let (negative, signed, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, true, digits),
        None => (
            false,
            text.starts_with('+'),
            text.strip_prefix('+').unwrap_or(text),
        ),
    };
    if let Some(size) = read_unsigned(digits) {
        let size = i128::from(size);
        let value = if negative { -size } else { size };
        match i64::try_from(value) {
            Ok(value) => return Some(Plain::Integer(value)),
            Err(_) if !signed => return u64::try_from(value).ok().map(Plain::Unsigned),
            Err(_) => {}
        }
    }
    read_float(text).or_else(|| read_binary(text))
}

/// Reads digits with Go's prefixes for another base.
fn read_unsigned(digits: &str) -> Option<u64> {
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'o', ..] => (8, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', _, ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let body = body.filter(|body| body.bytes().all(|digit| char::from(digit).is_digit(radix)))?;
    u64::from_str_radix(body, radix).ok()
}

/// Reads the digits after `0b`, which may have a sign there.
fn read_binary(text: &str) -> Option<Plain> {
    let (body, sign) = match (text.strip_prefix("0b"), text.strip_prefix("-0b")) {
        (Some(body), _) => (body, ""),
        (_, Some(body)) => (body, "-"),
        _ => return None,
    };
    i64::from_str_radix(&format!("{sign}{body}"), 2)
        .ok()
        .map(Plain::Integer)
}

/// Reads `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, if a float64 can represent it.
fn read_float(text: &str) -> Option<Plain> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (unsigned.get(..at)?, unsigned.get(at + 1..)),
        None => (unsigned, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    let value = text
        .parse::<f64>()
        .ok()
        .filter(|value| mantissa_fits && exponent_fits && value.is_finite())?;
    Some(Plain::Float(value))
}

/// Reads a text that starts with a dot. Go's `ParseFloat` gets it unchanged and accepts an
/// underscore only between two digits.
fn read_dotted(text: &str) -> Option<Plain> {
    let bytes = text.as_bytes();
    let digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let well_placed = |(index, _): (usize, &u8)| index > 0 && digit(index - 1) && digit(index + 1);
    let fits = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'_')
        .all(well_placed);
    fits.then(|| read_float(&text.replace('_', ""))).flatten()
}

/// Whether Go's `time.Parse` accepts the text by one of the library's four layouts.
fn is_timestamp(text: &str) -> bool {
    let Some(rest) = skip_date(text) else {
        return false;
    };
    if rest.is_empty() {
        return true;
    }
    match rest.strip_prefix(' ') {
        // Where the layout has one blank, the text may have several.
        Some(rest) => skip_clock(rest.trim_start_matches(' ')).is_some_and(str::is_empty),
        None => rest
            .strip_prefix(['T', 't'])
            .and_then(skip_clock)
            .is_some_and(is_zone),
    }
}

/// Returns the rest after a year of four digits, a month and a day.
fn skip_date(text: &str) -> Option<&str> {
    let (year, rest) = text.split_at_checked(4)?;
    let year = year
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| year.parse::<i16>().ok())
        .flatten()?;
    let (month, rest) = read_short(rest.strip_prefix('-')?)?;
    let (day, rest) = read_short(rest.strip_prefix('-')?)?;
    jiff::civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some(rest)
}

/// Reads one or two digits.
fn read_short(text: &str) -> Option<(u32, &str)> {
    let width = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let value = text.get(..width)?.parse().ok()?;
    Some((value, text.get(width..)?))
}

/// Returns the rest after hours, minutes and seconds.
fn skip_clock(text: &str) -> Option<&str> {
    let (hour, rest) = read_short(text)?;
    let (minute, rest) = read_short(rest.strip_prefix(':')?)?;
    let (second, rest) = read_short(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let Some(fraction) = rest
        .strip_prefix(['.', ','])
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    else {
        return Some(rest);
    };
    Some(fraction.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

/// Whether the text is `Z`, or hours and minutes.
fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let Some((hours, minutes)) = text
        .strip_prefix(['+', '-'])
        .and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let number = |text: &str| {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<u8>().ok())
            .flatten()
    };
    number(hours).is_some_and(|hours| hours <= 24)
        && number(minutes).is_some_and(|minutes| minutes <= 60)
}

/// Converts bytes to text. Each byte that is not part of a character becomes U+FFFD, as in Go's
/// JSON.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| out.push('\u{fffd}'));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plain(text: &str) -> Plain {
        resolve_scalar(&Scalar {
            text: text.to_owned(),
            tag: String::new(),
            implicit: true,
        })
        .unwrap()
    }

    #[test]
    fn plain_scalars_resolve_as_yaml_1_1() {
        let text = |text: &str| Plain::Text(text.to_owned());
        for (written, meant) in [
            ("", Plain::Null),
            ("~", Plain::Null),
            ("NULL", Plain::Null),
            ("nULL", text("nULL")),
            ("yes", Plain::Bool(true)),
            ("Off", Plain::Bool(false)),
            ("y", Plain::Bool(true)),
            ("yEs", text("yEs")),
            ("-5", Plain::Integer(-5)),
            ("1_000", Plain::Integer(1000)),
            ("0777", Plain::Integer(511)),
            ("0899", Plain::Float(899.0)),
            ("0o17", Plain::Integer(15)),
            ("0x1F", Plain::Integer(31)),
            ("0xg", text("0xg")),
            ("0b11", Plain::Integer(3)),
            ("0b-11", Plain::Integer(-3)),
            ("-0x8000000000000000", Plain::Integer(i64::MIN)),
            ("18446744073709551615", Plain::Unsigned(u64::MAX)),
            (
                "18446744073709551616",
                Plain::Float(18_446_744_073_709_552_000.0),
            ),
            ("1e3", Plain::Float(1000.0)),
            ("1e999", text("1e999")),
            ("1.", Plain::Float(1.0)),
            (".5", Plain::Float(0.5)),
            (".5_5", Plain::Float(0.55)),
            (".5__5", text(".5__5")),
            ("._5", text("._5")),
            ("1.2.3", text("1.2.3")),
            ("2001-01-01", text("2001-01-01")),
            ("1:20", text("1:20")),
            (".inf", Plain::Float(f64::INFINITY)),
            ("<<", text("<<")),
            ("-", text("-")),
            ("+", text("+")),
            ("https://x", text("https://x")),
        ] {
            assert_eq!(plain(written), meant, "{written}");
        }
    }
}
