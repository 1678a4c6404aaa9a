//! HTTP clients for tests: no proxies, no redirects, and at most one CA.

use std::error::Error;

use reqwest::redirect;

use crate::rest::RestError;

/// An HTTP client that ignores proxies of the environment and follows no redirects. It trusts no
/// CA: loading the system roots is slow in debug builds and blocks everything else meanwhile.
pub fn plain_client() -> Result<reqwest::Client, RestError> {
    builder()
        .tls_certs_only([])
        .build()
        .map_err(RestError::Client)
}

/// As [`plain_client`], but over TLS and with exactly one trusted CA.
pub fn trusting(ca_pem: &str) -> Result<reqwest::Client, RestError> {
    trusting_builder(ca_pem)?.build().map_err(RestError::Client)
}

/// As [`trusting`], for clients that also present a certificate.
pub(crate) fn trusting_builder(ca_pem: &str) -> Result<reqwest::ClientBuilder, RestError> {
    let ca = reqwest::Certificate::from_pem(ca_pem.as_bytes()).map_err(RestError::Client)?;
    Ok(builder().tls_certs_only([ca]))
}

/// Whether a request failed because no trusted CA issued the server's certificate.
pub fn names_unknown_issuer(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(one) = cause {
        if one.to_string().contains("UnknownIssuer") {
            return true;
        }
        cause = one.source();
    }
    false
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .no_gzip()
        .redirect(redirect::Policy::none())
}
