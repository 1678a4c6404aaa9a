//! Reads, converts and prints numbers as Go does.

use crate::value::Val;

/// Converts a double to an int, cut towards zero. As in cel-go, the extreme values are refused.
pub(crate) fn double_to_int(d: f64) -> Option<i64> {
    (d > i64::MIN as f64 && d < i64::MAX as f64).then_some(d as i64)
}

/// Converts a double to a uint, cut towards zero.
pub(crate) fn double_to_uint(d: f64) -> Option<u64> {
    (d >= 0.0 && d < u64::MAX as f64).then_some(d as u64)
}

pub(crate) fn lossless_int(d: f64) -> Option<i64> {
    double_to_int(d).filter(|n| *n as f64 == d)
}

pub(crate) fn lossless_uint(d: f64) -> Option<u64> {
    double_to_uint(d).filter(|n| *n as f64 == d)
}

/// Reads a number as Go's `strconv.ParseFloat` does. `Err` if the kind of text is not read here
/// (hexadecimal).
pub(crate) fn parse_double(text: &str) -> Result<Option<f64>, &'static str> {
    let plain = text
        .strip_prefix(['+', '-'])
        .unwrap_or(text)
        .to_ascii_lowercase();
    match plain.as_str() {
        "inf" | "infinity" => {
            return Ok(Some(if text.starts_with('-') {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }));
        }
        "nan" if plain.len() == text.len() => return Ok(Some(f64::NAN)),
        _ => {}
    }
    if plain.starts_with("0x") {
        return Err("a hexadecimal floating point number");
    }
    let numeric = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"._e+-".contains(&byte));
    if !numeric || !underscores_fit(&plain) {
        return Ok(None);
    }
    Ok(text
        .replace('_', "")
        .parse::<f64>()
        .ok()
        .filter(|d| d.is_finite()))
}

/// Whether each underscore stands between two digits, where Go ignores it.
fn underscores_fit(number: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = number.as_bytes();
    let inside = |at: usize| {
        at.checked_sub(1)
            .is_some_and(|before| digit(bytes.get(before)))
            && digit(bytes.get(at + 1))
    };
    bytes
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte != b'_' || inside(at))
}

/// Reads a bool as Go's `strconv.ParseBool` does.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Prints as Go's `%g`, which `string(double)` uses.
pub(crate) fn go_verb_g(d: f64) -> String {
    shortest(d, 6)
}

/// Prints as Go's `%v`.
pub(crate) fn go_verb_v(d: f64) -> String {
    shortest(d, 21)
}

/// Prints as Go's `FormatFloat(d, 'f', -1, 64)`.
pub(crate) fn go_fixed(d: f64) -> String {
    special(d).unwrap_or_else(|| format!("{d}"))
}

fn special(d: f64) -> Option<String> {
    match d {
        _ if d.is_nan() => Some("NaN".to_owned()),
        f64::INFINITY => Some("+Inf".to_owned()),
        f64::NEG_INFINITY => Some("-Inf".to_owned()),
        _ => None,
    }
}

/// Prints the shortest digits that read back as the same number, with an exponent below -4 and from
/// `limit` on.
fn shortest(d: f64, limit: i32) -> String {
    if let Some(special) = special(d) {
        return special;
    }
    let written = format!("{d:e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{d}")
}

/// Why an operation on two whole numbers has no result.
enum NoNumber {
    Zero(&'static str),
    Overflow,
}

impl NoNumber {
    fn of(self, overflow: &str) -> Val {
        match self {
            Self::Zero(what) => Val::error(what),
            Self::Overflow => Val::error(overflow),
        }
    }
}

/// Applies an operator to whole numbers. It is a macro because the two types share method names but
/// no trait.
macro_rules! whole {
    ($operator:expr, $a:expr, $b:expr) => {
        match ($operator, $b) {
            ('/', 0) => Err(NoNumber::Zero("division by zero")),
            ('%', 0) => Err(NoNumber::Zero("modulus by zero")),
            ('+', b) => $a.checked_add(b).ok_or(NoNumber::Overflow),
            ('-', b) => $a.checked_sub(b).ok_or(NoNumber::Overflow),
            ('*', b) => $a.checked_mul(b).ok_or(NoNumber::Overflow),
            ('/', b) => $a.checked_div(b).ok_or(NoNumber::Overflow),
            (_, b) => $a.checked_rem(b).ok_or(NoNumber::Overflow),
        }
    };
}

/// Computes `+`, `-`, `*`, `/`, `%` on numbers of one type. `None` if the two are not that.
pub(crate) fn arithmetic(operator: char, a: &Val, b: &Val) -> Option<Val> {
    let made = match (a, b) {
        (Val::Int(a), Val::Int(b)) => {
            whole!(operator, *a, *b).map_or_else(|error| error.of("integer overflow"), Val::Int)
        }
        (Val::Uint(a), Val::Uint(b)) => whole!(operator, *a, *b)
            .map_or_else(|error| error.of("unsigned integer overflow"), Val::Uint),
        (Val::Double(a), Val::Double(b)) => Val::Double(match operator {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            '/' => a / b,
            _ => return None,
        }),
        _ => return None,
    };
    Some(made)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_read_as_go_reads_them() {
        let cases = [
            ("1_000", Some(1000.0)),
            ("+.5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e1_0", Some(1e10)),
            ("-Inf", Some(f64::NEG_INFINITY)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_double(text), Ok(expected), "{text}");
        }
        for text in [
            "", "_1", "1_", "1__0", "1_.5", "1e_5", "1e400", "-nan", "+NaN", "e5", ".", "infin",
            " 1", "1f",
        ] {
            assert_eq!(parse_double(text), Ok(None), "{text}");
        }
        assert!(parse_double("NaN").unwrap().unwrap().is_nan());
        assert!(parse_double("0x1p-2").is_err());
    }

    #[test]
    fn doubles_print_as_go_prints_them() {
        let cases = [
            (
                1.234_567_890_123e12,
                "1.234567890123e+12",
                "1.234567890123e+12",
            ),
            (100_000.0, "100000", "100000"),
            (1_000_000.0, "1e+06", "1e+06"),
            (1_234_567.0, "1.234567e+06", "1.234567e+06"),
            (0.0001, "0.0001", "0.0001"),
            (0.000_01, "1e-05", "1e-05"),
            (1.5, "1.5", "1.5"),
            (-0.0, "-0", "-0"),
            (f64::INFINITY, "+Inf", "+Inf"),
        ];
        for (d, g, v) in cases {
            assert_eq!(go_verb_g(d), g);
            if d.abs() < 1e6 || d.is_infinite() {
                assert_eq!(go_verb_v(d), v);
            }
        }
    }
}
