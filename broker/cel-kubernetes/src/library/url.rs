//! URLs, as Go's `net/url` reads them.

use keyferry_go_formats::url::{UrlFault, parse_request};

use super::Called;
use crate::value::{List, Map, Val};

/// A URL, in the parts that expressions can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: Option<String>,
    fragment: String,
}

/// The result of reading a text as a URL.
pub(super) enum Reading {
    Is(Url),
    /// A URL whose parts cannot be decided here.
    Odd,
    /// Not a URL, with Go's error message.
    IsNot(String),
    /// Whether it is a URL depends on the release of Go.
    Open,
}

/// Reads a URL as in a request line: absolute, or a path. Like Go, it cuts off the fragment only in
/// a second pass.
pub(super) fn read(text: &str) -> Reading {
    match parse_request(text) {
        Ok(_) => {}
        Err(UrlFault::Refused(reason)) => return Reading::IsNot(reason),
        Err(UrlFault::Undetermined(_)) => return Reading::Open,
    }
    // Escapes, users, fragments and non-ASCII characters have rules of their own.
    if !text.is_ascii()
        || text.contains([
            '%', '@', '#', '\\', '"', '<', '>', '^', '`', '{', '|', '}', ' ', '*',
        ])
    {
        return Reading::Odd;
    }
    let (scheme, rest) = scheme(text);
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(r, q)| (r, Some(q.to_owned())));
    if !rest.starts_with('/') {
        return Reading::Odd;
    }
    let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        Some(tail) => tail.split_at(tail.find('/').unwrap_or(tail.len())),
        None => ("", rest),
    };
    let brackets = |text: &str| text.contains(['[', ']']);
    let literal = ipv6_literal(host);
    if (brackets(host) && literal.is_none())
        || brackets(path)
        || query.as_deref().is_some_and(brackets)
    {
        return Reading::Odd;
    }
    let after_name = literal.map_or(host, |(_, after)| after);
    if after_name.matches(':').count() > 1 || (scheme.is_empty() && rest.starts_with("//")) {
        return Reading::Odd;
    }
    Reading::Is(Url {
        scheme: scheme.to_ascii_lowercase(),
        host: host.to_owned(),
        path: path.to_owned(),
        query,
        fragment: String::new(),
    })
}

/// Splits off a plain IPv6 address in brackets; nothing or a port may follow. Releases of Go read
/// other literals differently.
fn ipv6_literal(host: &str) -> Option<(&str, &str)> {
    let (address, after) = host.strip_prefix('[')?.split_once(']')?;
    let plain = !address.contains('.') && address.parse::<std::net::Ipv6Addr>().is_ok();
    (plain && (after.is_empty() || after.starts_with(':')) && !after.contains(['[', ']']))
        .then_some((address, after))
}

/// Splits off the scheme.
fn scheme(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
        .unwrap_or(text.len());
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    text.split_at_checked(end)
        .and_then(|(name, rest)| Some((name, rest.strip_prefix(':')?)))
        .filter(|_| starts)
        .unwrap_or(("", text))
}

pub(super) fn call(overload: &str, args: &[Val]) -> Option<Called> {
    let text = |s: &str| Some(Ok(Val::from(s)));
    let name_and_port = |host: &str| match ipv6_literal(host) {
        Some((address, after)) => (address.to_owned(), after.trim_start_matches(':').to_owned()),
        None => host
            .split_once(':')
            .map_or((host.to_owned(), String::new()), |(h, p)| {
                (h.to_owned(), p.to_owned())
            }),
    };
    match (overload, args) {
        ("string_to_url", [Val::Str(s)]) => Some(match read(s) {
            Reading::Is(url) => Ok(Val::Url(url.into())),
            Reading::IsNot(reason) => Ok(Val::error(format!(
                "URL parse error during conversion from string: {reason}"
            ))),
            Reading::Odd | Reading::Open => Err(format!("the URL {s:?}")),
        }),
        ("is_url_string", [Val::Str(s)]) => Some(match read(s) {
            Reading::Is(_) | Reading::Odd => Ok(Val::Bool(true)),
            Reading::IsNot(_) => Ok(Val::Bool(false)),
            Reading::Open => Err(format!("the URL {s:?}")),
        }),
        ("url_get_scheme", [Val::Url(u)]) => text(&u.scheme),
        ("url_get_host", [Val::Url(u)]) => text(&u.host),
        ("url_get_hostname", [Val::Url(u)]) => text(&name_and_port(&u.host).0),
        ("url_get_port", [Val::Url(u)]) => text(&name_and_port(&u.host).1),
        ("url_get_escaped_path", [Val::Url(u)]) => text(&u.path),
        ("url_get_query", [Val::Url(u)]) => Some(Ok(query(u.query.as_deref().unwrap_or_default()))),
        _ => None,
    }
}

fn query(text: &str) -> Val {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for pair in text
        .split('&')
        .filter(|p| !p.is_empty() && !p.contains(';'))
    {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (key.replace('+', " "), value.replace('+', " "));
        match found.iter_mut().find(|(k, _)| *k == key) {
            Some((_, values)) => values.push(value),
            None => found.push((key, vec![value])),
        }
    }
    let mut map = Map::built();
    for (key, values) in found {
        map.put(Val::from(key), Val::List(List::of_strings(values)));
    }
    Val::Map(map)
}
