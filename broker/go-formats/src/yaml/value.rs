//! The values of a document before its conversion to JSON: maps with keys of any kind.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::source::Mark;
use crate::quote::quote;

/// A scalar's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Integer(i64),
    /// An integer that only a `uint64` can represent.
    Unsigned(u64),
    Float(f64),
    Text(String),
}

/// A value and where it starts.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) start: Mark,
    pub(super) content: Content,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Plain(Plain),
    List(Vec<Value>),
    Map(Map),
}

/// The members of a map, with the places of their keys.
pub(super) type Map = BTreeMap<Key, (Mark, Value)>;

/// A key as Go's maps compare keys: by type and value. No NaN equals another.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) value: Plain,
    /// Distinguishes keys that are NaN.
    pub(super) serial: usize,
}

impl Key {
    fn rank(&self) -> u8 {
        match self.value {
            Plain::Null => 0,
            Plain::Bool(_) => 1,
            Plain::Integer(_) => 2,
            Plain::Unsigned(_) => 3,
            Plain::Float(_) => 4,
            Plain::Text(_) => 5,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.value, &other.value) {
            (Plain::Bool(a), Plain::Bool(b)) => a.cmp(b),
            (Plain::Integer(a), Plain::Integer(b)) => a.cmp(b),
            (Plain::Unsigned(a), Plain::Unsigned(b)) => a.cmp(b),
            (Plain::Text(a), Plain::Text(b)) => a.cmp(b),
            (Plain::Float(a), Plain::Float(b)) if a.is_nan() && b.is_nan() => {
                self.serial.cmp(&other.serial)
            }
            // Zero and negative zero are the same key.
            (Plain::Float(a), Plain::Float(b)) => a
                .partial_cmp(b)
                .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan())),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// Prints a float as `strconv.FormatFloat(value, 'g', -1, …)` does. The input has the shortest
/// digits, as Rust's `{:e}` prints them.
pub(super) fn print_float(scientific: &str) -> String {
    let (sign, unsigned) = scientific
        .strip_prefix('-')
        .map_or(("", scientific), |rest| ("-", rest));
    let Some((mantissa, exponent)) = unsigned.split_once('e') else {
        return match unsigned {
            "inf" => format!("{}Inf", if sign.is_empty() { "+" } else { sign }),
            other => other.to_owned(),
        };
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // For the shortest digits, Go prints an exponent from -5 down and from 6 up.
    if (-4..6).contains(&exponent) {
        return format!("{sign}{}", print_positional(&digits, exponent));
    }
    let (first, rest) = digits.split_at(1.min(digits.len()));
    let point = if rest.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{sign}{first}{point}{rest}e{exponent_sign}{:02}",
        exponent.abs()
    )
}

fn print_positional(digits: &str, exponent: i32) -> String {
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
        return format!("0.{}{digits}", "0".repeat(zeros));
    };
    if whole == 0 {
        return format!("0.{digits}");
    }
    if digits.len() <= whole {
        return format!("{digits}{}", "0".repeat(whole - digits.len()));
    }
    let (before, after) = digits.split_at(whole);
    format!("{before}.{after}")
}

/// The longest text of a value that a message shows.
const MAX_SHOWN: usize = 4096;

/// Prints a value as Go's `%#v` does. Also returns whether the text is complete and certain.
pub(super) fn print_whole(content: &Content) -> (String, bool) {
    let mut out = String::new();
    let certain = print_content(content, &mut out);
    if out.len() <= MAX_SHOWN {
        return (out, certain);
    }
    out.truncate(out.floor_char_boundary(MAX_SHOWN));
    out.push('…');
    (out, false)
}

/// Prints a value as Go's `%#v` does. Returns false if Go orders the keys of a map at random, so
/// that the text is one of several.
fn print_content(content: &Content, out: &mut String) -> bool {
    match content {
        Content::Plain(plain) => {
            print_plain(plain, out);
            true
        }
        Content::List(items) => {
            out.push_str("[]interface {}{");
            let mut certain = true;
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                certain &= print_inner(&item.content, out);
            }
            out.push('}');
            certain
        }
        Content::Map(members) => {
            out.push_str("map[interface {}]interface {}{");
            let mut certain = true;
            for (index, (key, (_, value))) in members.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                print_inner(&Content::Plain(key.value.clone()), out);
                out.push(':');
                certain &= print_inner(&value.content, out);
            }
            out.push('}');
            let mut ranks = members.keys().map(Key::rank).filter(|rank| *rank > 0);
            let first = ranks.next();
            certain && ranks.all(|rank| Some(rank) == first)
        }
    }
}

fn print_inner(content: &Content, out: &mut String) -> bool {
    if let Content::Plain(Plain::Null) = content {
        out.push_str("interface {}(nil)");
        return true;
    }
    print_content(content, out)
}

/// Prints a scalar as `%#v` does.
pub(super) fn print_plain(plain: &Plain, out: &mut String) {
    match plain {
        Plain::Null => out.push_str("<nil>"),
        Plain::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Plain::Integer(value) => {
            let _ = write!(out, "{value}");
        }
        Plain::Unsigned(value) => {
            let _ = write!(out, "{value:#x}");
        }
        Plain::Float(value) => out.push_str(&print_float(&format!("{value:e}"))),
        Plain::Text(text) => out.push_str(&quote(text)),
    }
}
