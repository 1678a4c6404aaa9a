//! What a plain YAML 1.1 scalar is, as sigs.k8s.io/yaml resolves it. Only its kind matters: no field is a number.

/// What a plain scalar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number,
    /// `.nan` or an infinity, which JSON has not.
    NotJson,
    Text,
    /// `<<`.
    Merge,
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Kind::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Kind::Bool(false),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => {
            return Kind::NotJson;
        }
        "<<" => return Kind::Merge,
        _ => {}
    }
    match text.as_bytes() {
        [b'.', ..] if is_go_float(text) => Kind::Number,
        [b'+' | b'-' | b'0'..=b'9', ..] => number(text),
        _ => Kind::Text,
    }
}

fn number(text: &str) -> Kind {
    // Timestamps keep their text, and a number never looks like one: a date has a dash after its first digits.
    let plain = text.replace('_', "");
    if is_integer(&plain) || is_yaml_float(&plain) || is_binary(&plain) { Kind::Number } else { Kind::Text }
}

/// `strconv.ParseInt` or `ParseUint` with base 0, whose underscores are gone.
fn is_integer(text: &str) -> bool {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..)),
        Some(b'+') => (false, text.get(1..)),
        _ => (false, Some(text)),
    };
    let signed = matches!(text.as_bytes().first(), Some(b'-' | b'+'));
    let Some(digits) = digits else { return false };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'o', ..] => (8, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', _, ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let body = body.unwrap_or_default();
    if body.is_empty() || !body.chars().all(|digit| digit.is_digit(radix)) {
        return false;
    }
    match u128::from_str_radix(body, radix) {
        Ok(value) if negative => value <= 1 << 63,
        Ok(value) if signed => value < 1 << 63,
        Ok(value) => value <= u128::from(u64::MAX),
        Err(_) => false,
    }
}

/// What the rest of the resolver takes after `0b`.
fn is_binary(text: &str) -> bool {
    let (body, limit) = match (text.strip_prefix("0b"), text.strip_prefix("-0b")) {
        (Some(body), _) => (body, u128::from(u64::MAX)),
        (_, Some(body)) => (body, 1 << 63),
        _ => return false,
    };
    let body = body.strip_prefix(['+', '-']).unwrap_or(body);
    u128::from_str_radix(body, 2).is_ok_and(|value| value <= limit)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, and within the range of a float64.
fn is_yaml_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (unsigned.get(..at).unwrap_or_default(), unsigned.get(at + 1..)),
        None => (unsigned, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    mantissa_fits && exponent_fits && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `strconv.ParseFloat` of what starts with a dot.
fn is_go_float(text: &str) -> bool {
    is_yaml_float(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_resolve_as_yaml_1_1() {
        for (text, kind) in [
            ("", Kind::Null),
            ("~", Kind::Null),
            ("NULL", Kind::Null),
            ("nULL", Kind::Text),
            ("yes", Kind::Bool(true)),
            ("Off", Kind::Bool(false)),
            ("y", Kind::Bool(true)),
            ("yEs", Kind::Text),
            ("5", Kind::Number),
            ("-5", Kind::Number),
            ("1_000", Kind::Number),
            ("0777", Kind::Number),
            ("0899", Kind::Number),
            ("0o17", Kind::Number),
            ("0x1F", Kind::Number),
            ("0xg", Kind::Text),
            ("0b11", Kind::Number),
            ("18446744073709551616", Kind::Number),
            ("1e3", Kind::Number),
            ("1e999", Kind::Text),
            ("1.", Kind::Number),
            (".5", Kind::Number),
            ("1.2.3", Kind::Text),
            ("2001-01-01", Kind::Text),
            ("1:20", Kind::Text),
            (".inf", Kind::NotJson),
            ("<<", Kind::Merge),
            ("-", Kind::Text),
            ("+", Kind::Text),
            ("https://x", Kind::Text),
        ] {
            assert_eq!(resolve(text), kind, "{text}");
        }
    }
}
