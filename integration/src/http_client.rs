//! HTTP clients for tests: no proxies, no redirects, exactly one authority.

use reqwest::redirect;

use crate::rest::RestError;

/// An HTTP client that ignores proxies of the environment and follows no redirects. It trusts no
/// authority, for to read the machine's takes long in a debug build, and stops everything else in
/// the meantime.
pub fn plain_client() -> Result<reqwest::Client, RestError> {
    builder()
        .tls_certs_only([])
        .build()
        .map_err(RestError::Client)
}

/// The same, over TLS, with exactly one authority.
pub fn trusting(ca_pem: &str) -> Result<reqwest::Client, RestError> {
    trusting_builder(ca_pem)?.build().map_err(RestError::Client)
}

/// The same, for clients that also show a certificate.
pub(crate) fn trusting_builder(ca_pem: &str) -> Result<reqwest::ClientBuilder, RestError> {
    let ca = reqwest::Certificate::from_pem(ca_pem.as_bytes()).map_err(RestError::Client)?;
    Ok(builder().tls_certs_only([ca]))
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .no_gzip()
        .redirect(redirect::Policy::none())
}
