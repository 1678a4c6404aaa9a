//! Prints a time of whole seconds in UTC as Go does.

use jiff::Timestamp;

/// The seconds since 1970 of Go's zero time, 1 January of year 1.
pub const ZERO: i64 = -62_135_596_800;

/// Prints a time as `%v` does on a machine whose zone is UTC. `None` if the year is outside of what
/// can be printed here.
pub fn print(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_go_prints_them() {
        assert_eq!(
            print(ZERO).as_deref(),
            Some("0001-01-01 00:00:00 +0000 UTC")
        );
        assert_eq!(
            print(1_790_000_000).as_deref(),
            Some("2026-09-21 14:13:20 +0000 UTC")
        );
        assert_eq!(print(i64::MAX), None);
    }
}
