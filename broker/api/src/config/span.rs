//! Kubernetes durations as people write them: `1h`, `10m`, `1h30m`, `90s`.

use std::time::Duration;

/// Reads a duration of whole hours, minutes and seconds, in the notation of `metav1.Duration`.
pub(super) fn parse(text: &str) -> Result<Duration, &'static str> {
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

/// Prints a duration the way [`parse`] reads it.
pub(super) fn print(duration: Duration) -> String {
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

    use super::{parse, print};

    #[test]
    fn durations_read_as_kubernetes_writes_them() {
        assert_eq!(parse("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse("0s").unwrap(), Duration::ZERO);
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
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_print_as_they_are_read() {
        for seconds in [0, 1, 59, 60, 3600, 5400, 86_399] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(parse(&print(duration)).unwrap(), duration);
        }
    }
}
