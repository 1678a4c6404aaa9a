//! Timestamps in the notation of RFC 3339.

use super::{Timestamp, days_before};

/// What a text is, read as Go reads RFC 3339.
#[derive(Debug)]
pub(in crate::cel) enum Reading {
    Is(Timestamp),
    IsNot,
    /// Written in a way that only some readers accept.
    Odd,
}

impl Timestamp {
    /// Reads a timestamp.
    pub(in crate::cel) fn read(text: &str) -> Reading {
        match strict(text) {
            Some(found) => found,
            // Go also takes a comma before the fraction and an hour of one digit.
            None if text.contains(',') || text.as_bytes().get(12) == Some(&b':') => Reading::Odd,
            None => Reading::IsNot,
        }
    }

    /// What `string(timestamp)` gives.
    pub(in crate::cel) fn print(&self) -> String {
        let c = self.civil(self.offset.into());
        let mut out = format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", c.year, c.month, c.day, c.hour, c.minute, c.second);
        if self.nanos > 0 {
            out.push('.');
            out.push_str(format!("{:09}", self.nanos).trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let (sign, minutes) = (if self.offset < 0 { '-' } else { '+' }, self.offset.abs() / 60);
            out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        out
    }
}

fn strict(text: &str) -> Option<Reading> {
    let b = text.as_bytes();
    let number = |from: usize, len: usize| -> Option<i64> {
        let part = text.get(from..from + len)?;
        if part.bytes().all(|c| c.is_ascii_digit()) { part.parse().ok() } else { None }
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(i, c)| b.get(*i) == Some(c)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=12).contains(&month) || !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return Some(Reading::IsNot);
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(tail) = rest.strip_prefix('.') {
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (fraction, after) = tail.split_at(end);
        if fraction.is_empty() {
            return Some(Reading::IsNot);
        }
        let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        nanos = nine.parse().ok()?;
        rest = after;
    }
    let offset = match rest {
        "Z" => 0,
        _ => match zone(rest) {
            Some(offset) => offset,
            None if rest.len() == 6 => return Some(Reading::Odd),
            None => return Some(Reading::IsNot),
        },
    };
    let seconds = days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - i64::from(offset);
    match Timestamp::of_seconds(seconds) {
        Some(_) => Some(Reading::Is(Timestamp { seconds, nanos, offset })),
        None => Some(Reading::IsNot),
    }
}

/// `+02:00` in seconds.
fn zone(text: &str) -> Option<i32> {
    let (sign, tail) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => return None,
    };
    let (hours, minutes) = tail.split_once(':')?;
    let two = |t: &str| if t.len() == 2 && t.bytes().all(|c| c.is_ascii_digit()) { t.parse::<i32>().ok() } else { None };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours <= 23 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}
