//! Semantic versions, as the Kubernetes library reads them.

use std::cmp::Ordering;

use super::Called;
use crate::value::Val;

/// A semantic version. Build metadata is checked and dropped, because nothing compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Semver {
    numbers: [u64; 3],
    pre: Vec<Part>,
}

/// A part of a prerelease. Numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Semver {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (rest, build) = rest
            .split_once('+')
            .map_or((rest, None), |(r, b)| (r, Some(b)));
        let (patch, pre) = rest
            .split_once('-')
            .map_or((rest, None), |(r, p)| (r, Some(p)));
        if build.is_some_and(|b| !b.split('.').all(is_identifier)) {
            return None;
        }
        let pre = pre.map(|p| p.split('.').map(parse_part).collect::<Option<Vec<_>>>());
        let pre = match pre {
            Some(parts) => parts?,
            None => Vec::new(),
        };
        Some(Self {
            numbers: [
                parse_number(major)?,
                parse_number(minor)?,
                parse_number(patch)?,
            ],
            pre,
        })
    }

    /// Reads a version after removing a `v` and leading zeros, and adding missing numbers.
    fn parse_loosely(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|p| p.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            let starts_with_digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
            *part = if starts_with_digit {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            };
        }
        if parts.len() < 3 && parts.last().is_some_and(|p| p.contains(['+', '-'])) {
            return None;
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    fn compare_versions(&self, other: &Self) -> Ordering {
        // A version without a prerelease sorts after those with one.
        let bare = |v: &Self| v.pre.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| bare(self).cmp(&bare(other)))
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

fn parse_number(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn parse_part(text: &str) -> Option<Part> {
    if !is_identifier(text) {
        return None;
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        parse_number(text).map(Part::Number)
    } else {
        Some(Part::Word(text.to_owned()))
    }
}

pub(super) fn call_semver(overload: &str, args: &[Val]) -> Option<Called> {
    let read = |s: &str, loosely: bool| {
        if loosely {
            Semver::parse_loosely(s)
        } else {
            Semver::parse(s)
        }
    };
    let made = |found: Option<Semver>| {
        found.map_or_else(|| Val::error("invalid version"), |v| Val::Semver(v.into()))
    };
    let at = |v: &Semver, i: usize| {
        Val::Int(v.numbers.get(i).copied().unwrap_or_default().cast_signed())
    };
    Some(Ok(match (overload, args) {
        ("string_to_semver", [Val::Str(s)]) => made(read(s, false)),
        ("string_bool_to_semver", [Val::Str(s), Val::Bool(loosely)]) => made(read(s, *loosely)),
        ("is_semver_string", [Val::Str(s)]) => Val::Bool(read(s, false).is_some()),
        ("is_semver_string_bool", [Val::Str(s), Val::Bool(loosely)]) => {
            Val::Bool(read(s, *loosely).is_some())
        }
        ("semver_major", [Val::Semver(v)]) => at(v, 0),
        ("semver_minor", [Val::Semver(v)]) => at(v, 1),
        ("semver_patch", [Val::Semver(v)]) => at(v, 2),
        ("semver_is_greater_than", [Val::Semver(a), Val::Semver(b)]) => {
            Val::Bool(a.compare_versions(b) == Ordering::Greater)
        }
        ("semver_is_less_than", [Val::Semver(a), Val::Semver(b)]) => {
            Val::Bool(a.compare_versions(b) == Ordering::Less)
        }
        ("semver_compare_to", [Val::Semver(a), Val::Semver(b)]) => {
            Val::Int(a.compare_versions(b) as i64)
        }
        _ => return None,
    }))
}
