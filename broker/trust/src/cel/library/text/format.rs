//! `string.format`: the clauses, checked before and carried out after.

use super::super::super::number;
use super::super::super::types::Type;
use super::super::super::value::{List, Val};
use super::super::{Called, Context, convert};

/// A clause of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) enum Clause {
    Text,
    Decimal,
    Fixed(Option<u32>),
    Scientific(Option<u32>),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A piece of a format string.
enum Piece<'t> {
    Plain(&'t str),
    Clause(Clause),
}

impl Clause {
    /// Whether a static type can stand here.
    fn takes(self, t: &Type) -> bool {
        use Type::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, String, Timestamp, Uint};
        match self {
            _ if matches!(t, Dyn) => true,
            Self::Text if matches!(t, List(_) | Map(_) | Type::Of(_) | Null | Timestamp | Duration | Bytes) => true,
            Self::Text => matches!(t, Int | Uint | Double | Bool | String),
            Self::Decimal | Self::Octal => matches!(t, Int | Uint),
            Self::Binary => matches!(t, Int | Uint | Bool),
            Self::Hex { .. } => matches!(t, Int | Uint | String | Bytes),
            Self::Fixed(_) | Self::Scientific(_) => matches!(t, Double | String),
        }
    }

    fn complaint(self, t: &str) -> String {
        match self {
            Self::Text => format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {t}"
            ),
            Self::Decimal => format!("decimal clause can only be used on integers, was given {t}"),
            Self::Fixed(_) => format!("fixed-point clause can only be used on doubles, was given {t}"),
            Self::Scientific(_) => format!("scientific clause can only be used on doubles, was given {t}"),
            Self::Binary => format!("only integers and bools can be formatted as binary, was given {t}"),
            Self::Hex { .. } => format!("only integers, byte buffers, and strings can be formatted as hex, was given {t}"),
            Self::Octal => format!("octal clause can only be used on integers, was given {t}"),
        }
    }
}

/// Checks a constant format string against the types of its arguments. `Err` is what it is refused for.
pub(in crate::cel) fn check(text: &str, types: &[Type], mut nested: impl FnMut(usize) -> Option<String>) -> Result<(), String> {
    let mut used = 0;
    for piece in pieces(text, types.len()) {
        let Piece::Clause(clause) = piece? else { continue };
        let Some(t) = types.get(used) else { return Err(format!("index {used} out of range")) };
        let complaint = if clause.takes(t) { None } else { Some(runtime_name(t)) };
        let complaint = complaint.or_else(|| if clause == Clause::Text { nested(used) } else { None });
        if let Some(t) = complaint {
            return Err(format!("error during formatting: {}", clause.complaint(&t)));
        }
        used += 1;
    }
    if types.len() > used {
        return Err(format!("too many arguments supplied to string.format (expected {used}, got {})", types.len()));
    }
    Ok(())
}

/// Whether a type can be part of what `%s` prints.
pub(in crate::cel) fn printable(t: &Type) -> bool {
    Clause::Text.takes(t)
}

/// The name of a type without its parameters.
pub(in crate::cel) fn runtime_name(t: &Type) -> String {
    match t {
        Type::Any => "google.protobuf.Any".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Null => "null_type".to_owned(),
        Type::List(_) => "list".to_owned(),
        Type::Map(_) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        Type::Of(_) => "type".to_owned(),
        other => other.to_string(),
    }
}

/// Cuts a format string. Every clause needs an argument before it is even read.
fn pieces(text: &str, args: usize) -> impl Iterator<Item = Result<Piece<'_>, String>> {
    let (mut rest, mut used) = (text, 0);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(tail) = rest.strip_prefix('%') else {
            let (plain, after) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
            rest = after;
            return Some(Ok(Piece::Plain(plain)));
        };
        if let Some(after) = tail.strip_prefix('%') {
            rest = after;
            return Some(Ok(Piece::Plain("%")));
        }
        rest = "";
        if used >= args {
            return Some(Err(format!("index {used} out of range")));
        }
        used += 1;
        Some(clause(tail).map(|(clause, after)| {
            rest = after;
            Piece::Clause(clause)
        }))
    })
}

fn clause(tail: &str) -> Result<(Clause, &str), String> {
    if tail.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let mut precision = None;
    let mut tail = tail;
    if let Some(after) = tail.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit());
        let Some(end) = end else {
            return Err(wrong("error while parsing precision: could not find end of precision specifier"));
        };
        let (digits, after) = after.split_at(end);
        precision = Some(digits.parse().map_err(|_| wrong("error while parsing precision: error while converting precision to integer"))?);
        tail = after;
    }
    let mut chars = tail.chars();
    let clause = match chars.next() {
        Some('s') => Clause::Text,
        Some('d') => Clause::Decimal,
        Some('f') => Clause::Fixed(precision),
        Some('e') => Clause::Scientific(precision),
        Some('b') => Clause::Binary,
        Some('x') => Clause::Hex { upper: false },
        Some('X') => Clause::Hex { upper: true },
        Some('o') => Clause::Octal,
        other => return Err(wrong(&format!("unrecognized formatting clause \"{}\"", other.unwrap_or_default()))),
    };
    Ok((clause, chars.as_str()))
}

fn wrong(what: &str) -> String {
    format!("could not parse formatting clause: {what}")
}

/// Carries out a format string.
pub(super) fn format(text: &str, values: &List, context: &Context<'_>) -> Called {
    let mut out = String::new();
    let mut used = 0;
    for piece in pieces(text, values.len()) {
        match piece {
            Err(message) => return Ok(Val::error(message)),
            Ok(Piece::Plain(plain)) => out.push_str(plain),
            Ok(Piece::Clause(clause)) => {
                let value = values.get(used).unwrap_or(Val::Null);
                used += 1;
                match one(clause, &value, context)? {
                    Some(printed) => out.push_str(&printed),
                    None => return Ok(Val::error(format!("error during formatting: {}", clause.complaint(value.type_name())))),
                }
            }
        }
    }
    Ok(Val::from(out))
}

/// One value in one clause; nothing if they do not go together.
fn one(clause: Clause, value: &Val, _context: &Context<'_>) -> Result<Option<String>, String> {
    Ok(match (clause, value) {
        (Clause::Text, Val::Null) => Some("null".to_owned()),
        (Clause::Text, Val::List(_) | Val::Map(_) | Val::Type(_)) => return Err("%s of a list, a map or a type".to_owned()),
        (Clause::Text, Val::Bytes(b)) => std::str::from_utf8(b).ok().map(str::to_owned),
        (Clause::Text, Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Str(_) | Val::Timestamp(_) | Val::Duration(_)) => {
            match convert::convert("string", value)? {
                Val::Str(s) => Some(s.to_string()),
                _ => None,
            }
        }
        (Clause::Decimal, Val::Int(n)) => Some(n.to_string()),
        (Clause::Decimal, Val::Uint(n)) => Some(n.to_string()),
        (Clause::Binary, Val::Int(n)) => Some(signed(*n, format!("{:b}", n.unsigned_abs()))),
        (Clause::Binary, Val::Uint(n)) => Some(format!("{n:b}")),
        (Clause::Binary, Val::Bool(b)) => Some(u8::from(*b).to_string()),
        (Clause::Octal, Val::Int(n)) => Some(signed(*n, format!("{:o}", n.unsigned_abs()))),
        (Clause::Octal, Val::Uint(n)) => Some(format!("{n:o}")),
        (Clause::Hex { upper }, Val::Int(n)) => Some(cased(signed(*n, format!("{:x}", n.unsigned_abs())), upper)),
        (Clause::Hex { upper }, Val::Uint(n)) => Some(cased(format!("{n:x}"), upper)),
        (Clause::Hex { upper }, Val::Str(s)) => Some(cased(s.bytes().map(|b| format!("{b:02x}")).collect(), upper)),
        (Clause::Hex { upper }, Val::Bytes(s)) => Some(cased(s.iter().map(|b| format!("{b:02x}")).collect(), upper)),
        (Clause::Fixed(precision), Val::Double(d)) => Some(fixed(*d, precision)?),
        (Clause::Scientific(_), Val::Double(_)) => return Err("%e of a double".to_owned()),
        (Clause::Fixed(_) | Clause::Scientific(_), Val::Str(s)) if matches!(&**s, "NaN" | "Infinity" | "-Infinity") => {
            return Err("a special number as text".to_owned());
        }
        _ => None,
    })
}

/// `%f` in the English way, with commas between thousands.
fn fixed(d: f64, precision: Option<u32>) -> Result<String, String> {
    let precision = precision.unwrap_or(6);
    if !d.is_finite() || precision > 15 || d.abs() >= 1e15 {
        return Err(format!("%f of {}", number::go_verb_g(d)));
    }
    let plain = format!("{:.*}", precision as usize, d.abs());
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    Ok(if d.is_sign_negative() { format!("-{out}") } else { out })
}

fn signed(n: i64, digits: String) -> String {
    if n < 0 { format!("-{digits}") } else { digits }
}

fn cased(digits: String, upper: bool) -> String {
    if upper { digits.to_uppercase() } else { digits }
}
