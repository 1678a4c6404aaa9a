//! Parses URLs as Go's `url.Parse` does.

use std::net::{IpAddr, Ipv6Addr};

use crate::quote::quote;

/// The parts of a URL that validation uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The scheme, in lower case; empty if there is none.
    pub scheme: String,
    /// Whether there is a user or a password.
    pub user: bool,
    /// Whether there is a query that is not empty.
    pub query: bool,
    /// Whether there is a fragment that is not empty.
    pub fragment: bool,
}

/// Why a text is not a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlFault {
    /// Go refuses the text; contains Go's error message.
    Refused(String),
    /// The result depends on the release of Go that the apiserver was built with.
    Undetermined(&'static str),
}

/// Parses a text as `url.Parse` does.
pub fn parse(text: &str) -> Result<Url, UrlFault> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = parse_part(rest, Reader::Any).map_err(|fault| wrap(fault, rest))?;
    unescape(fragment, Part::Other).map_err(|fault| wrap(fault, text))?;
    url.fragment = !fragment.is_empty();
    Ok(url)
}

/// Parses a text as `url.ParseRequestURI` does. It accepts a URL with a scheme, or a path, and has
/// no fragments.
pub fn parse_request(text: &str) -> Result<Url, UrlFault> {
    let parsed = if text.is_empty() {
        Err(refused("empty url"))
    } else {
        parse_part(text, Reader::Request)
    };
    parsed.map_err(|fault| wrap(fault, text))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Any,
    Request,
}

fn wrap(fault: UrlFault, text: &str) -> UrlFault {
    match fault {
        UrlFault::Refused(reason) => UrlFault::Refused(format!("parse {}: {reason}", quote(text))),
        undetermined @ UrlFault::Undetermined(_) => undetermined,
    }
}

fn refused(reason: impl Into<String>) -> UrlFault {
    UrlFault::Refused(reason.into())
}

fn parse_part(text: &str, reader: Reader) -> Result<Url, UrlFault> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(refused("net/url: invalid control character in URL"));
    }
    let mut url = Url {
        scheme: String::new(),
        user: false,
        query: false,
        fragment: false,
    };
    if text == "*" {
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = !query.is_empty();
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if reader == Reader::Request {
            return Err(refused("invalid URI for request"));
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(refused("first path segment in URL cannot contain colon"));
        }
    }
    let mut path = rest;
    if let Some(authority) = rest
        .strip_prefix("//")
        .filter(|_| !scheme.is_empty() || (reader == Reader::Any && !rest.starts_with("///")))
    {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        url.user = parse_authority(&url.scheme, authority)?;
        path = after;
    }
    unescape(path, Part::Other)?;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), UrlFault> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(refused("missing protocol scheme")),
            b':' => {
                return Ok((
                    text.get(..index).unwrap_or_default(),
                    text.get(index + 1..).unwrap_or_default(),
                ));
            }
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

/// Checks the authority; returns whether it contains user information.
fn parse_authority(scheme: &str, authority: &str) -> Result<bool, UrlFault> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        parse_host(scheme, authority)?;
        return Ok(false);
    };
    parse_host(scheme, host)?;
    if !user
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
    {
        return Err(refused("net/url: invalid userinfo"));
    }
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    unescape(name, Part::Other)?;
    unescape(password, Part::Other)?;
    Ok(true)
}

fn parse_host(scheme: &str, host: &str) -> Result<(), UrlFault> {
    match host.rfind('[') {
        Some(0) => return parse_literal(host),
        Some(_) => {
            return Err(UrlFault::Undetermined(
                "a host with '[' inside depends on the apiserver's Go release",
            ));
        }
        None => {}
    }
    let (first, last) = (host.find(':'), host.rfind(':'));
    if first != last && matches!(scheme, "http" | "https") {
        return Err(UrlFault::Undetermined(
            "a host with several colons depends on the apiserver's Go release",
        ));
    }
    if let Some(colon) = last {
        check_port(host.get(colon..).unwrap_or_default())?;
    }
    unescape(host, Part::Host)
}

fn parse_literal(host: &str) -> Result<(), UrlFault> {
    let Some(close) = host.rfind(']') else {
        return Err(refused("missing ']' in host"));
    };
    check_port(host.get(close + 1..).unwrap_or_default())?;
    let inside = host.get(1..close).unwrap_or_default();
    if inside.parse::<Ipv6Addr>().map(IpAddr::V6).is_ok() {
        return Ok(());
    }
    Err(UrlFault::Undetermined(
        "an IP literal that is no plain IPv6 address depends on the apiserver's Go release",
    ))
}

fn check_port(port: &str) -> Result<(), UrlFault> {
    let digits = port.strip_prefix(':').unwrap_or_default();
    if port.is_empty()
        || (port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Ok(());
    }
    Err(refused(format!("invalid port {} after host", quote(port))))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Other,
}

fn unescape(text: &str, part: Part) -> Result<(), UrlFault> {
    let bytes = text.as_bytes();
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        if *byte == b'%' {
            let escape: Vec<u8> = bytes.iter().skip(index).take(3).copied().collect();
            let hex = escape.len() == 3 && escape.iter().skip(1).all(u8::is_ascii_hexdigit);
            let ascii = escape
                .get(1)
                .is_some_and(|digit| (b'0'..=b'7').contains(digit));
            if !hex || (part == Part::Host && ascii && escape != b"%25") {
                return Err(refused(format!(
                    "invalid URL escape {}",
                    quote(&String::from_utf8_lossy(&escape))
                )));
            }
            index += 3;
            continue;
        }
        if part == Part::Host && *byte < 0x80 && !is_host_byte(*byte) {
            return Err(refused(format!(
                "invalid character {} in host name",
                quote(&char::from(*byte).to_string())
            )));
        }
        index += 1;
    }
    Ok(())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn odd_urls_that_go_accepts() {
        for text in [
            "https://",
            "https:///x",
            "https://a?",
            "https://a#",
            "HTTPS://a",
            "https://a:99999",
            "https://a/",
            "https://[::1]:8",
            "*",
            "",
        ] {
            let url = parse(text).unwrap();
            assert!(!url.query && !url.fragment && !url.user, "{text}");
        }
        assert_eq!(parse("HTTPS://a").unwrap().scheme, "https");
        assert!(parse("https://u:p@a").unwrap().user && parse("https://@a").unwrap().user);
        assert!(
            parse("https://a?b").unwrap().query
                && parse("https://a#b").unwrap().fragment
                && parse("https://a??").unwrap().query
        );
        assert_eq!(parse("a.b/c").unwrap().scheme, "");
    }

    #[test]
    fn refusals_are_in_the_words_of_go() {
        for (text, reason) in [
            (":a", "parse \":a\": missing protocol scheme"),
            (
                "https://a b",
                "parse \"https://a b\": invalid character \" \" in host name",
            ),
            (
                "https://a:x",
                "parse \"https://a:x\": invalid port \":x\" after host",
            ),
            (
                "https://%41",
                "parse \"https://%41\": invalid URL escape \"%41\"",
            ),
            (
                "https://a/%zz",
                "parse \"https://a/%zz\": invalid URL escape \"%zz\"",
            ),
            (
                "https://a/%",
                "parse \"https://a/%\": invalid URL escape \"%\"",
            ),
            (
                "https://a#%1",
                "parse \"https://a#%1\": invalid URL escape \"%1\"",
            ),
            (
                "https://a\n",
                "parse \"https://a\\n\": net/url: invalid control character in URL",
            ),
            (
                "https://[::1",
                "parse \"https://[::1\": missing ']' in host",
            ),
            (
                "1a:b",
                "parse \"1a:b\": first path segment in URL cannot contain colon",
            ),
        ] {
            assert_eq!(
                parse(text),
                Err(UrlFault::Refused(reason.to_owned())),
                "{text}"
            );
        }
        assert!(matches!(
            parse("https://a:1:2"),
            Err(UrlFault::Undetermined(_))
        ));
    }

    #[test]
    fn a_request_is_a_path_or_has_a_scheme() {
        for text in ["/a", "//a b", "a:b", "https://u@a/#f", "*", "https://a/%41"] {
            assert!(parse_request(text).is_ok(), "{text}");
        }
        for (text, reason) in [
            ("", "parse \"\": empty url"),
            ("a", "parse \"a\": invalid URI for request"),
            ("#a", "parse \"#a\": invalid URI for request"),
            ("/%", "parse \"/%\": invalid URL escape \"%\""),
        ] {
            assert_eq!(
                parse_request(text),
                Err(UrlFault::Refused(reason.to_owned())),
                "{text}"
            );
        }
    }
}
