//! Compares and orders values.

use std::cmp::Ordering;

use super::{List, Random, Val};

/// The longest list in an unknown order whose elements are compared with each of another.
const MAX_SHUFFLED: usize = 100;

/// The deepest level at which values are compared; claims do not nest this far.
const MAX_DEPTH: u32 = 256;

impl Val {
    /// CEL's `==`: numbers compare across types, values of different kinds are unequal. It returns
    /// an error where cel-go has one.
    pub(crate) fn equals(&self, other: &Self) -> Self {
        self.equal_within(other, 0)
    }

    fn equal_within(&self, other: &Self, depth: u32) -> Self {
        if depth > MAX_DEPTH {
            return Self::error("values nest too deeply");
        }
        let answer = match (self, other) {
            (Self::Random(_), _) | (_, Self::Random(_)) => {
                return Self::Random(Random {
                    size: 1,
                    fallible: true,
                });
            }
            (Self::Null, _) | (_, Self::Null) => matches!((self, other), (Self::Null, Self::Null)),
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
                Self::Int(_) | Self::Uint(_) | Self::Double(_),
            ) => {
                !self.is_nan()
                    && !other.is_nan()
                    && self.compare_numbers(other) == Some(Ordering::Equal)
            }
            (Self::Str(a), Self::Str(b)) | (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a.same_instant(b),
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::List(a), Self::List(b)) if a.len() != b.len() => false,
            (Self::List(a), Self::List(b)) if a.is_shuffled() || b.is_shuffled() => {
                return equal_in_any_order(a, b, depth);
            }
            (Self::List(a), Self::List(b)) => {
                return all_are_equal(a.items().iter().enumerate().map(|(index, a)| {
                    b.get(index)
                        .map_or(Self::Bool(false), |b| a.equal_within(&b, depth + 1))
                }));
            }
            (Self::Map(a), Self::Map(b)) if a.len() != b.len() => false,
            // The names of the left map are looked up in the right one, which may unescape them.
            (Self::Map(a), Self::Map(b)) => {
                return all_are_equal(a.entries().iter().map(|(k, v)| {
                    b.find(k)
                        .map_or(Self::Bool(false), |other| v.equal_within(&other, depth + 1))
                }));
            }
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => {
                return a.equal_within(b, depth + 1);
            }
            (Self::Lazy(a), Self::Lazy(b)) => std::sync::Arc::ptr_eq(a, b),
            (Self::Lazy(_), _) => return Self::no_overload(),
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Prefix(a), Self::Prefix(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => return a.equal_value(*b),
            (Self::Semver(a), Self::Semver(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            // These give an error, not false, for a value of another kind.
            (
                Self::Url(_)
                | Self::Ip(_)
                | Self::Prefix(_)
                | Self::Quantity(_)
                | Self::Semver(_)
                | Self::Format(_),
                _,
            ) => {
                return Self::no_overload();
            }
            _ => false,
        };
        Self::Bool(answer)
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(crate) fn is_false(&self) -> bool {
        matches!(self, Self::Bool(false))
    }

    /// Whether value and type are identical, as a Go map compares keys.
    pub(crate) fn identical(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Uint(a), Self::Uint(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a == b,
            (Self::Str(a), Self::Str(b)) | (Self::Type(a), Self::Type(b)) => a == b,
            _ => false,
        }
    }

    /// Whether nothing can tell the two values apart. Values with a state of their own never are.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                a.is_like(b) && a.items().iter().zip(b.items()).all(|(a, b)| a.same(b))
            }
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.same(b),
            (Self::Double(_), _) | (_, Self::Double(_)) => false,
            // A duration is an int for `identical`.
            (Self::Duration(_), Self::Int(_)) | (Self::Int(_), Self::Duration(_)) => false,
            _ => self.identical(other),
        }
    }

    /// Returns the same number in the other number types, if nothing is lost.
    pub(crate) fn other_numbers(&self) -> Vec<Self> {
        match *self {
            Self::Int(n) => u64::try_from(n).map(Self::Uint).into_iter().collect(),
            Self::Uint(n) => i64::try_from(n).map(Self::Int).into_iter().collect(),
            Self::Double(d) => {
                let int = crate::number::lossless_int(d).map(Self::Int);
                let uint = crate::number::lossless_uint(d).map(Self::Uint);
                int.into_iter().chain(uint).collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_nan(&self) -> bool {
        matches!(self, Self::Double(d) if d.is_nan())
    }

    /// Orders two values, or returns cel-go's error.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, Self> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::Str(a), Self::Str(b)) => Ok(a.as_bytes().cmp(b.as_bytes())),
            (Self::Bytes(a), Self::Bytes(b)) => Ok(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Ok(a.compare_instants(b)),
            (Self::Duration(a), Self::Duration(b)) => Ok(a.cmp(b)),
            _ if self.is_nan() => Err(Self::error("NaN values cannot be ordered")),
            _ => match self.compare_numbers(other) {
                Some(_) if other.is_nan() => Err(Self::error("NaN values cannot be ordered")),
                Some(order) => Ok(order),
                None => Err(Self::no_overload()),
            },
        }
    }

    /// Orders numbers of any type. A double next to an integer compares as a double, as in cel-go.
    fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => doubles(*a, *b),
            (Self::Int(a), Self::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Self::Uint(a), Self::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Self::Double(a), Self::Int(b)) => doubles(*a, *b as f64),
            (Self::Int(a), Self::Double(b)) => doubles(*a as f64, *b),
            (Self::Double(a), Self::Uint(b)) => doubles(*a, *b as f64),
            (Self::Uint(a), Self::Double(b)) => doubles(*a as f64, *b),
            _ => return None,
        })
    }
}

/// Whether all parts are equal; as in cel-go, an error counts as equal. Random if that depends on a
/// random order.
fn all_are_equal(parts: impl Iterator<Item = Val>) -> Val {
    let mut answer = Val::Bool(true);
    for part in parts {
        match part {
            Val::Bool(false) => return part,
            Val::Random(_) => answer = part,
            _ => {}
        }
    }
    answer
}

/// Compares lists of one length, of which at least one is in an unknown order.
fn equal_in_any_order(a: &List, b: &List, depth: u32) -> Val {
    let unknown = Val::Random(Random {
        size: 1,
        fallible: false,
    });
    if a.len() > MAX_SHUFFLED || depth > 3 {
        return unknown;
    }
    let others: Vec<Val> = (0..b.len()).filter_map(|index| b.get(index)).collect();
    let mut all = true;
    let mut matched = vec![false; others.len()];
    for item in a.items() {
        let mut any = false;
        for (other, matched) in others.iter().zip(&mut matched) {
            let equal = item.equal_within(other, depth + 1);
            all &= !equal.is_false() && !equal.is_random();
            any |= !equal.is_false();
            *matched |= !equal.is_false();
        }
        if !any {
            return Val::Bool(false);
        }
    }
    match (all, matched.iter().all(|matched| *matched)) {
        (_, false) => Val::Bool(false),
        (true, true) => Val::Bool(true),
        (false, true) => unknown,
    }
}

fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}
