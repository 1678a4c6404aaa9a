//! Reads and prints timestamps in the notation of RFC 3339.

use super::{Timestamp, days_before};

/// The result of reading a text as Go's `time.Parse` reads RFC 3339.
#[derive(Debug)]
pub(crate) enum Reading {
    Is(Timestamp),
    IsNot,
    /// A time, but outside of the years 1 to 9999.
    Overflow,
}

impl Timestamp {
    /// Reads a timestamp. Go accepts more than RFC 3339: an hour of one digit, a comma before the
    /// fraction, offsets up to 24:60.
    pub(crate) fn read(text: &str) -> Reading {
        let mut rest = text.as_bytes();
        let Some((seconds, nanos, offset)) = read_instant(&mut rest).filter(|_| rest.is_empty())
        else {
            return Reading::IsNot;
        };
        match Self::of_seconds(seconds) {
            Some(_) => Reading::Is(Self {
                seconds,
                nanos,
                offset,
            }),
            None => Reading::Overflow,
        }
    }

    /// Prints a timestamp as `string(timestamp)` does.
    pub(crate) fn print(&self) -> String {
        let c = self.civil_time(self.offset.into());
        let mut out = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            c.year, c.month, c.day, c.hour, c.minute, c.second
        );
        if self.nanos > 0 {
            out.push('.');
            out.push_str(format!("{:09}", self.nanos).trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let (sign, minutes) = (
                if self.offset < 0 { '-' } else { '+' },
                self.offset.abs() / 60,
            );
            out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        out
    }
}

/// Reads seconds since 1970, nanoseconds and the offset in seconds east of UTC.
fn read_instant(rest: &mut &[u8]) -> Option<(i64, i64, i32)> {
    let year = read_digits(rest, 4, 4)?;
    let month = read_digits(eat_byte(rest, b'-')?, 2, 2)?;
    let day = read_digits(eat_byte(rest, b'-')?, 2, 2)?;
    let hour = read_digits(eat_byte(rest, b'T')?, 1, 2)?;
    let minute = read_digits(eat_byte(rest, b':')?, 2, 2)?;
    let second = read_digits(eat_byte(rest, b':')?, 2, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=12).contains(&month)
        || !(1..=last).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let nanos = read_fraction(rest);
    let offset = read_zone(rest)?;
    let seconds = days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
        - i64::from(offset);
    Some((seconds, nanos, offset))
}

/// Removes that byte from the front; `None` if another byte is there.
fn eat_byte<'r, 't>(rest: &'r mut &'t [u8], byte: u8) -> Option<&'r mut &'t [u8]> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(rest)
}

/// Reads as many digits as there are, up to `most`.
fn read_digits(rest: &mut &[u8], least: usize, most: usize) -> Option<i64> {
    let count = rest
        .iter()
        .take(most)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, after) = rest.split_at_checked(count).filter(|_| count >= least)?;
    *rest = after;
    Some(
        number
            .iter()
            .fold(0, |value, digit| value * 10 + i64::from(digit - b'0')),
    )
}

/// Reads the nanoseconds of a fraction; digits beyond the ninth are dropped. A mark without a digit
/// after it is not removed.
fn read_fraction(rest: &mut &[u8]) -> i64 {
    let [b'.' | b',', after @ ..] = *rest else {
        return 0;
    };
    let count = after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if count == 0 {
        return 0;
    }
    let (number, after) = after.split_at(count);
    *rest = after;
    number
        .iter()
        .chain(std::iter::repeat(&b'0'))
        .take(9)
        .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
}

/// Reads `Z` or `+02:00`, in seconds.
fn read_zone(rest: &mut &[u8]) -> Option<i32> {
    let sign = match rest.first()? {
        b'Z' => {
            *rest = rest.get(1..)?;
            return Some(0);
        }
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = rest.get(1..)?;
    let hours = read_digits(rest, 2, 2)?;
    let minutes = read_digits(eat_byte(rest, b':')?, 2, 2)?;
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
    (hours <= 24 && minutes <= 60).then_some(sign * seconds)
}
