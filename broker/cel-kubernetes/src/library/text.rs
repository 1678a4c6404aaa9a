//! Functions on strings and regular expressions.

mod format;

pub(crate) use format::{check_format, is_printable, runtime_name};

use keyferry_go_formats::quote::short_escape;

use super::{Called, Context, pattern};
use crate::Minor;
use crate::value::{List, Val};

/// The longest text that is built.
const MAX_TEXT: usize = 4 << 20;

pub(super) fn call_text(overload: &str, args: &[Val], context: &Context<'_>) -> Option<Called> {
    let s = match args.first() {
        Some(Val::Str(s)) => &**s,
        Some(Val::List(list)) => return join(overload, list, args.get(1)).map(Ok),
        _ => return None,
    };
    let rest = args.get(1..).unwrap_or_default();
    Some(Ok(match (overload, rest) {
        ("contains_string" | "starts_with_string" | "ends_with_string", [Val::Str(part)]) => {
            Val::Bool(match overload {
                "contains_string" => s.contains(&**part),
                "starts_with_string" => s.starts_with(&**part),
                _ => s.ends_with(&**part),
            })
        }
        ("string_char_at_int", [Val::Int(at)]) => char_at(s, *at),
        ("string_index_of_string", [Val::Str(part)]) => index_of(s, part, 0, context.minor),
        ("string_index_of_string_int", [Val::Str(part), Val::Int(from)]) => {
            index_of(s, part, *from, context.minor)
        }
        ("string_last_index_of_string", [Val::Str(part)]) => {
            last_index_of(s, part, None, context.minor)
        }
        ("string_last_index_of_string_int", [Val::Str(part), Val::Int(from)]) => {
            last_index_of(s, part, Some(*from), context.minor)
        }
        ("string_lower_ascii", []) => Val::from(s.to_ascii_lowercase()),
        ("string_upper_ascii", []) => Val::from(s.to_ascii_uppercase()),
        ("string_trim", []) => Val::from(s.trim_matches(go_space)),
        ("string_substring_int", [Val::Int(from)]) => substring(s, *from, None),
        ("string_substring_int_int", [Val::Int(from), Val::Int(to)]) => {
            substring(s, *from, Some(*to))
        }
        ("string_replace_string_string", [Val::Str(old), Val::Str(new)]) => {
            return Some(replace(s, old, new, -1));
        }
        ("string_replace_string_string_int", [Val::Str(old), Val::Str(new), Val::Int(n)]) => {
            return Some(replace(s, old, new, *n));
        }
        ("string_split_string", [Val::Str(by)]) => Val::List(List::of_strings(split(s, by, -1))),
        ("string_split_string_int", [Val::Str(by), Val::Int(n)]) => {
            Val::List(List::of_strings(split(s, by, *n)))
        }
        ("string_find_string", [Val::Str(written)]) => {
            return Some(pattern::with(context, written, |p| {
                Ok(Val::from(p.find_all(s, 1)?.pop().unwrap_or_default()))
            }));
        }
        ("string_find_all_string", [Val::Str(written)]) => {
            return Some(pattern::with(context, written, |p| {
                Ok(Val::List(List::of_strings(p.find_all(s, -1)?)))
            }));
        }
        ("string_find_all_string_int", [Val::Str(written), Val::Int(n)]) => {
            return Some(pattern::with(context, written, |p| {
                Ok(Val::List(List::of_strings(p.find_all(s, *n)?)))
            }));
        }
        ("string_format", [Val::List(values)]) => {
            return Some(format::format_values(s, values, context.minor));
        }
        ("strings_quote", []) => Val::from(quote(s)),
        _ => return None,
    }))
}

fn join(overload: &str, list: &List, separator: Option<&Val>) -> Option<Val> {
    let separator = match (overload, separator) {
        ("list_join", None) => "",
        ("list_join_string", Some(Val::Str(s))) => s,
        _ => return None,
    };
    let mut out = String::new();
    for (i, item) in list.items().iter().enumerate() {
        let Val::Str(text) = item else {
            return Some(Val::error(format!("join: invalid input: {item}")));
        };
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    Some(Val::from(out))
}

fn out_of_range(at: i64) -> Val {
    Val::error(format!("index out of range: {at}"))
}

fn char_at(s: &str, at: i64) -> Val {
    let Ok(index) = usize::try_from(at) else {
        return out_of_range(at);
    };
    match s.chars().nth(index) {
        Some(c) => Val::from(c.to_string()),
        None if s.chars().count() == index => Val::from(""),
        None => out_of_range(at),
    }
}

fn index_of(s: &str, part: &str, from: i64, minor: Minor) -> Val {
    let chars: Vec<char> = s.chars().collect();
    let part: Vec<char> = part.chars().collect();
    if part.is_empty() {
        return empty_part(chars.len(), from, minor);
    }
    let Ok(start) = usize::try_from(from) else {
        return out_of_range(from);
    };
    if minor < Minor::V1_32 && start >= chars.len() {
        return out_of_range(from);
    }
    let found = chars
        .windows(part.len())
        .enumerate()
        .skip(start)
        .find(|(_, w)| *w == part);
    Val::Int(found.and_then(|(i, _)| i64::try_from(i).ok()).unwrap_or(-1))
}

fn last_index_of(s: &str, part: &str, from: Option<i64>, minor: Minor) -> Val {
    let chars: Vec<char> = s.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let length = i64::try_from(chars.len()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return from.map_or(Val::Int(length), |from| {
            empty_part(chars.len(), from, minor)
        });
    }
    let from = match from {
        None if chars.len() < part.len() && minor >= Minor::V1_34 => return Val::Int(-1),
        None => length - 1,
        Some(from) => from,
    };
    let Ok(start) = usize::try_from(from) else {
        return out_of_range(from);
    };
    if start >= chars.len() {
        return if minor < Minor::V1_32 {
            out_of_range(from)
        } else {
            Val::Int(-1)
        };
    }
    let found = chars
        .windows(part.len())
        .enumerate()
        .take(start.saturating_add(1))
        .rfind(|(_, w)| *w == part);
    Val::Int(found.and_then(|(i, _)| i64::try_from(i).ok()).unwrap_or(-1))
}

/// Returns where an empty text is found: at the offset. From 1.37 on, a negative offset is an
/// error, and one beyond the end becomes the end.
fn empty_part(length: usize, from: i64, minor: Minor) -> Val {
    if minor < Minor::V1_37 {
        return Val::Int(from);
    }
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if from < 0 {
        out_of_range(from)
    } else {
        Val::Int(from.min(length))
    }
}

fn substring(s: &str, from: i64, to: Option<i64>) -> Val {
    let length = i64::try_from(s.chars().count()).unwrap_or(i64::MAX);
    let to_index = |at: i64| usize::try_from(at).ok().filter(|_| at <= length);
    if let Some(to) = to.filter(|to| from > *to) {
        return Val::error(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let Some(start) = to_index(from) else {
        return out_of_range(from);
    };
    let to = to.unwrap_or(length);
    let Some(end) = to_index(to) else {
        return out_of_range(to);
    };
    Val::from(
        s.chars()
            .skip(start)
            .take(end.saturating_sub(start))
            .collect::<String>(),
    )
}

fn replace(s: &str, old: &str, new: &str, n: i64) -> Called {
    let times = if n < 0 {
        s.len() + 1
    } else {
        usize::try_from(n).unwrap_or(usize::MAX).min(s.len() + 1)
    };
    if times.saturating_mul(new.len()).saturating_add(s.len()) > MAX_TEXT {
        return Err("a text of many megabytes".to_owned());
    }
    Ok(Val::from(s.replacen(old, new, times)))
}

/// Splits as Go's `SplitN` does: an empty separator cuts after every character.
fn split(s: &str, by: &str, n: i64) -> Vec<String> {
    if n == 0 {
        return Vec::new();
    }
    let limit = usize::try_from(n).unwrap_or(usize::MAX);
    if !by.is_empty() {
        return s.splitn(limit, by).map(str::to_owned).collect();
    }
    let mut parts = Vec::new();
    let mut rest = s;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest.to_owned());
            break;
        }
        parts.push(c.to_string());
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    parts
}

/// Whether Go's `TrimSpace` removes the character.
fn go_space(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}'
    ) || matches!(
        c,
        '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
