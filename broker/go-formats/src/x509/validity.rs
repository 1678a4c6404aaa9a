//! Reads the times of a certificate.

use super::Fault;
use super::der::{Reader, tag};
use crate::GoRelease;

/// Checks `notBefore` and `notAfter`. Anything may follow them.
pub(super) fn check_validity(mut validity: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    check_time(&mut validity, go)?;
    check_time(&mut validity, go)
}

fn check_time(validity: &mut Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    if validity.has_next(tag::UTC_TIME) {
        let time = validity.content(tag::UTC_TIME);
        let holds = time.is_some_and(|time| is_time(time, Year::Short, go));
        return Fault::unless(holds, "x509: malformed UTCTime");
    }
    if validity.has_next(tag::GENERALIZED_TIME) {
        let time = validity.content(tag::GENERALIZED_TIME);
        let holds = time.is_some_and(|time| is_time(time, Year::Long, go));
        return Fault::unless(holds, "x509: malformed GeneralizedTime");
    }
    Err(Fault::new("x509: unsupported time format"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Year {
    /// Two digits. The seconds may then be left out.
    Short,
    /// Four digits.
    Long,
}

/// Whether a time has Go's format. Go parses it and prints it again, so each part has its exact
/// length.
fn is_time(time: &[u8], year: Year, go: GoRelease) -> bool {
    let (digits, zone) = time.split_at(
        time.iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(time.len()),
    );
    let numbers: Vec<u32> = digits
        .chunks(2)
        .map(|pair| {
            pair.iter()
                .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
        })
        .collect();
    let (year, rest) = match (year, numbers.as_slice(), digits.len()) {
        (Year::Long, [high, low, rest @ ..], 14) => (high * 100 + low, rest),
        // From 69 on, the year is of the last century.
        (Year::Short, [year, rest @ ..], 10 | 12) if *year >= 69 => (1900 + year, rest),
        (Year::Short, [year, rest @ ..], 10 | 12) => (2000 + year, rest),
        _ => return false,
    };
    let [month, day, hour, minute, seconds @ ..] = rest else {
        return false;
    };
    (1..=12).contains(month)
        && (1..=days_of_month(year, *month)).contains(day)
        && *hour < 24
        && *minute < 60
        && seconds.iter().all(|second| *second < 60)
        && is_zone(zone, go)
}

fn days_of_month(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Whether the text is `Z`, or an offset that is not zero: Go prints that one as `Z`.
fn is_zone(zone: &[u8], go: GoRelease) -> bool {
    match zone {
        b"Z" => true,
        [b'+' | b'-', digits @ ..] if digits.len() == 4 => {
            let number = |pair: &[u8]| std::str::from_utf8(pair).ok()?.parse::<u32>().ok();
            let (hours, minutes) = digits.split_at(2);
            let digits_only = digits.iter().all(u8::is_ascii_digit);
            match (number(hours), number(minutes)) {
                (Some(hours), Some(minutes)) if digits_only => {
                    let in_range = hours <= 24 || go < GoRelease::V1_23;
                    (hours, minutes) != (0, 0) && minutes < 60 && in_range
                }
                _ => false,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_exact_format_of_go() {
        let short = |time: &str| is_time(time.as_bytes(), Year::Short, GoRelease::V1_26);
        let long = |time: &str| is_time(time.as_bytes(), Year::Long, GoRelease::V1_26);
        for time in [
            "200101000000Z",
            "2001010000Z",
            "2001010000+0530",
            "680229235959-2400",
        ] {
            assert!(short(time), "{time}");
        }
        assert!(long("20000229000000Z") && long("00000229000000+0001"));
        for time in [
            "",
            "Z",
            "200101000000",
            "20010100000Z",
            "200100000000Z",
            "200101240000Z",
            "200101000060Z",
            "210229000000Z",
            "200101000000+0000",
            "200101000000+2500",
            "200101000000+2460",
            "200101000000.0Z",
            "200101000000Z ",
            "200101000000+05:0",
        ] {
            assert!(!short(time), "{time}");
        }
        assert!(!long("200101000000Z") && !long("19000229000000Z") && !long("202001010000Z"));
        assert!(is_time(b"200101000000+9959", Year::Short, GoRelease::V1_22));
    }
}
