//! URLs for kubeconfigs. Every client must read them alike, so only their plain spelling is
//! accepted.

use url::{Host, Url};

use crate::name::ObjectName;

/// Reads an apiserver's URL: `https://host[:port][/path]`, kept as written except for a trailing
/// slash.
///
/// # Errors
/// The problem, worded to follow the field's name.
pub fn server(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if url.scheme() != "https" {
        return Err("is not an https URL, and a bearer token must not be sent unencrypted");
    }
    if text.contains('@') {
        return Err("holds credentials");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("holds a query or a fragment");
    }
    let (authority, path) = split_unaltered_url(text, "https", &url)?;
    // The parser has removed dot segments and encoded invalid characters. If its path differs,
    // clients may also differ.
    let segments = path.trim_start_matches('/').trim_end_matches('/');
    if (!path.is_empty() && path != url.path()) || segments.contains("//") || path.starts_with("//")
    {
        return Err("holds characters or path segments that clients read differently");
    }
    Ok(format!("https://{authority}{}", path.trim_end_matches('/')))
}

/// Reads a proxy's URL: `http`, `https` or `socks5`, host and port, nothing else.
///
/// # Errors
/// As [`server`].
pub fn proxy(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https" | "socks5") {
        return Err("is not an http, https or socks5 URL");
    }
    if text.contains('@') {
        return Err("holds credentials, which every reader of the kubeconfig would get");
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("is not a plain host and port");
    }
    // The URL standard does not parse the hosts of unknown schemes, such as socks5. Parsed as http,
    // `127.1` is recognised as an address.
    let scheme = url.scheme();
    let known = if scheme == "socks5" {
        Url::parse(&text.replacen("socks5", "http", 1))
    } else {
        Ok(url.clone())
    };
    let (authority, path) = split_unaltered_url(text, scheme, &known.map_err(|_| "is not a URL")?)?;
    if matches!(path, "" | "/") {
        Ok(format!("{scheme}://{authority}"))
    } else {
        Err("is not a plain host and port")
    }
}

/// Reads a `tlsServerName`: a DNS name.
///
/// An address in any spelling is refused, because clients connect to it and no rule about addresses
/// has checked it.
///
/// # Errors
/// As [`server`].
pub fn server_name(text: String) -> Result<String, &'static str> {
    if ObjectName::new(text.clone()).is_err() {
        return Err("is not a DNS name in lower case");
    }
    match Host::parse(&text) {
        Ok(Host::Domain(_)) => Ok(text),
        _ => Err("is an address, not a DNS name"),
    }
}

/// Returns authority and path as written, if the parser did not change them: no backslash, no host
/// in another spelling, no port 0.
fn split_unaltered_url<'t>(
    text: &'t str,
    scheme: &str,
    url: &Url,
) -> Result<(&'t str, &'t str), &'static str> {
    let rest = text
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"))
        .ok_or("is not written as scheme://host")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if text
        .bytes()
        .any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'%'))
    {
        return Err("holds characters or path segments that clients read differently");
    }
    let host = url
        .host_str()
        .filter(|host| !host.is_empty())
        .ok_or("has no host")?;
    let port = match authority
        .get(..host.len())
        .filter(|written| written.eq_ignore_ascii_case(host))
    {
        Some(_) => authority.get(host.len()..).unwrap_or_default(),
        None => return Err("has a host that clients read differently"),
    };
    let usable = |digits: &str| {
        digits
            .parse::<u16>()
            .is_ok_and(|port| port > 0 && port.to_string() == digits)
    };
    if port.is_empty() || port.strip_prefix(':').is_some_and(usable) {
        Ok((authority, path))
    } else {
        Err("has no usable port")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{proxy, server, server_name};

    #[test]
    fn plain_addresses_are_kept_as_written() {
        for text in [
            "https://prod.example.com",
            "https://prod.example.com:6443",
            "https://prod.example.com:443",
            "https://Prod.example.com:6443",
            "https://10.0.0.1:6443",
            "https://[fd00::1]:6443",
            "https://xn--bcher-kva.example",
            "https://rancher.example.com/k8s/clusters/c-m-1_2~x",
        ] {
            assert_eq!(server(text).unwrap(), text);
        }
        assert_eq!(
            server("https://prod.example.com/").unwrap(),
            "https://prod.example.com"
        );
        assert_eq!(
            server("https://prod.example.com/k8s/").unwrap(),
            "https://prod.example.com/k8s"
        );
    }

    #[test]
    fn addresses_that_clients_may_read_differently_are_refused() {
        for text in [
            "",
            "prod.example.com",
            "http://prod.example.com",
            "HTTPS://prod.example.com",
            "https:prod.example.com",
            "https:/prod.example.com",
            "https:///prod.example.com",
            "https://",
            "https://user@prod.example.com",
            "https://user:password@prod.example.com",
            "https://@prod.example.com",
            "https://prod.example.com/@x",
            "https://prod.example.com?x",
            "https://prod.example.com/?",
            "https://prod.example.com#x",
            "https://prod.example.com/#",
            "https://prod.example.com:0",
            "https://prod.example.com:",
            "https://prod.example.com:06443",
            "https://prod.example.com:65536",
            "https://prod.example.com:+443",
            "https://pr\u{f6}d.example.com",
            "https://prod.example.com\u{3002}evil.example",
            "https://prod.example.com/\u{e9}",
            "https://prod.example.com\\evil",
            "https://prod.example.com/a\\b",
            "https://prod.example.com/a%2Fb",
            "https://prod%2eexample.com",
            "https://prod.example.com/../x",
            "https://prod.example.com/x/..",
            "https://prod.example.com/./x",
            "https://prod.example.com/x/.",
            "https://prod.example.com//x",
            "https://prod.example.com/x//y",
            "https://prod.example.com/a b",
            "https://prod.example.com/a\tb",
            "https://prod.exa\nmple.com",
            " https://prod.example.com",
            "https://prod.example.com/a\"b",
            "https://prod.example.com/<x>",
            "https://0x7f.1",
            "https://2130706433",
            "https://127.1",
            "https://[0:0:0:0:0:0:0:1]",
            "https://[fe80::1%25eth0]",
            "https://xn--a",
        ] {
            assert!(server(text).is_err(), "{text:?} became {:?}", server(text));
        }
    }

    #[test]
    fn a_proxy_is_a_scheme_a_host_and_a_port() {
        for text in [
            "http://proxy.example.com:3128",
            "https://proxy.example.com",
            "socks5://10.0.0.9:1080",
            "socks5://[fd00::9]:1080",
        ] {
            assert_eq!(proxy(text).unwrap(), text);
        }
        assert_eq!(
            proxy("http://proxy.example.com/").unwrap(),
            "http://proxy.example.com"
        );
        for text in [
            "socks4://proxy.example.com",
            "socks5h://proxy.example.com",
            "ftp://proxy.example.com",
            "proxy.example.com:3128",
            "http:proxy.example.com",
            "http://user:password@proxy.example.com",
            "socks5://user@proxy.example.com:1080",
            "http://proxy.example.com/x",
            "http://proxy.example.com//",
            "http://proxy.example.com?x",
            "socks5://proxy.example.com#x",
            "http://proxy.example.com:0",
            "socks5://proxy.example.com:0",
            "socks5://",
            "socks5://pro%78y.example.com",
            "socks5://pr\u{f6}xy.example.com",
            "socks5://127.1:1080",
            "socks5://[0:0:0:0:0:0:0:1]:1080",
            "SOCKS5://10.0.0.9:1080",
        ] {
            assert!(proxy(text).is_err(), "{text:?} became {:?}", proxy(text));
        }
    }

    #[test]
    fn a_refusal_names_the_part_that_is_too_much() {
        for text in ["https://prod.example.com?x", "https://prod.example.com#x"] {
            assert_eq!(server(text), Err("holds a query or a fragment"), "{text}");
        }
        for text in [
            "http://proxy.example.com/x",
            "http://proxy.example.com?x",
            "socks5://proxy.example.com#x",
        ] {
            assert_eq!(proxy(text), Err("is not a plain host and port"), "{text}");
        }
    }

    #[test]
    fn a_server_name_is_no_pattern() {
        assert!(server_name("kubernetes.default.svc".to_owned()).is_ok());
        for text in ["", "*.example.com", "a b", "a/b", "a:443", "A.example"] {
            assert!(server_name(text.to_owned()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_server_name_is_no_address_in_any_spelling() {
        for text in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "10.0.0.256",
            "prod.1",
            "0x",
        ] {
            assert!(server_name(text.to_owned()).is_err(), "{text:?}");
        }
        assert!(server_name("10.0.0.1.example.com".to_owned()).is_ok());
    }
}
