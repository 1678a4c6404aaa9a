//! URLs, as Go's `net/url` reads them.

use keyferry_go_formats::url::{self, UrlFault, parse, parse_request};

use super::Called;
use crate::value::{List, Map, Val};

/// A URL. Two are equal if they are written alike.
#[derive(Debug, Clone)]
pub(crate) struct Url(url::Url);

impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.0.text() == other.0.text()
    }
}

/// Returns why a text is no URL as in a request line: absolute, or a path.
pub(super) fn url_fault(text: &str) -> Result<Option<String>, String> {
    match parse_request(text) {
        Ok(_) => Ok(None),
        Err(UrlFault::Refused(reason)) => Ok(Some(reason)),
        Err(UrlFault::Undetermined(_)) => Err(undetermined_reason(text)),
    }
}

/// Reads a text as a URL. Like the API server, it reads it as in a request line, and then again
/// with a fragment.
fn read_url(text: &str) -> Called {
    match parse_request(text).and_then(|_| parse(text)) {
        Ok(url) => Ok(Val::Url(Url(url).into())),
        Err(UrlFault::Refused(reason)) => Ok(Val::error(format!(
            "URL parse error during conversion from string: {reason}"
        ))),
        Err(UrlFault::Undetermined(_)) => Err(undetermined_reason(text)),
    }
}

/// Why a text is undetermined whose reading depends on the release of Go.
fn undetermined_reason(text: &str) -> String {
    format!("the URL {text:?}")
}

pub(super) fn call_url(overload: &str, args: &[Val]) -> Option<Called> {
    let text = |s: &str| Some(Ok(Val::from(s)));
    let host = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map(Val::from);
        Some(text.map_err(|_| "a host with bytes that are no text".to_owned()))
    };
    match (overload, args) {
        ("string_to_url", [Val::Str(s)]) => Some(read_url(s)),
        ("is_url_string", [Val::Str(s)]) => {
            Some(url_fault(s).map(|fault| Val::Bool(fault.is_none())))
        }
        ("url_get_scheme", [Val::Url(u)]) => text(&u.0.scheme),
        ("url_get_host", [Val::Url(u)]) => host(&u.0.host),
        ("url_get_hostname", [Val::Url(u)]) => host(u.0.hostname()),
        ("url_get_port", [Val::Url(u)]) => host(u.0.port()),
        ("url_get_escaped_path", [Val::Url(u)]) => text(&u.0.escaped_path()),
        ("url_get_query", [Val::Url(u)]) => Some(read_query(&u.0.query)),
        _ => None,
    }
}

/// Reads a query. Like Go, it leaves out pairs with a broken escape or a semicolon.
fn read_query(text: &str) -> Called {
    let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
    for pair in text
        .split('&')
        .filter(|p| !p.is_empty() && !p.contains(';'))
    {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (decode_component(key), decode_component(value)) else {
            continue;
        };
        let (Ok(key), Ok(value)) = (String::from_utf8(key), String::from_utf8(value)) else {
            return Err("a query with bytes that are no text".to_owned());
        };
        match parameters.iter_mut().find(|(k, _)| *k == key) {
            Some((_, values)) => values.push(value),
            None => parameters.push((key, vec![value])),
        }
    }
    let mut map = Map::built();
    for (key, values) in parameters {
        map.put(Val::from(key), Val::List(List::of_strings(values)));
    }
    Ok(Val::Map(map))
}

/// Decodes a part of a query. `None` if an escape is broken.
fn decode_component(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    Some(out)
}
