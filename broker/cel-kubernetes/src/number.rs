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

/// Reads a number as Go's `strconv.ParseFloat` does.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let plain = text
        .strip_prefix(['+', '-'])
        .unwrap_or(text)
        .to_ascii_lowercase();
    match plain.as_str() {
        "inf" | "infinity" => {
            return Some(if text.starts_with('-') {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            });
        }
        "nan" if plain.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    if let Some(digits) = plain.strip_prefix("0x") {
        return parse_hexadecimal(digits).map(|d| if text.starts_with('-') { -d } else { d });
    }
    let numeric = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"._e+-".contains(&byte));
    if !numeric || !underscores_fit(&plain) {
        return None;
    }
    text.replace('_', "")
        .parse::<f64>()
        .ok()
        .filter(|d| d.is_finite())
}

/// Reads what follows `0x`, in lower case: hexadecimal digits and a binary exponent.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let apart = |at: usize| {
        // An underscore may follow the prefix.
        at.checked_sub(1)
            .is_none_or(|before| digit(bytes.get(before)))
            && digit(bytes.get(at + 1))
    };
    if !(0..bytes.len()).all(|at| bytes.get(at) != Some(&b'_') || apart(at)) {
        return None;
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat().replace('_', "");
    let unsigned = exponent
        .strip_prefix(['+', '-'])
        .unwrap_or(exponent)
        .replace('_', "");
    let decimal = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || !decimal {
        return None;
    }
    // A text is too short for an exponent beyond this to matter less.
    let size: i64 = unsigned.parse().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    let mut power = if exponent.starts_with('-') {
        -size
    } else {
        size
    };
    power -= 4 * i64::try_from(fraction.replace('_', "").len()).ok()?;
    let (mut value, mut lost) = (0_u64, false);
    for digit in digits.chars().filter_map(|c| c.to_digit(16)) {
        if value >> 60 == 0 {
            value = value << 4 | u64::from(digit);
        } else {
            lost |= digit != 0;
            power += 4;
        }
    }
    scale_by_power(value, lost, power)
}

/// Computes `value * 2^power`, rounded to the nearest double, to even in the middle; `lost` says
/// that `value` is cut. `None` if it overflows.
fn scale_by_power(value: u64, lost: bool, power: i64) -> Option<f64> {
    if value == 0 {
        return Some(0.0);
    }
    let shift = value.leading_zeros();
    let (value, power) = (value << shift, power - i64::from(shift));
    // The top bit stands for 2^(power + 63). A normal double keeps 53 bits, a subnormal one fewer.
    let kept = (power + 63 + 1075).clamp(0, 53);
    if power + 63 > 1023 {
        return None;
    }
    let cut = u32::try_from(64 - kept).ok()?;
    let (whole, rest) = match cut {
        64 => (0, value),
        _ => (value >> cut, value << (64 - cut)),
    };
    let half = 1_u64 << 63;
    let up = rest > half || (rest == half && (lost || whole & 1 == 1));
    // Below half of the smallest double, everything is cut.
    let up = up && power + 63 >= -1075;
    let rounded = (whole + u64::from(up)) as f64;
    let scale = power + i64::from(cut);
    // Two steps, because 2^-1074 divided further would not be exact in one.
    let half_scale = scale / 2;
    let power_of_two = |n: i64| i32::try_from(n).ok().map(|n| 2_f64.powi(n));
    let result = if rounded == 0.0 {
        0.0
    } else {
        rounded * power_of_two(half_scale)? * power_of_two(scale - half_scale)?
    };
    Some(result).filter(|d| d.is_finite())
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

/// Prints as Go's `%g` and `%v`: the shortest digits that read back as the same number, with an
/// exponent below -4 and from 6 on.
pub(crate) fn go_verb_g(d: f64) -> String {
    if let Some(special) = special_text(d) {
        return special;
    }
    let written = format!("{d:e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{d}")
}

/// Prints as Go's `FormatFloat(d, 'f', -1, 64)`.
pub(crate) fn go_fixed(d: f64) -> String {
    special_text(d).unwrap_or_else(|| format!("{d}"))
}

fn special_text(d: f64) -> Option<String> {
    match d {
        _ if d.is_nan() => Some("NaN".to_owned()),
        f64::INFINITY => Some("+Inf".to_owned()),
        f64::NEG_INFINITY => Some("-Inf".to_owned()),
        _ => None,
    }
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
pub(crate) fn eval_arithmetic(operator: char, a: &Val, b: &Val) -> Option<Val> {
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
            assert_eq!(parse_double(text), expected, "{text}");
        }
        for text in [
            "", "_1", "1_", "1__0", "1_.5", "1e_5", "1e400", "-nan", "+NaN", "e5", ".", "infin",
            " 1", "1f",
        ] {
            assert_eq!(parse_double(text), None, "{text}");
        }
        assert!(parse_double("NaN").unwrap().is_nan());
    }

    #[test]
    fn hexadecimal_doubles_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0x1p-2", 0.25),
            ("-0X1.8P1", -3.0),
            ("0x_1_0p0", 16.0),
            ("0x.8p0", 0.5),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.8p-1075", f64::from_bits(1)),
            ("0x1p-1075", 0.0),
            ("0x0.8p-1075", 0.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000001p0", 1.0 + f64::EPSILON),
            ("0x1.00000000000018p0", 1.0 + 2.0 * f64::EPSILON),
            ("0x0p99999999999999999999", 0.0),
        ] {
            assert_eq!(parse_double(text), Some(expected), "{text}");
        }
        for text in [
            "0x1",
            "0x",
            "0xp1",
            "0x1p",
            "0x1p+",
            "0x1_p1",
            "0x1p1_",
            "0x1p1024",
            "0xgp1",
            "0x1.fffffffffffff8p1023",
            "0x__1p1",
            "0x1.2.3p1",
        ] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }

    #[test]
    fn doubles_print_as_go_prints_them() {
        let cases = [
            (1.234_567_890_123e12, "1.234567890123e+12"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5, "1.5"),
            (-0.0, "-0"),
            (f64::INFINITY, "+Inf"),
        ];
        for (d, printed) in cases {
            assert_eq!(go_verb_g(d), printed);
        }
    }
}
