//! Reads and prints durations in Go's notation.

/// Reads nanoseconds as Go's `time.ParseDuration` does.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        total = total
            .checked_add(read_part(&mut rest)?)
            .filter(|t| *t <= 1 << 63)?;
    }
    if negative {
        return 0_i64.checked_sub_unsigned(total);
    }
    i64::try_from(total).ok()
}

/// Reads one number with its unit.
fn read_part(rest: &mut &str) -> Option<u64> {
    let whole = take_digits(rest);
    let value = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok().filter(|v| *v <= 1 << 63)?
    };
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        *rest = after;
        fraction = take_digits(rest);
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    *rest = after;
    let unit: u64 = match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let nanos = value.checked_mul(unit).filter(|v| *v <= 1 << 63)?;
    nanos
        .checked_add(part_of(fraction, unit))
        .filter(|v| *v <= 1 << 63)
}

/// Reads the fraction of a unit; digits beyond what an integer can store are dropped.
fn part_of(fraction: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        let next = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|v| *v <= 1 << 63) else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    if value == 0 {
        return 0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn take_digits<'t>(rest: &mut &'t str) -> &'t str {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    digits
}

/// Prints a duration in seconds, as `string(duration)` does.
pub(crate) fn print_duration(nanos: i64) -> String {
    format!("{}s", crate::number::go_fixed(to_seconds(nanos)))
}

/// Computes Go's `Duration.Seconds`.
fn to_seconds(nanos: i64) -> f64 {
    (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9
}
