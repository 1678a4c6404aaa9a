//! Parses URLs as Go's `url.Parse` does.

mod text;

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::GoRelease;
use crate::quote::quote;

/// The parts of a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url {
    /// The scheme, in lower case; empty if there is none.
    pub scheme: String,
    /// What follows the scheme of a URL without a path, as in `mailto:a@b`.
    pub opaque: String,
    /// The user and the password.
    pub user: Option<User>,
    /// The host and its port, unescaped; empty if there is none.
    pub host: Vec<u8>,
    /// The path, as written.
    pub path: String,
    /// The query, as written; empty if there is none.
    pub query: String,
    /// The fragment, as written; empty if there is none.
    pub fragment: String,
    /// Whether the URL ends with a lone question mark.
    pub empty_query: bool,
    /// Whether the path follows the scheme directly, as in `file:/a`.
    pub without_host: bool,
}

/// The user information of a URL, unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name of the user.
    pub name: Vec<u8>,
    /// The password, if a colon precedes it.
    pub password: Option<Vec<u8>>,
}

/// Why a text is not a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlFault {
    /// Go refuses the text; contains Go's error message.
    Refused(String),
    /// The result depends on the release of Go that the apiserver was built with.
    Undetermined(&'static str),
}

/// Why a release of Go, or every one, does not parse a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParseFault {
    /// Go refuses the text; contains Go's error message.
    Refused(String),
    /// Go refuses the text; contains a message that is only close to Go's.
    Near(String),
    /// The result depends on the release of Go, or on its patch release.
    Undetermined(&'static str),
}

impl From<ParseFault> for UrlFault {
    fn from(fault: ParseFault) -> Self {
        match fault {
            ParseFault::Refused(reason) | ParseFault::Near(reason) => Self::Refused(reason),
            ParseFault::Undetermined(reason) => Self::Undetermined(reason),
        }
    }
}

/// Parses a text as `url.Parse` does in every release of Go.
pub fn parse(text: &str) -> Result<Url, UrlFault> {
    Ok(parse_whole(text, None)?)
}

/// Parses a text as `url.Parse` of that release of Go does.
pub(crate) fn parse_as(text: &str, go: GoRelease) -> Result<Url, ParseFault> {
    parse_whole(text, Some(go))
}

/// Without a release, what depends on one is undetermined.
fn parse_whole(text: &str, go: Option<GoRelease>) -> Result<Url, ParseFault> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = parse_part(rest, Reader::Any, go).map_err(|fault| wrap_fault(fault, rest))?;
    unescape_part(fragment, Part::Other).map_err(|fault| wrap_fault(fault, text))?;
    url.fragment = fragment.to_owned();
    Ok(url)
}

/// Parses a text as `url.ParseRequestURI` does. It accepts a URL with a scheme, or a path, and has
/// no fragments.
pub fn parse_request(text: &str) -> Result<Url, UrlFault> {
    let parsed = if text.is_empty() {
        Err(refuse_url("empty url"))
    } else {
        parse_part(text, Reader::Request, None)
    };
    Ok(parsed.map_err(|fault| wrap_fault(fault, text))?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Any,
    Request,
}

fn wrap_fault(fault: ParseFault, text: &str) -> ParseFault {
    match fault {
        ParseFault::Refused(reason) => {
            ParseFault::Refused(format!("parse {}: {reason}", quote(text)))
        }
        ParseFault::Near(reason) => ParseFault::Near(format!("parse {}: {reason}", quote(text))),
        undetermined @ ParseFault::Undetermined(_) => undetermined,
    }
}

fn refuse_url(reason: impl Into<String>) -> ParseFault {
    ParseFault::Refused(reason.into())
}

fn parse_part(text: &str, reader: Reader, go: Option<GoRelease>) -> Result<Url, ParseFault> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(refuse_url("net/url: invalid control character in URL"));
    }
    let mut url = Url::default();
    if text == "*" {
        text.clone_into(&mut url.path);
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    url.empty_query = rest.find('?').is_some_and(|at| at + 1 == rest.len());
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if reader == Reader::Request {
            return Err(refuse_url("invalid URI for request"));
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(refuse_url("first path segment in URL cannot contain colon"));
        }
    }
    let mut path = rest;
    if let Some(authority) = rest
        .strip_prefix("//")
        .filter(|_| !scheme.is_empty() || (reader == Reader::Any && !rest.starts_with("///")))
    {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        (url.user, url.host) = parse_authority(&url.scheme, authority, go)?;
        path = after;
    } else {
        url.without_host = !scheme.is_empty();
    }
    unescape_part(path, Part::Other)?;
    path.clone_into(&mut url.path);
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), ParseFault> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(refuse_url("missing protocol scheme")),
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

/// Returns the user information of the authority, and its host.
fn parse_authority(
    scheme: &str,
    authority: &str,
    go: Option<GoRelease>,
) -> Result<(Option<User>, Vec<u8>), ParseFault> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, parse_host(scheme, authority, go)?));
    };
    let host = parse_host(scheme, host, go)?;
    if !user
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
    {
        return Err(refuse_url("net/url: invalid userinfo"));
    }
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    let user = User {
        name: unescape_part(name, Part::Other)?,
        password: password
            .map(|password| unescape_part(password, Part::Other))
            .transpose()?,
    };
    Ok((Some(user), host))
}

fn parse_host(scheme: &str, host: &str, go: Option<GoRelease>) -> Result<Vec<u8>, ParseFault> {
    match (host.rfind('['), go) {
        (Some(0), _) => return parse_literal(host, go),
        // The fix of 1.24 drops what is before the bracket.
        (Some(open), Some(GoRelease::V1_24Fixed)) => {
            return parse_literal(host.get(open..).unwrap_or_default(), go);
        }
        (Some(_), None | Some(GoRelease::V1_25Fixed | GoRelease::V1_26)) => {
            return Err(ParseFault::Undetermined(
                "a host with '[' inside depends on the apiserver's Go release",
            ));
        }
        // Before the fixes, the first bracket counts.
        (Some(_), Some(_)) if host.starts_with('[') => return parse_literal(host, go),
        (Some(_), Some(_)) | (None, _) => {}
    }
    let (first, last) = (host.find(':'), host.rfind(':'));
    let web = matches!(scheme, "http" | "https");
    let colon = match go {
        None if first != last && web => {
            return Err(ParseFault::Undetermined(
                "a host with several colons depends on the apiserver's Go release",
            ));
        }
        Some(GoRelease::V1_26) if web => first,
        Some(GoRelease::V1_26) if first != last && !scheme.starts_with("postgres") => {
            return Err(ParseFault::Undetermined(
                "a host with several colons depends on the patch release of Go",
            ));
        }
        _ => last,
    };
    if let Some(colon) = colon {
        check_port(host.get(colon..).unwrap_or_default())?;
    }
    unescape_part(host, Part::Host)
}

/// Parses an IP address in brackets, and the port after it.
fn parse_literal(host: &str, go: Option<GoRelease>) -> Result<Vec<u8>, ParseFault> {
    let Some(close) = host.rfind(']') else {
        return Err(refuse_url("missing ']' in host"));
    };
    let (inside, port) = (
        host.get(1..close).unwrap_or_default(),
        host.get(close + 1..).unwrap_or_default(),
    );
    check_port(port)?;
    let port = unescape_part(port, Part::Host)?;
    // The zone begins with the escaped percent sign (RFC 6874).
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let unescaped = [
        unescape_part(address, Part::Host)?,
        unescape_part(zone, Part::Zone)?,
    ]
    .concat();
    let whole = [b"[", unescaped.as_slice(), b"]", &port].concat();
    let checks_address = go.is_none_or(GoRelease::has_fixes_of_2025);
    if !checks_address || inside.parse::<Ipv6Addr>().is_ok() {
        return Ok(whole);
    }
    let text = String::from_utf8_lossy(&unescaped);
    let (address, zone) = text.split_once('%').unwrap_or((&text, "-"));
    let address = address.parse::<Ipv6Addr>().ok();
    let accepted = match go {
        // Every release accepts a plain address with a zone.
        None => address.is_some_and(|address| address.to_ipv4_mapped().is_none()),
        Some(_) => address.is_some(),
    };
    if accepted && !zone.is_empty() {
        return Ok(whole);
    }
    if go.is_none() {
        return Err(ParseFault::Undetermined(
            "an IP literal that is no plain IPv6 address depends on the apiserver's Go release",
        ));
    }
    if text.parse::<Ipv4Addr>().is_ok() {
        return Err(refuse_url("invalid IP-literal"));
    }
    Err(ParseFault::Near("invalid host".to_owned()))
}

fn check_port(port: &str) -> Result<(), ParseFault> {
    let digits = port.strip_prefix(':').unwrap_or_default();
    if port.is_empty()
        || (port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Ok(());
    }
    Err(refuse_url(format!(
        "invalid port {} after host",
        quote(port)
    )))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    /// The zone of an IPv6 address.
    Zone,
    Other,
}

/// Replaces escapes by their bytes.
fn unescape_part(text: &str, part: Part) -> Result<Vec<u8>, ParseFault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        if *byte == b'%' {
            let escape = rest.get(..3).unwrap_or(rest);
            let Some(value) = unescaped_byte(escape, part) else {
                return Err(refuse_url(format!(
                    "invalid URL escape {}",
                    quote(&String::from_utf8_lossy(escape))
                )));
            };
            out.push(value);
            rest = rest.get(3..).unwrap_or_default();
            continue;
        }
        if part != Part::Other && *byte < 0x80 && !is_host_byte(*byte) {
            return Err(refuse_url(format!(
                "invalid character {} in host name",
                quote(&char::from(*byte).to_string())
            )));
        }
        out.push(*byte);
        rest = after;
    }
    Ok(out)
}

/// Returns the byte of an escape that the part may contain.
fn unescaped_byte(escape: &[u8], part: Part) -> Option<u8> {
    let [b'%', high, low] = escape else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = (digit(high)? * 16 + digit(low)?) as u8;
    let allowed = match part {
        Part::Other => true,
        Part::Host => value >= 0x80,
        // Windows puts spaces there.
        Part::Zone => value == b' ' || is_host_byte(value),
    };
    (allowed || escape == b"%25").then_some(value)
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
            "https://[fe80::1%25en0]:8",
            "*",
            "",
        ] {
            let url = parse(text).unwrap();
            assert!(url.query.is_empty() && url.fragment.is_empty(), "{text}");
            assert_eq!(url.user, None, "{text}");
        }
        assert_eq!(parse("HTTPS://a").unwrap().scheme, "https");
        let user = |text| parse(text).unwrap().user.unwrap();
        assert_eq!(user("https://u:%40@a").password.unwrap(), b"@");
        assert_eq!(user("https://@a").password, None);
        assert_eq!(parse("https://a?b").unwrap().query, "b");
        assert_eq!(parse("https://a#b").unwrap().fragment, "b");
        assert_eq!(parse("https://a??").unwrap().query, "?");
        assert!(parse("https://a?").unwrap().empty_query);
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
        for text in ["https://a:1:2", "https://[fe80::1%25]", "https://[a]"] {
            assert!(
                matches!(parse(text), Err(UrlFault::Undetermined(_))),
                "{text}"
            );
        }
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
