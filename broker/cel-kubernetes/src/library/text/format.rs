//! Implements `string.format`: checks the clauses at compile time, and prints values at run time.

use keyferry_go_formats::quote::quote;

use crate::Minor;
use crate::library::{Called, convert};
use crate::number;
use crate::types::Type;
use crate::value::{List, Map, Val};

/// The deepest nesting of a value that is printed.
const MAX_DEPTH: u32 = 150;

/// The most digits of `%f` that are printed here.
const MAX_PRECISION: u32 = 400;

/// The widest `%e` that is printed here.
const MAX_WIDTH: usize = 1 << 16;

/// A clause of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
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
    /// Whether the clause accepts a static type.
    fn accepts_type(self, t: &Type) -> bool {
        use Type::{
            Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, String, Timestamp, Uint,
        };
        let t = t.value();
        match self {
            _ if matches!(t, Dyn) => true,
            Self::Text
                if matches!(
                    t,
                    List(_) | Map(_) | Type::Of(_) | Null | Timestamp | Duration | Bytes
                ) =>
            {
                true
            }
            Self::Text => matches!(t, Int | Uint | Double | Bool | String),
            Self::Decimal | Self::Octal => matches!(t, Int | Uint),
            Self::Binary => matches!(t, Int | Uint | Bool),
            Self::Hex { .. } => matches!(t, Int | Uint | String | Bytes),
            Self::Fixed(_) | Self::Scientific(_) => matches!(t, Double | String),
        }
    }

    fn type_complaint(self, t: &str) -> String {
        match self {
            Self::Text => format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps, was given {t}"
            ),
            Self::Decimal => format!("decimal clause can only be used on integers, was given {t}"),
            Self::Fixed(_) => {
                format!("fixed-point clause can only be used on doubles, was given {t}")
            }
            Self::Scientific(_) => {
                format!("scientific clause can only be used on doubles, was given {t}")
            }
            Self::Binary => {
                format!("only integers and bools can be formatted as binary, was given {t}")
            }
            Self::Hex { .. } => format!(
                "only integers, byte buffers, and strings can be formatted as hex, was given {t}"
            ),
            Self::Octal => format!("octal clause can only be used on integers, was given {t}"),
        }
    }
}

/// Checks a constant format string against the types of its arguments. `Err` is the reason to
/// refuse it.
pub(crate) fn check_format(
    text: &str,
    types: &[Type],
    mut nested: impl FnMut(usize) -> Option<String>,
) -> Result<(), String> {
    let mut used = 0;
    for piece in split_pieces(text, types.len()) {
        let Piece::Clause(clause) = piece? else {
            continue;
        };
        let Some(t) = types.get(used) else {
            return Err(format!("index {used} out of range"));
        };
        let complaint = if clause.accepts_type(t) {
            None
        } else {
            Some(runtime_name(t))
        };
        let complaint = complaint.or_else(|| {
            if clause == Clause::Text {
                nested(used)
            } else {
                None
            }
        });
        if let Some(t) = complaint {
            return Err(format!(
                "error during formatting: {}",
                clause.type_complaint(&t)
            ));
        }
        used += 1;
    }
    if types.len() > used {
        return Err(format!(
            "too many arguments supplied to string.format (expected {used}, got {})",
            types.len()
        ));
    }
    Ok(())
}

/// Whether a type can be part of what `%s` prints.
pub(crate) fn is_printable(t: &Type) -> bool {
    Clause::Text.accepts_type(t)
}

/// Returns the name of a type without its parameters.
pub(crate) fn runtime_name(t: &Type) -> String {
    match t.value() {
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

/// Splits a format string into pieces. Every clause needs an argument before it is read.
fn split_pieces(text: &str, args: usize) -> impl Iterator<Item = Result<Piece<'_>, String>> {
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
        Some(read_clause(tail).map(|(clause, after)| {
            rest = after;
            Piece::Clause(clause)
        }))
    })
}

fn read_clause(tail: &str) -> Result<(Clause, &str), String> {
    if tail.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let mut precision = None;
    let mut tail = tail;
    if let Some(after) = tail.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit());
        let Some(end) = end else {
            return Err(wrong_clause(
                "error while parsing precision: could not find end of precision specifier",
            ));
        };
        let (digits, after) = after.split_at(end);
        precision = Some(digits.parse().map_err(|_| {
            wrong_clause(
                "error while parsing precision: error while converting precision to integer",
            )
        })?);
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
        other => {
            return Err(wrong_clause(&format!(
                "unrecognized formatting clause \"{}\"",
                other.unwrap_or_default()
            )));
        }
    };
    Ok((clause, chars.as_str()))
}

fn wrong_clause(what: &str) -> String {
    format!("could not parse formatting clause: {what}")
}

/// Prints values by a format string.
pub(super) fn format_values(text: &str, values: &List, minor: Minor) -> Called {
    let mut out = String::new();
    let mut used = 0;
    for piece in split_pieces(text, values.len()) {
        match piece {
            Err(message) => return Ok(Val::error(message)),
            Ok(Piece::Plain(plain)) => out.push_str(plain),
            Ok(Piece::Clause(clause)) => {
                let value = values.get(used).unwrap_or(Val::Null);
                used += 1;
                match print_clause(clause, &value, minor) {
                    Ok(printed) => out.push_str(&printed),
                    Err(Unprinted::Error(why)) => {
                        return Ok(Val::error(format!("error during formatting: {why}")));
                    }
                    Err(Unprinted::Beyond(reason)) => return Err(reason),
                }
            }
        }
    }
    Ok(Val::from(out))
}

/// Why a value cannot be printed.
enum Unprinted {
    /// An error; its text follows `error during formatting: `.
    Error(String),
    /// How the value is printed cannot be decided here.
    Beyond(String),
}

type Printing = Result<String, Unprinted>;

/// Returns the error of a clause that does not accept a value.
fn unfit_value<T>(clause: Clause, value: &Val) -> Result<T, Unprinted> {
    Err(Unprinted::Error(clause.type_complaint(value.type_name())))
}

/// Prints one value by one clause.
fn print_clause(clause: Clause, value: &Val, minor: Minor) -> Printing {
    Ok(match (clause, value) {
        (Clause::Text, _) => return text_of(value, 0),
        (Clause::Decimal, Val::Int(n)) => n.to_string(),
        (Clause::Decimal, Val::Uint(n)) => n.to_string(),
        (Clause::Binary, Val::Int(n)) => with_sign(*n, format!("{:b}", n.unsigned_abs())),
        (Clause::Binary, Val::Uint(n)) => format!("{n:b}"),
        (Clause::Binary, Val::Bool(b)) => u8::from(*b).to_string(),
        (Clause::Octal, Val::Int(n)) => with_sign(*n, format!("{:o}", n.unsigned_abs())),
        (Clause::Octal, Val::Uint(n)) => format!("{n:o}"),
        (Clause::Hex { upper }, Val::Int(n)) => {
            with_case(with_sign(*n, format!("{:x}", n.unsigned_abs())), upper)
        }
        (Clause::Hex { upper }, Val::Uint(n)) => with_case(format!("{n:x}"), upper),
        (Clause::Hex { upper }, Val::Str(s)) => {
            with_case(s.bytes().map(|b| format!("{b:02x}")).collect(), upper)
        }
        (Clause::Hex { upper }, Val::Bytes(s)) => {
            with_case(s.iter().map(|b| format!("{b:02x}")).collect(), upper)
        }
        (Clause::Fixed(precision), _) => match special_double(value) {
            Some(d) => print_fixed(d, precision)?,
            None => return unfit_value(clause, value),
        },
        (Clause::Scientific(precision), _) => match special_double(value) {
            Some(d) => print_scientific(d, precision, minor),
            None => return unfit_value(clause, value),
        },
        _ => return unfit_value(clause, value),
    })
}

/// Reads a double, or one of the three texts that mean one.
fn special_double(value: &Val) -> Option<f64> {
    match value {
        Val::Double(d) => Some(*d),
        Val::Str(s) => match &**s {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Prints a value as `%s`.
fn text_of(value: &Val, depth: u32) -> Printing {
    match value {
        _ if depth > MAX_DEPTH => Err(Unprinted::Beyond("%s of what nests deep".to_owned())),
        Val::List(list) => {
            let items = list
                .items()
                .iter()
                .map(|item| literal_of(item, depth + 1))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(format!("[{}]", items.join(", ")))
        }
        Val::Map(map) => map_of(map, depth),
        Val::Null => Ok("null".to_owned()),
        Val::Type(name) => Ok(name.to_string()),
        Val::Bool(_)
        | Val::Int(_)
        | Val::Uint(_)
        | Val::Double(_)
        | Val::Str(_)
        | Val::Bytes(_)
        | Val::Timestamp(_)
        | Val::Duration(_) => {
            match convert::convert("string", value).map_err(Unprinted::Beyond)? {
                Val::Str(text) => Ok(text.to_string()),
                other => Err(Unprinted::Error(format!(
                    "could not convert argument {} to string",
                    quote(&other.to_string())
                ))),
            }
        }
        _ => unfit_value(Clause::Text, value),
    }
}

/// Prints a map, sorted by its printed keys.
fn map_of(map: &Map, depth: u32) -> Printing {
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.entries() {
        let key = match key {
            Val::Str(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_) => literal_of(key, depth + 1)?,
            other => {
                return Err(Unprinted::Error(format!(
                    "no formatting function for map key of type {}",
                    other.type_name()
                )));
            }
        };
        // Go looks up each key again, which changes the escaped name of a claim.
        if map.is_unescaping() && key.contains("__") {
            return Err(Unprinted::Beyond(
                "%s of a map with escaped names".to_owned(),
            ));
        }
        entries.push((key, literal_of(value, depth + 1)?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let printed: Vec<String> = entries
        .into_iter()
        .map(|(key, value)| format!("{key}:{value}"))
        .collect();
    Ok(format!("{{{}}}", printed.join(", ")))
}

/// Prints a value within a list or a map, as a literal of CEL.
fn literal_of(value: &Val, depth: u32) -> Printing {
    match value {
        Val::Str(text) => Ok(quote(text)),
        Val::Bytes(_) => text_of(value, depth).map(|text| format!("b{}", quote(&text))),
        Val::Double(d) if d.is_finite() => Ok(format!("{d:.6}")),
        Val::Double(d) => Ok(quote(&number::go_verb_g(*d))),
        Val::Timestamp(_) => {
            text_of(value, depth).map(|text| format!("timestamp({})", quote(&text)))
        }
        Val::Duration(_) => text_of(value, depth).map(|text| format!("duration({})", quote(&text))),
        Val::Null
        | Val::Bool(_)
        | Val::Int(_)
        | Val::Uint(_)
        | Val::Type(_)
        | Val::List(_)
        | Val::Map(_) => text_of(value, depth),
        other => Err(Unprinted::Error(format!(
            "no formatting function for {}",
            other.type_name()
        ))),
    }
}

/// Returns the English text for doubles that are not finite.
fn no_number(d: f64) -> Option<&'static str> {
    match d {
        _ if d.is_nan() => Some("NaN"),
        f64::INFINITY => Some("\u{221e}"),
        f64::NEG_INFINITY => Some("-\u{221e}"),
        _ => None,
    }
}

/// Prints `%f` in English style, with commas between thousands. Zero has no sign.
fn print_fixed(d: f64, precision: Option<u32>) -> Printing {
    let precision = precision.unwrap_or(6);
    if let Some(word) = no_number(d) {
        return Ok(word.to_owned());
    }
    if precision > MAX_PRECISION {
        return Err(Unprinted::Beyond(format!("%f with {precision} digits")));
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
    Ok(if d < 0.0 { format!("-{out}") } else { out })
}

/// Prints `%e` in English style. cel-go uses the precision as a width, so there are always six
/// digits.
fn print_scientific(d: f64, width: Option<u32>, minor: Minor) -> String {
    let printed = no_number(d).map_or_else(|| scientific_digits(d, minor), str::to_owned);
    let missing = (width.unwrap_or(6) as usize)
        .min(MAX_WIDTH)
        .saturating_sub(printed.chars().count());
    format!("{}{printed}", " ".repeat(missing))
}

fn scientific_digits(d: f64, minor: Minor) -> String {
    let written = format!("{:.6e}", d.abs());
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let raised = |c: char| match c {
        '-' => '\u{207b}',
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or_default()).unwrap_or(digit),
    };
    let (minus, digits) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |digits| ("-", digits));
    let exponent: String = format!("{minus}{digits:0>2}").chars().map(raised).collect();
    let sign = if d < 0.0 { "-" } else { "" };
    // The library of 1.33 has new English rules: no space.
    let space = if minor < Minor::V1_33 { "\u{202f}" } else { "" };
    format!("{sign}{mantissa}{space}\u{d7}{space}10{exponent}")
}

fn with_sign(n: i64, digits: String) -> String {
    if n < 0 { format!("-{digits}") } else { digits }
}

fn with_case(digits: String, upper: bool) -> String {
    if upper { digits.to_uppercase() } else { digits }
}
