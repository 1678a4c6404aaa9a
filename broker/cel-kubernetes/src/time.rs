//! Timestamps and durations as Go represents them.

mod duration;
mod text;

pub(crate) use text::Reading;

pub(crate) use duration::{parse_duration, print_duration};

use std::cmp::Ordering;

use crate::value::Val;

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// An instant and the offset it was written with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanos: i64,
    /// Seconds east of UTC.
    pub(crate) offset: i32,
}

/// A date and a time of day, with the day of the year and of the week.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// The month, from 1.
    pub(crate) month: i64,
    /// The day of the month, from 1.
    pub(crate) day: i64,
    /// The day of the year, from 0.
    pub(crate) year_day: i64,
    /// The day of the week, from 0 for Sunday.
    pub(crate) week_day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Timestamp {
    /// Returns the instant of seconds since 1970, if it is in the years 1 to 9999.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS)
            .contains(&seconds)
            .then_some(Self {
                seconds,
                nanos: 0,
                offset: 0,
            })
    }

    pub(crate) fn same_instant(&self, other: &Self) -> bool {
        self.compare_instants(other) == Ordering::Equal
    }

    pub(crate) fn compare_instants(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }

    /// Returns the instant `nanos` later, or an error value.
    pub(crate) fn add_nanos(&self, nanos: i64) -> Val {
        let sum = self.nanos + nanos % NANOS_PER_SECOND;
        let seconds = self
            .seconds
            .checked_add(nanos / NANOS_PER_SECOND)
            .and_then(|s| s.checked_add(sum.div_euclid(NANOS_PER_SECOND)));
        match seconds {
            Some(seconds) if (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) => {
                Val::Timestamp(Self {
                    seconds,
                    nanos: sum.rem_euclid(NANOS_PER_SECOND),
                    offset: self.offset,
                })
            }
            _ => Val::error("timestamp overflow"),
        }
    }

    /// Returns how much later this is than `other`, or an error value.
    pub(crate) fn nanos_since(&self, other: &Self) -> Val {
        let seconds = self
            .seconds
            .checked_sub(other.seconds)
            .and_then(|s| s.checked_mul(NANOS_PER_SECOND));
        match seconds.and_then(|s| s.checked_add(self.nanos - other.nanos)) {
            Some(nanos) => Val::Duration(nanos),
            None => Val::error("integer overflow"),
        }
    }

    /// Returns the date and time at an offset in seconds.
    pub(crate) fn civil_time(&self, offset: i64) -> Civil {
        let local = self.seconds.saturating_add(offset);
        let days = local.div_euclid(86_400);
        let of_day = local.rem_euclid(86_400);
        let (year, month, day) = date_of_days(days);
        Civil {
            year,
            month,
            day,
            year_day: days - days_before(year, 1, 1),
            week_day: (days + 4).rem_euclid(7),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

/// Returns the date of a day counted from 1970-01-01.
fn date_of_days(days: i64) -> (i64, i64, i64) {
    // Years are counted in eras of 400 that begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Returns the day of a date, counted from 1970-01-01.
pub(crate) fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}
