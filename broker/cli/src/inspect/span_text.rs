//! Writes spans of time for people, such as `2 h 14 min`.

use jiff::Timestamp;

/// The units of a span, in seconds, the longest first.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];

/// Writes a number of seconds with its two longest units.
pub(crate) fn describe_seconds(seconds: u64) -> String {
    let first = UNITS
        .iter()
        .position(|(unit, _)| seconds >= *unit)
        .unwrap_or(UNITS.len() - 1);
    let mut rest = seconds;
    let parts: Vec<String> = UNITS
        .iter()
        .skip(first)
        .take(2)
        .filter_map(|(unit, name)| {
            let count = rest / unit;
            rest %= unit;
            (count > 0 || seconds == 0).then(|| format!("{count} {name}"))
        })
        .collect();
    parts.join(" ")
}

/// Writes a time relative to `now`: `in 2 h 14 min` or `3 d 4 h ago`.
pub(crate) fn describe_relative(time: Timestamp, now: Timestamp) -> String {
    let span = describe_seconds(now.as_second().abs_diff(time.as_second()));
    if time.as_second() > now.as_second() {
        format!("in {span}")
    } else {
        format!("{span} ago")
    }
}

#[cfg(test)]
mod tests {
    use super::{describe_relative, describe_seconds};

    #[test]
    fn a_span_has_its_two_longest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (8_040, "2 h 14 min"),
            (7_201, "2 h"),
            (86_400, "1 d"),
            (90_061, "1 d 1 h"),
            (10_000 * 86_400, "10000 d"),
        ] {
            assert_eq!(describe_seconds(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_time_is_before_or_after_now() {
        let second = |second| jiff::Timestamp::from_second(second).unwrap_or_default();
        for (time, text) in [(160, "in 1 min"), (100, "0 s ago"), (40, "1 min ago")] {
            assert_eq!(describe_relative(second(time), second(100)), text);
        }
    }
}
