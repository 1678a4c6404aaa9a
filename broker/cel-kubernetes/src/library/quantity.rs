//! Quantities, as Kubernetes writes resources: `1Gi`, `500m`.

use std::cmp::Ordering;

use super::Called;
use crate::value::Val;

/// A number times a power of ten. Quantities that Go stores as big decimals are undetermined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    value: i64,
    scale: i32,
    /// Whether it is a computed sum or difference. Such a quantity cannot be the right operand of
    /// `==`.
    computed: bool,
}

/// The result of reading a text as a quantity.
enum Reading {
    Is(Quantity),
    IsNot,
    /// A quantity that is larger or finer than what is decided here.
    Large,
}

impl Quantity {
    /// Returns the value in billionths.
    fn nanos(self) -> Option<i128> {
        let power = u32::try_from(self.scale.checked_add(9)?).ok()?;
        10_i128.checked_pow(power)?.checked_mul(self.value.into())
    }

    fn order(self, other: Self) -> Result<Ordering, String> {
        let both = self.nanos().zip(other.nanos());
        both.map(|(a, b)| a.cmp(&b))
            .ok_or_else(|| "a very large quantity".to_owned())
    }

    /// Compares as CEL's `==` does.
    pub(crate) fn equals(self, other: Self) -> Val {
        match self.order(other) {
            Ok(order) if !other.computed => Val::Bool(order == Ordering::Equal),
            _ => Val::no_overload(),
        }
    }

    fn integer(self) -> Option<i64> {
        let power = u32::try_from(self.scale).ok()?;
        10_i64.checked_pow(power)?.checked_mul(self.value)
    }

    fn plus(self, other: Self) -> Option<Self> {
        let (value, scale) = match (self.value, other.value, self.scale.cmp(&other.scale)) {
            (_, 0, _) => (self.value, self.scale),
            (0, _, _) => (other.value, other.scale),
            (a, b, Ordering::Equal) => (a.checked_add(b)?, self.scale),
            (a, b, Ordering::Greater) => (
                scaled(a, self.scale - other.scale)?.checked_add(b)?,
                other.scale,
            ),
            (a, b, Ordering::Less) => (
                scaled(b, other.scale - self.scale)?.checked_add(a)?,
                self.scale,
            ),
        };
        Some(Self {
            value,
            scale,
            computed: true,
        })
    }

    fn negated(self) -> Option<Self> {
        Some(Self {
            value: self.value.checked_neg()?,
            ..self
        })
    }
}

fn scaled(value: i64, by: i32) -> Option<i64> {
    value.checked_mul(10_i64.checked_pow(u32::try_from(by).ok()?)?)
}

fn read(text: &str) -> Reading {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let trimmed = unsigned.trim_start_matches('0');
    if text.is_empty() {
        return Reading::IsNot;
    }
    let (number, rest) = trimmed.split_at(digits(trimmed));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(tail) => tail.split_at(digits(tail)),
        None => ("", rest),
    };
    if number.is_empty() && unsigned.is_empty() {
        // Kubernetes reads a sign alone as zero.
        return Reading::Large;
    }
    let Some((binary, exponent)) = self::suffix(suffix) else {
        return Reading::IsNot;
    };
    let number = if number.is_empty() { "0" } else { number };
    let length = number.len() + fraction.len();
    let fits = if binary {
        fraction.is_empty() && length + (exponent as usize) * 3 / 10 < 14
    } else {
        length <= 18
    };
    let fraction_length = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let scale = if binary {
        0
    } else {
        exponent.saturating_sub(fraction_length)
    };
    if !fits || !(-9..=18).contains(&scale) {
        return Reading::Large;
    }
    let factor = if binary {
        1_i64.checked_shl(exponent.unsigned_abs())
    } else {
        Some(1)
    };
    let value = format!("{number}{fraction}")
        .parse::<i64>()
        .ok()
        .zip(factor)
        .and_then(|(v, f)| v.checked_mul(f));
    let Some(value) = value else {
        return Reading::Large;
    };
    let value = if text.starts_with('-') { -value } else { value };
    Reading::Is(Quantity {
        value,
        scale,
        computed: false,
    })
}

/// Returns whether a suffix is binary, and its exponent.
fn suffix(text: &str) -> Option<(bool, i32)> {
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
            (false, exponent.parse().ok()?)
        }
    })
}

pub(super) fn call(overload: &str, args: &[Val]) -> Option<Called> {
    let large = || Err("a very large or very fine quantity".to_owned());
    let made = |q: Option<Quantity>| q.map_or_else(large, |q| Ok(Val::Quantity(q)));
    let whole = |n: i64| Quantity {
        value: n,
        scale: 0,
        computed: false,
    };
    Some(match (overload, args) {
        ("string_to_quantity", [Val::Str(s)]) => match read(s) {
            Reading::Is(q) => Ok(Val::Quantity(q)),
            Reading::IsNot => Ok(Val::error(
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )),
            Reading::Large => large(),
        },
        ("is_quantity_string", [Val::Str(s)]) => match read(s) {
            Reading::Is(_) => Ok(Val::Bool(true)),
            Reading::IsNot => Ok(Val::Bool(false)),
            Reading::Large => large(),
        },
        ("quantity_sign", [Val::Quantity(q)]) => Ok(Val::Int(q.value.signum())),
        ("quantity_is_greater_than", [Val::Quantity(a), Val::Quantity(b)]) => {
            a.order(*b).map(|o| Val::Bool(o == Ordering::Greater))
        }
        ("quantity_is_less_than", [Val::Quantity(a), Val::Quantity(b)]) => {
            a.order(*b).map(|o| Val::Bool(o == Ordering::Less))
        }
        ("quantity_compare_to", [Val::Quantity(a), Val::Quantity(b)]) => {
            a.order(*b).map(|o| Val::Int(o as i64))
        }
        ("quantity_get_float", [Val::Quantity(q)]) => {
            let power: f64 = format!("1e{}", q.scale).parse().unwrap_or(1.0);
            Ok(Val::Double(q.value as f64 * power))
        }
        ("quantity_is_integer", [Val::Quantity(q)]) => Ok(Val::Bool(q.integer().is_some())),
        ("quantity_get_int", [Val::Quantity(q)]) => Ok(q
            .integer()
            .map_or_else(|| Val::error("cannot convert value to integer"), Val::Int)),
        ("quantity_add", [Val::Quantity(a), Val::Quantity(b)]) => made(a.plus(*b)),
        ("quantity_add_int", [Val::Quantity(a), Val::Int(b)]) => made(a.plus(whole(*b))),
        ("quantity_sub", [Val::Quantity(a), Val::Quantity(b)]) => {
            made(b.negated().and_then(|b| a.plus(b)))
        }
        ("quantity_sub_int", [Val::Quantity(a), Val::Int(b)]) => {
            made(whole(*b).negated().and_then(|b| a.plus(b)))
        }
        _ => return None,
    })
}
