//! Named formats, and their checks of a text.

use super::url;
use super::{Called, Context};
use crate::Minor;
use crate::value::{List, Val};

/// A text format, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormatName(&'static str);

/// The names, and the length of each one's pattern for CEL's cost.
const NAMES: [(&str, u32); 13] = [
    ("dns1123Label", 30),
    ("dns1123Subdomain", 60),
    ("dns1035Label", 30),
    ("qualifiedName", 60),
    ("dns1123LabelPrefix", 30),
    ("dns1123SubdomainPrefix", 60),
    ("dns1035LabelPrefix", 30),
    ("labelValue", 40),
    ("uri", 1103),
    ("uuid", 70),
    ("byte", 84),
    ("date", 71),
    ("datetime", 71),
];

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
                     alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
                         end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
                          end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                          '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                    'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
                           end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                           '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

impl FormatName {
    /// Returns what its pattern adds to the cost of every character.
    pub(crate) fn pattern_cost(self) -> u64 {
        let length = NAMES
            .iter()
            .find(|(name, _)| *name == self.0)
            .map_or(0, |(_, length)| *length);
        u64::from(length.div_ceil(4))
    }
}

pub(super) fn call(overload: &str, args: &[Val], context: &Context<'_>) -> Option<Called> {
    let known = |name: &str| {
        NAMES
            .into_iter()
            .find(|(n, _)| *n == name)
            .map(|(n, _)| Val::Format(FormatName(n)))
    };
    Some(match (overload, args) {
        ("format-named", [Val::Str(name)]) => Ok(Val::Optional(known(name).map(Into::into))),
        ("format-validate", [Val::Format(FormatName(name)), Val::Str(text)]) => {
            faults(name, text, context.minor).map(|faults| match faults {
                faults if faults.is_empty() => Val::Optional(None),
                faults => Val::some(Val::List(List::of_strings(faults))),
            })
        }
        (_, []) => Ok(known(overload.strip_prefix("format.")?)?),
        _ => return None,
    })
}

/// Finds the faults of a text. `Err` if they cannot be decided here.
fn faults(format: &str, text: &str, minor: Minor) -> Result<Vec<String>, String> {
    let unless = |fine: bool, fault: &str| {
        if fine {
            Vec::new()
        } else {
            vec![fault.to_owned()]
        }
    };
    Ok(match format {
        "dns1123Label" => label(text),
        "dns1123LabelPrefix" => label(&masked(text)),
        "dns1123Subdomain" => subdomain(text, "characters"),
        "dns1123SubdomainPrefix" => subdomain(&masked(text), "characters"),
        "dns1035Label" => label_1035(text),
        "dns1035LabelPrefix" => label_1035(&masked(text)),
        "qualifiedName" => qualified_name(text, minor),
        "labelValue" => {
            let mut errors = too_long(text, 63, unit(minor));
            errors.extend(unless(text.is_empty() || is_name(text), LABEL_VALUE));
            errors
        }
        "uri" => url::url_fault(text)?.into_iter().collect(),
        "uuid" => unless(is_uuid(text), "does not match the UUID format"),
        "byte" => unless(is_base64(text), "invalid base64"),
        "date" => unless(is_date(text), "invalid date"),
        _ => unless(is_datetime(text), "invalid datetime"),
    })
}

/// Returns the unit in which the messages count the length of label keys and values.
fn unit(minor: Minor) -> &'static str {
    if minor >= Minor::V1_35 {
        "bytes"
    } else {
        "characters"
    }
}

fn too_long(text: &str, most: usize, unit: &str) -> Vec<String> {
    if text.len() > most {
        vec![format!("must be no more than {most} {unit}")]
    } else {
        Vec::new()
    }
}

/// Replaces a last dash and the character before it by a letter, as for the start of a generated
/// name.
fn masked(text: &str) -> String {
    match text.as_bytes() {
        [before @ .., _, b'-'] => format!("{}a", String::from_utf8_lossy(before)),
        _ => text.to_owned(),
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let ends =
        text.bytes().next().is_some_and(is_lower) && text.bytes().next_back().is_some_and(is_lower);
    ends && text.bytes().all(|byte| is_lower(byte) || byte == b'-')
}

fn is_name(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    let ends = text.bytes().next().is_some_and(alphanumeric)
        && text.bytes().next_back().is_some_and(alphanumeric);
    ends && text
        .bytes()
        .all(|byte| alphanumeric(byte) || b"-_.".contains(&byte))
}

fn label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63, "characters");
    if !is_label(text) {
        let dots = text.split('.').all(is_label);
        errors.push(if dots { "must not contain dots" } else { LABEL }.to_owned());
    }
    errors
}

fn subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut errors = too_long(text, 253, unit);
    if !text.split('.').all(is_label) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

fn label_1035(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63, "characters");
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(LABEL_1035.to_owned());
    }
    errors
}

fn qualified_name(text: &str, minor: Minor) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    subdomain(prefix, unit(minor))
                        .into_iter()
                        .map(|fault| format!("prefix part {fault}")),
                );
            }
            *name
        }
        _ => {
            let what = if minor >= Minor::V1_35 {
                "a valid label key"
            } else {
                "a qualified name"
            };
            return vec![format!(
                "{what} {NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors.extend(
        too_long(name, 63, unit(minor))
            .into_iter()
            .map(|fault| format!("name part {fault}")),
    );
    if !is_name(name) {
        errors.push(format!("name part {NAME}"));
    }
    errors
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((digits, after)) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                rest = after
            }
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Whether it is base64 with padding, of at least one byte.
fn is_base64(text: &str) -> bool {
    let digits = text
        .strip_suffix("==")
        .or_else(|| text.strip_suffix('='))
        .unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// Whether it is a date of the calendar, as `2006-01-02`.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let [a, b, c, d, b'-', e, f, b'-', g, h] = bytes else {
        return false;
    };
    if ![a, b, c, d, e, f, g, h].into_iter().all(u8::is_ascii_digit) {
        return false;
    }
    let number = |digits: &[&u8]| {
        digits
            .iter()
            .fold(0_u32, |n, digit| n * 10 + u32::from(**digit - b'0'))
    };
    let (year, month, day) = (number(&[a, b, c, d]), number(&[e, f]), number(&[g, h]));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Whether it is a date, a `t`, and a time with a zone. Text after another `t` is ignored.
fn is_datetime(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

/// Whether it is a time that matches
/// `([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))`, where the dot means any
/// character.
fn is_time(text: &str) -> bool {
    let two = |text: &str, most: &str| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && text <= most
    };
    let Some((clock, rest)) = text.split_at_checked(8) else {
        return false;
    };
    let clock: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = clock.as_slice() else {
        return false;
    };
    if !(two(hours, "23") && two(minutes, "59") && two(seconds, "59")) {
        return false;
    }
    let is_zone = |zone: &str| {
        let signed = zone
            .strip_prefix(['+', '-'])
            .and_then(|zone| zone.split_once(':'));
        zone == "z" || signed.is_some_and(|(hours, minutes)| two(hours, "99") && two(minutes, "99"))
    };
    let mut characters = rest.chars();
    let after = if characters.next().is_some_and(|c| c != '\n') {
        characters.as_str()
    } else {
        ""
    };
    let zone = after.trim_start_matches(|c: char| c.is_ascii_digit());
    is_zone(rest) || (zone.len() < after.len() && is_zone(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(format: &str, text: &str) -> Vec<String> {
        faults(format, text, Minor::V1_36).unwrap_or_else(|reason| vec![reason])
    }

    #[test]
    fn names_are_read_as_kubernetes_reads_them() {
        let fine: Vec<String> = Vec::new();
        assert_eq!(of("dns1123Label", "a-1"), fine);
        assert_eq!(of("dns1123Label", "a.b"), ["must not contain dots"]);
        assert_eq!(of("dns1123Label", "A"), [LABEL]);
        assert_eq!(
            of("dns1123Label", &"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
        assert_eq!(of("dns1123LabelPrefix", "a--"), fine);
        assert_eq!(of("dns1123LabelPrefix", "-"), [LABEL]);
        assert_eq!(of("dns1123Subdomain", "a..b"), [SUBDOMAIN]);
        assert_eq!(of("dns1123SubdomainPrefix", "a.-"), fine);
        assert_eq!(of("dns1035Label", "1a"), [LABEL_1035]);
        assert_eq!(of("qualifiedName", "a.b/C_d"), fine);
        assert_eq!(
            of("qualifiedName", "/"),
            [
                "prefix part must be non-empty".to_owned(),
                "name part must be non-empty".to_owned(),
                format!("name part {NAME}")
            ]
        );
        assert!(
            of("qualifiedName", "a/b/c")
                .first()
                .is_some_and(|fault| fault.starts_with("a valid label key must"))
        );
        assert_eq!(of("labelValue", ""), fine);
        assert_eq!(
            of("labelValue", &format!("-{}", "a".repeat(63))),
            ["must be no more than 63 bytes", LABEL_VALUE]
        );
    }

    #[test]
    fn what_the_openapi_formats_take() {
        for (format, good, bad) in [
            (
                "uuid",
                "123e4567e89b-12d3-A456-426614174000",
                "123e4567-e89b-12d3-a456-4266141740000",
            ),
            ("byte", "aGk=", "aGk"),
            ("byte", "aG==", ""),
            ("byte", "aGkh", "a==="),
            ("date", "2024-02-29", "2023-02-29"),
            ("date", "0000-02-29", "2024-1-01"),
            ("datetime", "2024-02-29T23:59:59Z", "2024-02-29T24:00:00Z"),
            (
                "datetime",
                "2024-02-29t01:02:03x5-99:99",
                "2024-02-29 01:02:03Z",
            ),
            (
                "datetime",
                "2024-02-29T01:02:03ZTx",
                "2024-02-29T01:02:03.Z",
            ),
            ("uri", "https://a/b", "a"),
        ] {
            assert!(of(format, good).is_empty(), "{format} {good}");
            assert_eq!(of(format, bad).len(), 1, "{format} {bad}");
        }
        assert_eq!(of("uri", "a"), ["parse \"a\": invalid URI for request"]);
    }
}
