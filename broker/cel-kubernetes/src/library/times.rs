//! Reads parts of timestamps and durations.

use super::Called;
use crate::time::{Civil, Timestamp};
use crate::value::Val;

pub(super) fn call_time(overload: &str, args: &[Val]) -> Option<Called> {
    match args {
        [Val::Duration(nanos)] => duration(overload, *nanos).map(|n| Ok(Val::Int(n))),
        [Val::Timestamp(t)] => time_part(overload, t, &t.civil_time(0)).map(|n| Ok(Val::Int(n))),
        [Val::Timestamp(t), Val::Str(zone)] => {
            let plain = overload
                .strip_suffix("_with_tz")
                .or_else(|| overload.strip_suffix("_tz"))?;
            time_part(plain, t, &t.civil_time(0))?;
            Some(zone_offset(zone).map(|found| {
                match found {
                    Some(seconds) => time_part(plain, t, &t.civil_time(seconds))
                        .map_or_else(Val::no_overload, Val::Int),
                    None => Val::error(format!("unknown time zone {zone}")),
                }
            }))
        }
        _ => None,
    }
}

fn duration(overload: &str, nanos: i64) -> Option<i64> {
    Some(match overload {
        "duration_to_hours" => nanos / 3_600_000_000_000,
        "duration_to_minutes" => nanos / 60_000_000_000,
        "duration_to_seconds" => nanos / 1_000_000_000,
        "duration_to_milliseconds" => nanos / 1_000_000,
        _ => return None,
    })
}

fn time_part(overload: &str, t: &Timestamp, c: &Civil) -> Option<i64> {
    Some(match overload {
        "timestamp_to_year" => c.year,
        "timestamp_to_month" => c.month - 1,
        "timestamp_to_day_of_year" => c.year_day,
        "timestamp_to_day_of_month" => c.day - 1,
        "timestamp_to_day_of_month_1_based" => c.day,
        "timestamp_to_day_of_week" => c.week_day,
        "timestamp_to_hours" => c.hour,
        "timestamp_to_minutes" => c.minute,
        "timestamp_to_seconds" => c.second,
        "timestamp_to_milliseconds" => t.nanos / 1_000_000,
        _ => return None,
    })
}

/// Returns the seconds east of UTC. Named zones other than UTC need a database and are
/// undetermined, except names that no database has. A zone starts with a capital, and the other
/// files beside the zones start with `posix`, `right` or `localtime`.
fn zone_offset(zone: &str) -> Result<Option<i64>, String> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(Some(0)),
            _ if is_nowhere(zone) => Ok(None),
            _ => Err(format!("the time zone {zone:?}")),
        };
    };
    let (Ok(hours), Ok(minutes)) = (hours.parse::<i64>(), minutes.parse::<i64>()) else {
        return Ok(None);
    };
    let hours = hours.wrapping_mul(60);
    let total = if zone.starts_with('-') {
        hours.wrapping_sub(minutes)
    } else {
        hours.wrapping_add(minutes)
    };
    // cel-go computes in nanoseconds, of 64 bits that wrap around, and rounds to seconds.
    let nanos = total.wrapping_mul(60_000_000_000);
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    Ok(Some(seconds as i64))
}

fn is_nowhere(zone: &str) -> bool {
    let beside = ["posix", "right", "localtime"]
        .iter()
        .any(|name| zone.starts_with(name));
    let plain = zone
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    plain
        && !beside
        && zone.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && !zone.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_no_database_has() {
        for zone in ["tenant-a", "012", "a.b.c"] {
            assert_eq!(zone_offset(zone), Ok(None), "{zone}");
        }
        for zone in [
            "Europe/Berlin",
            "GMT",
            "right",
            "posixrules",
            "a/b",
            "Local",
        ] {
            assert!(zone_offset(zone).is_err(), "{zone}");
        }
    }
}
