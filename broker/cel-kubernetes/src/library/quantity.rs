//! Quantities, as Kubernetes writes resources: `1Gi`, `500m`.

use std::cmp::Ordering;

use super::Called;
use crate::value::Val;

/// A number times a power of ten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    value: i128,
    scale: i32,
    /// How many decimal places Go keeps of a big decimal, which decides how a float is rounded.
    decimal_places: i32,
    /// Whether Go stores it as a big decimal, which is never an integer. Others fit 64 bits.
    decimal: bool,
    /// Whether it is a computed sum or difference. Such a quantity cannot be the right operand of
    /// `==`.
    computed: bool,
}

/// The result of reading a text as a quantity.
enum Reading {
    Is(Quantity),
    /// Not a quantity, with the error message of the API server.
    IsNot(&'static str),
    /// A quantity that is larger or finer than what is decided here.
    Large,
}

impl Quantity {
    /// Compares without computing powers of ten, which may not fit.
    fn compare_quantities(self, other: Self) -> Ordering {
        let signs = self.value.signum().cmp(&other.value.signum());
        if signs != Ordering::Equal {
            return signs;
        }
        if self.value == 0 {
            return Ordering::Equal;
        }
        let larger = self.digits_and_place().cmp(&other.digits_and_place());
        if self.value < 0 {
            larger.reverse()
        } else {
            larger
        }
    }

    /// Returns the place of the first digit, and the digits without zeros at the end. They compare
    /// as the absolute values of numbers other than zero do.
    fn digits_and_place(self) -> (i64, String) {
        let digits = self.value.unsigned_abs().to_string();
        let place = i64::from(self.scale) + digits.len() as i64;
        (place, digits.trim_end_matches('0').to_owned())
    }

    /// Compares as CEL's `==` does.
    pub(crate) fn equal_value(self, other: Self) -> Val {
        if other.computed {
            return Val::no_overload();
        }
        Val::Bool(self.compare_quantities(other) == Ordering::Equal)
    }

    /// Returns the closest float, with the rounding of Go.
    fn float(self) -> f64 {
        let power = |scale: i32| format!("1e{scale}").parse().unwrap_or(1.0);
        if self.decimal {
            let places = i64::from(self.scale) + i64::from(self.decimal_places);
            let unscaled = format!("{}e{places}", self.value);
            unscaled.parse().unwrap_or(0.0) * power(-self.decimal_places)
        } else {
            self.value as f64 * power(self.scale)
        }
    }

    fn integer(self) -> Option<i64> {
        if self.decimal {
            return None;
        }
        let power = u32::try_from(self.scale).ok()?;
        let value = 10_i128.checked_pow(power)?.checked_mul(self.value)?;
        i64::try_from(value).ok()
    }

    /// Adds as Go does: in 64 bits if both are such numbers and the sum fits, else as decimals.
    fn add_quantity(self, other: Self) -> Option<Self> {
        let decimal = self.decimal || other.decimal;
        let whole = match (self.value, other.value) {
            (_, 0) => Some((self.value, self.scale)),
            (0, _) => Some((other.value, other.scale)),
            _ => None,
        };
        let scale = self.scale.min(other.scale);
        let shifted = |q: Self| {
            let power = u32::try_from(q.scale.checked_sub(scale)?).ok()?;
            10_i128.checked_pow(power)?.checked_mul(q.value)
        };
        let sum = || shifted(self)?.checked_add(shifted(other)?);
        let (value, scale, places) = match whole.filter(|_| !decimal) {
            Some((value, scale)) => (value, scale, -scale),
            None => (sum()?, scale, self.decimal_places.max(other.decimal_places)),
        };
        let fits = |n: Option<i128>| n.is_some_and(|n| i64::try_from(n).is_ok());
        let small = whole.is_some() || (fits(shifted(self)) && fits(shifted(other)));
        Some(Self {
            value,
            scale,
            decimal_places: places,
            decimal: decimal || !small || i64::try_from(value).is_err(),
            computed: true,
        })
    }

    fn negate_quantity(self) -> Option<Self> {
        Some(Self {
            value: self.value.checked_neg()?,
            ..self
        })
    }
}

const WRONG_FORM: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The message for a suffix without a number, like `Ei`. One that Go reads in 64 bits is zero.
const NO_NUMBER: &str = "unable to parse numeric part of quantity";

fn read_quantity(text: &str) -> Reading {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let trimmed = unsigned.trim_start_matches('0');
    if text.is_empty() {
        return Reading::IsNot(WRONG_FORM);
    }
    let (number, rest) = trimmed.split_at(digits(trimmed));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(tail) => tail.split_at(digits(tail)),
        None => ("", rest),
    };
    let Some((binary, exponent)) = self::read_suffix(suffix) else {
        return Reading::IsNot(WRONG_FORM);
    };
    let written = unsigned.strip_suffix(suffix).unwrap_or(unsigned);
    let without_number = !written.bytes().any(|byte| byte.is_ascii_digit());
    let number = if number.is_empty() { "0" } else { number };
    let digits = format!("{number}{fraction}");
    let sign = if text.starts_with('-') { -1 } else { 1 };
    // Longer texts are read as zero only if they are one; i128 holds 38 digits.
    let (Ok(value), Ok(places)) = (digits.parse::<i128>(), i32::try_from(fraction.len())) else {
        return Reading::Large;
    };
    let read = match read_small(digits.len(), value, (binary, exponent), places) {
        Some((value, scale)) => Some((value, scale, -scale, false)),
        None if without_number => return Reading::IsNot(NO_NUMBER),
        None => read_large(value, (binary, exponent), places)
            .map(|(value, scale, places)| (value, scale, places, true)),
    };
    match read {
        Some((value, scale, places, decimal)) => Reading::Is(Quantity {
            value: sign * value,
            scale,
            decimal_places: places,
            decimal,
            computed: false,
        }),
        None => Reading::Large,
    }
}

/// The largest power of ten that is read. Go's floats end soon after it.
const MAX_SCALE: i32 = 290;

/// Reads a quantity that Go keeps in 64 bits, as its value and its power of ten.
fn read_small(
    length: usize,
    value: i128,
    (binary, exponent): (bool, i32),
    places: i32,
) -> Option<(i128, i32)> {
    let (room, factor, scale) = if binary {
        let used = usize::try_from(exponent * 3 / 10).ok()?;
        (14_usize.checked_sub(used)?, 1_i128 << exponent, 0)
    } else {
        (18, 1, exponent.checked_sub(places)?)
    };
    if length > room || (binary && places > 0) || scale < -9 {
        return None;
    }
    let value = value.checked_mul(factor)?;
    let fits = i64::try_from(value).is_ok() && scale <= MAX_SCALE;
    fits.then_some((value, scale))
}

/// Reads a quantity that Go keeps as a decimal: rounded up to billionths, and a binary one at most
/// the largest int. Returns its value, its power of ten and Go's decimal places.
fn read_large(
    value: i128,
    (binary, exponent): (bool, i32),
    places: i32,
) -> Option<(i128, i32, i32)> {
    const MAX_VALUE: i128 = i64::MAX as i128;
    let (value, scale) = if binary {
        match value.checked_mul(1_i128.checked_shl(exponent.unsigned_abs())?) {
            Some(value) => (value, -places),
            // Without so many places that it is small in spite of its digits.
            None if places < 9 => return Some((MAX_VALUE, 0, 0)),
            None => return None,
        }
    } else {
        (value, exponent.checked_sub(places)?)
    };
    if value == 0 {
        let scale = scale.clamp(-9, 0);
        return Some((0, scale, -scale));
    }
    if scale > MAX_SCALE {
        return None;
    }
    let power = 10_i128.checked_pow(scale.checked_add(9)?.unsigned_abs());
    let (value, scale) = match (scale >= -9, power) {
        (true, _) => (value, scale),
        (false, Some(power)) => (value / power + i128::from(value % power != 0), -9),
        (false, None) => (1, -9),
    };
    let read = Quantity {
        value,
        scale,
        decimal_places: 9,
        decimal: true,
        computed: false,
    };
    let most = Quantity {
        value: MAX_VALUE,
        scale: 0,
        ..read
    };
    if binary && read.compare_quantities(most) == Ordering::Greater {
        return Some((MAX_VALUE, 0, 0));
    }
    Some((value, scale, 9))
}

/// Returns whether a suffix is binary, and its exponent.
fn read_suffix(text: &str) -> Option<(bool, i32)> {
    Some(match text {
        "" => (false, 0),
        "n" => (false, -9),
        "u" => (false, -6),
        "m" => (false, -3),
        "k" => (false, 3),
        "M" => (false, 6),
        "G" => (false, 9),
        "T" => (false, 12),
        "P" => (false, 15),
        "E" => (false, 18),
        "Ki" => (true, 10),
        "Mi" => (true, 20),
        "Gi" => (true, 30),
        "Ti" => (true, 40),
        "Pi" => (true, 50),
        "Ei" => (true, 60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            // Go cuts the exponent to 32 bits.
            (false, exponent.parse::<i64>().ok()? as i32)
        }
    })
}

pub(super) fn call_quantity(overload: &str, args: &[Val]) -> Option<Called> {
    let large = || Err("a very large or very fine quantity".to_owned());
    let made = |q: Option<Quantity>| q.map_or_else(large, |q| Ok(Val::Quantity(q)));
    let whole = |n: i64| Quantity {
        value: n.into(),
        scale: 0,
        decimal_places: 0,
        decimal: false,
        computed: false,
    };
    Some(match (overload, args) {
        ("string_to_quantity", [Val::Str(s)]) => match read_quantity(s) {
            Reading::Is(q) => Ok(Val::Quantity(q)),
            Reading::IsNot(message) => Ok(Val::error(message)),
            Reading::Large => large(),
        },
        ("is_quantity_string", [Val::Str(s)]) => match read_quantity(s) {
            Reading::Is(_) => Ok(Val::Bool(true)),
            Reading::IsNot(_) => Ok(Val::Bool(false)),
            Reading::Large => large(),
        },
        ("quantity_sign", [Val::Quantity(q)]) => Ok(Val::Int(q.value.signum() as i64)),
        ("quantity_is_greater_than", [Val::Quantity(a), Val::Quantity(b)]) => {
            Ok(Val::Bool(a.compare_quantities(*b) == Ordering::Greater))
        }
        ("quantity_is_less_than", [Val::Quantity(a), Val::Quantity(b)]) => {
            Ok(Val::Bool(a.compare_quantities(*b) == Ordering::Less))
        }
        ("quantity_compare_to", [Val::Quantity(a), Val::Quantity(b)]) => {
            Ok(Val::Int(a.compare_quantities(*b) as i64))
        }
        ("quantity_get_float", [Val::Quantity(q)]) => Ok(Val::Double(q.float())),
        ("quantity_is_integer", [Val::Quantity(q)]) => Ok(Val::Bool(q.integer().is_some())),
        ("quantity_get_int", [Val::Quantity(q)]) => Ok(q
            .integer()
            .map_or_else(|| Val::error("cannot convert value to integer"), Val::Int)),
        ("quantity_add", [Val::Quantity(a), Val::Quantity(b)]) => made(a.add_quantity(*b)),
        ("quantity_add_int", [Val::Quantity(a), Val::Int(b)]) => made(a.add_quantity(whole(*b))),
        ("quantity_sub", [Val::Quantity(a), Val::Quantity(b)]) => {
            made(b.negate_quantity().and_then(|b| a.add_quantity(b)))
        }
        ("quantity_sub_int", [Val::Quantity(a), Val::Int(b)]) => {
            made(whole(*b).negate_quantity().and_then(|b| a.add_quantity(b)))
        }
        _ => return None,
    })
}
