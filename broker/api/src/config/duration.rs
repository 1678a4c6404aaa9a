//! Kubernetes durations as people write them: `1h`, `10m`, `1h30m`, `90s`.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::Schema;
use serde_json::json;

use super::check::Check;
use crate::lifetime;
use crate::schema::DURATION_PATTERN;

/// The values that a field with a duration may have, in seconds.
pub(super) struct DurationBounds {
    pub(super) default: u64,
    pub(super) range: RangeInclusive<u64>,
}

impl DurationBounds {
    /// Reads the field at `path`, and notes its mistakes.
    pub(super) fn read(
        &self,
        text: Option<&str>,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<Duration> {
        let Some(text) = text else {
            return Some(Duration::from_secs(self.default));
        };
        let fix = format!("write a duration {}", self.range_text());
        let read = parse_duration(text).map_err(|problem| format!("{text:?} {problem}"));
        let read = check.take(path, read, &fix)?;
        if !self.range.contains(&read.as_secs()) {
            check.wrong(path, format!("{text:?} is out of range"), fix);
            return None;
        }
        Some(read)
    }

    /// Describes the field in its schema.
    pub(super) fn describe(&self) -> impl FnMut(&mut Schema) {
        let default = print_duration(Duration::from_secs(self.default));
        let range = self.range_text();
        move |schema| {
            schema.insert("default".to_owned(), json!(default));
            schema.insert("pattern".to_owned(), json!(DURATION_PATTERN));
            if let Some(serde_json::Value::String(text)) = schema.get_mut("description") {
                text.push_str(&format!(" A duration {range}."));
            }
        }
    }

    fn range_text(&self) -> String {
        let [least, most] = [self.range.start(), self.range.end()]
            .map(|it| print_duration(Duration::from_secs(*it)));
        format!("from {least} to {most}")
    }
}

/// Reads the lifetime of a token or of a client certificate.
pub(super) fn read_token_lifetime(
    text: &str,
    path: &str,
    check: &mut Check<'_>,
) -> Option<Duration> {
    let read = parse_duration(text)
        .and_then(|duration| lifetime::check_lifetime(duration).map(|()| duration))
        .map_err(|problem| format!("{text:?} {problem}"));
    check.take(path, read, "write a duration from 10m to 24h")
}

/// Reads a duration of whole hours, minutes and seconds, in the notation of `metav1.Duration`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const GRAMMAR: &str = "is not a duration such as 1h, 90m or 1h30m";
    let mut total: u64 = 0;
    let mut digits = String::new();
    let mut last_unit = u64::MAX;
    for character in text.chars() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        let unit = match character {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(GRAMMAR),
        };
        let count: u64 = digits.parse().map_err(|_| GRAMMAR)?;
        if unit >= last_unit {
            return Err(GRAMMAR);
        }
        last_unit = unit;
        total = count
            .checked_mul(unit)
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or("is too long a duration")?;
        digits.clear();
    }
    if !digits.is_empty() || last_unit == u64::MAX {
        return Err(GRAMMAR);
    }
    Ok(Duration::from_secs(total))
}

/// Prints a duration the way [`parse_duration`] reads it.
pub(super) fn print_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3600, "h"),
        (seconds % 3600 / 60, "m"),
        (seconds % 60, "s"),
    ];
    let text: String = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::{parse_duration, print_duration};

    #[test]
    fn durations_read_as_kubernetes_writes_them() {
        assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("0s").unwrap(), Duration::ZERO);
        for text in [
            "",
            "1",
            "h",
            "1d",
            "-1h",
            "1.5h",
            "1m1h",
            "1h1h",
            "99999999999999999999h",
            "18446744073709551615h",
            " 1h",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_print_as_they_are_read() {
        for seconds in [0, 1, 59, 60, 3600, 5400, 86_399] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(parse_duration(&print_duration(duration)).unwrap(), duration);
        }
    }
}
