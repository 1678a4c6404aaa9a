//! The issuer of bound tokens, and the address under which Keyferry publishes it.

use std::fmt;
use std::sync::Arc;

use url::Url;

/// The path of a discovery document.
pub const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Returns the default URL of an issuer's discovery document (OpenID Connect Discovery 1.0 section
/// 4.1): one slash at the end of the issuer is left out, as by kube-apiserver.
pub fn discovery_url(issuer: &str) -> String {
    format!(
        "{}{DISCOVERY_PATH}",
        issuer.strip_suffix('/').unwrap_or(issuer)
    )
}

/// The value of `iss`: compared byte for byte, never normalised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Issuer {
    text: Arc<str>,
    /// Computed once, because every issuance checks it.
    cluster_default: bool,
}

/// Why a target could not trust a text as an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// kube-apiserver accepts https issuers only.
    #[error(
        "is not an https URL; kube-apiserver trusts https issuers only, so give the hub a \
         `--service-account-issuer` that is one"
    )]
    NotHttps,
    /// Contains a query, a fragment or credentials.
    #[error(
        "holds a query, a fragment or credentials, which OpenID Connect Discovery 1.0 section 3 \
         forbids"
    )]
    Decorated,
    /// Longer than any verifier accepts.
    #[error("is longer than 600 bytes")]
    TooLong,
}

impl Issuer {
    /// Checks an issuer and keeps its text unchanged.
    ///
    /// # Errors
    /// [`IssuerError`] says what a target would refuse.
    pub fn new(text: impl Into<String>) -> Result<Self, IssuerError> {
        let text = text.into();
        if text.len() > 600 {
            return Err(IssuerError::TooLong);
        }
        let url = Url::parse(&text).map_err(|_| IssuerError::NotHttps)?;
        if url.scheme() != "https" || url.host_str().is_none_or(str::is_empty) {
            return Err(IssuerError::NotHttps);
        }
        let decorated = url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some();
        if decorated || text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(IssuerError::Decorated);
        }
        let host = url.host_str().unwrap_or_default();
        let cluster_default = host == "kubernetes.default"
            || host == "kubernetes"
            || host == "kubernetes.default.svc"
            || host.starts_with("kubernetes.default.svc.");
        Ok(Self {
            text: text.into(),
            cluster_default,
        })
    }

    /// The issuer as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The default URL of its discovery document.
    pub fn discovery_url(&self) -> String {
        discovery_url(&self.text)
    }

    /// Whether Kubernetes distributions give this issuer to every cluster. A target with the same
    /// default refuses it.
    pub fn is_cluster_default(&self) -> bool {
        self.cluster_default
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The origin under which targets reach the published documents: `https://host[:port]`, no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

/// The text is not an https origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not an https origin such as https://keyferry.example.com, without path, query, fragment or \
     credentials"
)]
pub struct PublicUrlError;

impl PublicUrl {
    /// Checks an origin. One trailing slash is removed.
    ///
    /// # Errors
    /// [`PublicUrlError`] for anything but an https origin.
    pub fn new(text: &str) -> Result<Self, PublicUrlError> {
        let url = Url::parse(text).map_err(|_| PublicUrlError)?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let anonymous = url.username().is_empty() && url.password().is_none();
        if url.scheme() == "https"
            && bare
            && anonymous
            && !text.contains('@')
            && url.host_str().is_some_and(|host| !host.is_empty())
        {
            Ok(Self(url.origin().ascii_serialization()))
        } else {
            Err(PublicUrlError)
        }
    }

    /// `<origin>/.well-known/openid-configuration`: what a target's `discoveryURL` names.
    pub fn discovery_url(&self) -> String {
        discovery_url(&self.0)
    }

    /// The origin itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host, as a certificate names it. An IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        let authority = self.0.strip_prefix("https://").unwrap_or(&self.0);
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        }
    }

    /// Whether the host is in a domain that is reserved for documentation (RFC 2606, RFC 6761).
    pub fn is_example(&self) -> bool {
        let reserved = [
            "example.com",
            "example.net",
            "example.org",
            "example",
            "invalid",
        ];
        reserved.iter().any(|name| {
            self.host()
                .strip_suffix(name)
                .is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }

    /// `<origin>/openid/v1/jwks`: the published `jwks_uri`.
    pub fn jwks_uri(&self) -> String {
        format!("{}/openid/v1/jwks", self.0)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Issuer, IssuerError, PublicUrl};

    #[test]
    fn an_issuer_is_kept_as_written() {
        assert_eq!(
            Issuer::new("https://hub.example.com/").unwrap().as_str(),
            "https://hub.example.com/"
        );
        assert_eq!(
            Issuer::new("http://hub.example.com"),
            Err(IssuerError::NotHttps)
        );
        assert_eq!(
            Issuer::new("kubernetes/serviceaccount"),
            Err(IssuerError::NotHttps)
        );
        assert_eq!(
            Issuer::new("https://hub.example.com?a=b"),
            Err(IssuerError::Decorated)
        );
        assert_eq!(
            Issuer::new("https://user@hub.example.com"),
            Err(IssuerError::Decorated)
        );
    }

    #[test]
    fn a_public_url_has_a_host() {
        for (text, host, example) in [
            ("https://keyferry.example.com", "keyferry.example.com", true),
            (
                "https://keyferry.example.com:8443",
                "keyferry.example.com",
                true,
            ),
            ("https://example.org", "example.org", true),
            ("https://keys.notexample.com", "keys.notexample.com", false),
            ("https://192.0.2.1:8443", "192.0.2.1", false),
            ("https://[2001:db8::1]", "[2001:db8::1]", false),
            ("https://[2001:db8::1]:8443", "[2001:db8::1]", false),
        ] {
            let url = PublicUrl::new(text).unwrap();
            assert_eq!((url.host(), url.is_example()), (host, example), "{text}");
        }
    }

    #[test]
    fn the_defaults_of_distributions_are_known() {
        for issuer in [
            "https://kubernetes.default.svc.cluster.local",
            "https://kubernetes.default.svc",
            "https://kubernetes.default.svc.corp",
        ] {
            assert!(
                Issuer::new(issuer).unwrap().is_cluster_default(),
                "{issuer}"
            );
        }
        assert!(
            !Issuer::new("https://hub.example.com")
                .unwrap()
                .is_cluster_default()
        );
        assert!(
            !Issuer::new("https://kubernetes.default.svcs.example.com")
                .unwrap()
                .is_cluster_default()
        );
    }

    #[test]
    fn a_public_url_is_an_origin() {
        assert_eq!(
            PublicUrl::new("https://keys.example.com:8443/")
                .unwrap()
                .jwks_uri(),
            "https://keys.example.com:8443/openid/v1/jwks"
        );
        for text in [
            "http://a",
            "https://a/b",
            "https://a?b",
            "https://a#b",
            "https://u@a",
            "https://u:p@a",
            "a",
            "https://@a",
        ] {
            assert!(PublicUrl::new(text).is_err(), "{text}");
        }
    }
}
