//! The proxy on the way to the hub. It is for the hub alone: connections to targets, issuers and key
//! sets never read the environment.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};

use super::error::ClientError;

/// How messages name the proxy of a kubeconfig.
pub(super) const OF_KUBECONFIG: &str = "proxy-url of the kubeconfig";
const OF_ENVIRONMENT: &str = "HTTPS_PROXY";

/// `HTTPS_PROXY` and `NO_PROXY`, with the rules of kubectl, which are those of Go's package
/// `golang.org/x/net/http/httpproxy`.
#[derive(Clone, Debug, Default)]
pub struct ProxyVariables {
    /// A URL, which may hold a password.
    https_proxy: Option<SecretString>,
    no_proxy: String,
}

impl ProxyVariables {
    /// Takes them from `variable`, which returns a variable by its name. The name in capitals takes
    /// precedence over that in small letters.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |name: &str| {
            [name.to_owned(), name.to_ascii_lowercase()]
                .iter()
                .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        Self {
            https_proxy: first(OF_ENVIRONMENT).map(SecretString::from),
            no_proxy: first("NO_PROXY").unwrap_or_default(),
        }
    }

    /// Returns the proxy for this address of the hub; `None` if there is none, or `NO_PROXY` exempts
    /// the address.
    pub(super) fn proxy_of(&self, hub: &Uri) -> Result<Option<Uri>, ClientError> {
        let Some(proxy) = &self.https_proxy else {
            return Ok(None);
        };
        let host = hub.host().unwrap_or_default().trim_matches(['[', ']']);
        if is_exempt(&self.no_proxy, host, hub.port_u16().unwrap_or(443)) {
            return Ok(None);
        }
        let proxy = proxy.expose_secret();
        let url = if proxy.contains("://") {
            parse_proxy(proxy, OF_ENVIRONMENT)
        } else {
            parse_proxy(&format!("http://{proxy}"), OF_ENVIRONMENT)
        };
        url.map(Some)
    }
}

/// Reads a proxy's URL, and adds the usual port if it has none.
///
/// # Errors
/// [`ClientError::Proxy`], without a part of the URL.
pub(super) fn parse_proxy(text: &str, named_by: &'static str) -> Result<Uri, ClientError> {
    let wrong = |problem| ClientError::Proxy { named_by, problem };
    let not_a_url = || wrong("is not a URL");
    let url: Uri = text.parse().map_err(|_| not_a_url())?;
    let scheme = url.scheme_str().unwrap_or_default();
    let port = match scheme {
        "http" => 80,
        "socks5" => 1080,
        _ => return Err(wrong("has a scheme other than http and socks5")),
    };
    let authority = url.authority().ok_or_else(not_a_url)?;
    if authority.host().is_empty() {
        return Err(not_a_url());
    }
    // The library would leave it out silently.
    if scheme == "socks5" && authority.as_str().contains('@') {
        return Err(wrong(
            "has a user name, which Keyferry sends to http proxies only",
        ));
    }
    if authority.port().is_some() {
        return Ok(url);
    }
    let with_port = format!("{scheme}://{authority}:{port}");
    with_port.parse().map_err(|_| not_a_url())
}

/// Returns the proxy for a person, without user name and password.
pub(super) fn shown_proxy(url: &Uri) -> String {
    format!(
        "{}://{}:{}",
        url.scheme_str().unwrap_or_default(),
        url.host().unwrap_or_default(),
        url.port_u16().unwrap_or_default()
    )
}

/// Whether a host is reached without a proxy. This machine always is.
fn is_exempt(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = host.to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    no_proxy
        .split(',')
        .map(|entry| entry.trim().to_ascii_lowercase())
        .any(|entry| entry_covers(&entry, &host, address, port))
}

/// Whether an entry of `NO_PROXY` covers a host: `*`, a network, an address, a name with its
/// subdomains, or `.name` or `*.name` for the subdomains alone; the last four with or without a port.
fn entry_covers(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    if let Ok(own) = entry.parse::<IpAddr>() {
        return address == Some(own);
    }
    let name = match entry.rsplit_once(':') {
        Some((_, digits)) if digits != port.to_string() => return false,
        Some((name, _)) => name,
        None => entry,
    };
    if let Ok(own) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address == Some(own);
    }
    let suffix = name.strip_prefix('*').unwrap_or(name);
    match suffix.strip_prefix('.') {
        Some("") => false,
        Some(_) => host.ends_with(suffix),
        None if name.is_empty() || name.starts_with('*') => false,
        None => host == name || host.ends_with(&format!(".{name}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ProxyVariables, is_exempt, parse_proxy, shown_proxy};

    /// As golang.org/x/net/http/httpproxy decides.
    #[test]
    fn no_proxy_exempts_what_it_exempts_for_kubectl() {
        for (no_proxy, host, port, is_direct) in [
            ("", "hub.example", 6443, false),
            ("", "localhost", 6443, true),
            ("", "127.9.0.1", 6443, true),
            ("", "::1", 6443, true),
            ("*", "hub.example", 6443, true),
            ("other.example, *", "hub.example", 6443, true),
            ("example", "hub.example", 6443, true),
            ("EXAMPLE", "Hub.Example", 6443, true),
            ("ample", "hub.example", 6443, false),
            ("hub.example", "hub.example", 6443, true),
            ("hub.example", "a.hub.example", 6443, true),
            (".hub.example", "hub.example", 6443, false),
            (".hub.example", "a.hub.example", 6443, true),
            ("*.hub.example", "hub.example", 6443, false),
            ("*.hub.example", "a.hub.example", 6443, true),
            ("*hub.example", "a.hub.example", 6443, false),
            ("hub.example:6443", "hub.example", 6443, true),
            ("hub.example:443", "hub.example", 6443, false),
            ("10.0.0.0/8", "10.1.2.3", 6443, true),
            ("10.0.0.0/8", "11.1.2.3", 6443, false),
            ("10.0.0.0/8", "hub.example", 6443, false),
            ("10.1.2.3", "10.1.2.3", 6443, true),
            ("10.1.2.3:443", "10.1.2.3", 6443, false),
            ("10.1.2.3:6443", "10.1.2.3", 6443, true),
            ("fd00::/8", "fd00::1", 6443, true),
            ("fd00::1", "fd00::1", 6443, true),
            ("[fd00::1]:6443", "fd00::1", 6443, true),
            // What the library of the client refuses to start with.
            (",, a b,.svc,", "hub.svc", 443, true),
            (".", "hub.example", 6443, false),
            ("*.", "hub.example", 6443, false),
            (":6443", "hub.example", 6443, false),
        ] {
            let exempt = is_exempt(no_proxy, host, port);
            assert_eq!(exempt, is_direct, "{no_proxy:?} and {host}:{port}");
        }
    }

    #[test]
    fn the_variables_are_read_in_capitals_first_and_keep_their_password() {
        let read = |set: &[(&str, &str)]| {
            ProxyVariables::read(|name| {
                let mut set = set.iter();
                let found = set.find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let hub = "https://hub.example:6443".parse().unwrap();
        let proxy = |set: &[(&str, &str)]| {
            let url = read(set).proxy_of(&hub);
            url.map(|url| url.map(|url| url.to_string()))
        };
        assert_eq!(proxy(&[]), Ok(None));
        assert_eq!(proxy(&[("HTTPS_PROXY", ""), ("https_proxy", "")]), Ok(None));
        let both = [
            ("https_proxy", "http://small:1"),
            ("HTTPS_PROXY", "CAPITAL"),
        ];
        assert_eq!(proxy(&both), Ok(Some("http://CAPITAL:80/".to_owned())));
        assert_eq!(
            proxy(&[("https_proxy", "http://small:1")]),
            Ok(Some("http://small:1/".to_owned()))
        );
        let exempt = [("HTTPS_PROXY", "p:1"), ("no_proxy", "hub.example")];
        assert_eq!(proxy(&exempt), Ok(None));
        // It is for https alone, as in Go.
        assert_eq!(
            proxy(&[("HTTP_PROXY", "p:1"), ("ALL_PROXY", "p:1")]),
            Ok(None)
        );
        let secret = [("HTTPS_PROXY", "canary:secret@p:1")];
        assert!(proxy(&secret).unwrap().unwrap().contains("canary"));
        assert!(!format!("{:?}", read(&secret)).contains("canary"));
    }

    #[test]
    fn a_proxy_is_refused_without_a_part_of_its_url() {
        for (text, problem) in [
            ("http://canary:secret@p", None),
            ("http://p:3128/", None),
            ("socks5://[fd00::1]:1080", None),
            ("socks5://p", None),
            ("socks5://canary@p:1", Some("has a user name")),
            ("https://canary:secret@p:1", Some("has a scheme other")),
            ("socks5h://canary@p:1", Some("has a scheme other")),
            ("canary:1", Some("has a scheme other")),
            ("", Some("is not a URL")),
            ("http://", Some("is not a URL")),
            ("http://canary@:3128", Some("is not a URL")),
            ("http://canary:99999", Some("is not a URL")),
            ("http://canary p", Some("is not a URL")),
        ] {
            let parsed = parse_proxy(text, "HTTPS_PROXY");
            match (parsed, problem) {
                (Ok(url), None) => assert!(!shown_proxy(&url).contains("canary"), "{text}"),
                (Err(error), Some(problem)) => {
                    let error = error.to_string();
                    assert!(error.contains(problem), "{text}: {error}");
                    assert!(!error.contains("canary"), "{error}");
                }
                (parsed, _) => panic!("{text}: {parsed:?}"),
            }
        }
        let shown = shown_proxy(&parse_proxy("socks5://p", "HTTPS_PROXY").unwrap());
        assert_eq!(shown, "socks5://p:1080");
    }
}
