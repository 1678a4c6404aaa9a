//! Numbers, times and states in words, the same on every page.

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Answer, Health};
use maud::{Markup, html};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The number with a comma between thousands.
pub(crate) fn number(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The number with the noun that fits it.
pub(crate) fn counted(count: usize, singular: &str, plural: &str) -> String {
    format!(
        "{} {}",
        number(count),
        if count == 1 { singular } else { plural }
    )
}

/// A length of time in at most two units, rounded down.
pub(crate) fn span(length: SignedDuration) -> String {
    let seconds = length.as_secs().saturating_abs();
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => with_rest(seconds / HOUR, "h", seconds % HOUR / MINUTE, "min"),
        _ if seconds < 3 * DAY => with_rest(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 10 * YEAR => format!("{} d", seconds / DAY),
        _ => format!("{} years", seconds / YEAR),
    }
}

fn with_rest(whole: i64, unit: &str, rest: i64, smaller_unit: &str) -> String {
    match rest {
        0 => format!("{whole} {unit}"),
        _ => format!("{whole} {unit} {rest} {smaller_unit}"),
    }
}

/// When something is, as seen from `now`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let length = at.duration_since(now);
    match length.as_secs() {
        0 => "now".to_owned(),
        seconds if seconds > 0 => format!("in {}", span(length)),
        _ => format!("{} ago", span(length)),
    }
}

/// The moment in UTC as a person reads it.
pub(crate) fn utc(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The moment, relative to `now`, with the absolute one for machines, for the pointer and for print.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) title=(utc(at)) { (relative(at, now)) }
    }
}

/// As [`time`], or what it means that there is none.
pub(crate) fn time_or(at: Option<Timestamp>, now: Timestamp, missing: &str) -> Markup {
    match at {
        Some(at) => time(at, now),
        None => html! { span.faint { (missing) } },
    }
}

/// The word for a state. Each has a shape of its own, so that colour is never the only sign.
pub(crate) fn health_word(health: Health) -> &'static str {
    match health {
        Health::Broken => "broken",
        Health::Attention => "attention",
        Health::Unknown => "not known",
        Health::Ready => "ready",
    }
}

/// The class in the style sheet.
pub(crate) fn health_class(health: Health) -> &'static str {
    match health {
        Health::Broken => "broken",
        Health::Attention => "attention",
        Health::Unknown => "unknown",
        Health::Ready => "ready",
    }
}

/// The shape in front of the word.
pub(crate) fn health_shape(health: Health) -> &'static str {
    match health {
        Health::Broken => "✕",
        Health::Attention => "▲",
        Health::Unknown => "?",
        Health::Ready => "●",
    }
}

/// Shape and word of a state.
pub(crate) fn mark(health: Health) -> Markup {
    mark_with(health, health_word(health))
}

/// Shape of a state and a word that says more.
pub(crate) fn mark_with(health: Health, word: &str) -> Markup {
    html! {
        span.mark.(health_class(health)) {
            span aria-hidden="true" { (health_shape(health)) } " " (word)
        }
    }
}

/// Shape and word of an answer.
pub(crate) fn answer_mark(answer: &Answer) -> Markup {
    match answer {
        Answer::Yes => mark_with(Health::Ready, "yes"),
        Answer::No { .. } => mark_with(Health::Broken, "no"),
        Answer::Unknown { .. } => mark_with(Health::Unknown, "not known"),
    }
}

/// The texts with commas between them.
pub(crate) fn joined(texts: &[ForeignText]) -> String {
    let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
    if texts.is_empty() {
        "–".to_owned()
    } else {
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{counted, number, relative, span};

    #[test]
    fn numbers_have_commas_and_their_noun() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (10_000, "10,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(number(count), text);
        }
        assert_eq!(counted(1, "target", "targets"), "1 target");
        assert_eq!(counted(8412, "target", "targets"), "8,412 targets");
    }

    #[test]
    fn lengths_of_time_have_at_most_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (8040, "2 h 14 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
            (259_200, "3 d"),
            (4_000_000, "46 d"),
            (315_359_999, "3649 d"),
            (315_360_000, "10 years"),
            (-8040, "2 h 14 min"),
        ] {
            assert_eq!(span(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_moment_is_ahead_now_or_past() {
        let now = Timestamp::UNIX_EPOCH;
        for (seconds, text) in [(60, "in 1 min"), (0, "now"), (-60, "1 min ago")] {
            let at = now + SignedDuration::from_secs(seconds);
            assert_eq!(relative(at, now), text);
        }
        let span = relative(Timestamp::MAX, Timestamp::MIN);
        assert!(
            span.starts_with("in ") && span.ends_with(" years"),
            "{span}"
        );
    }
}
