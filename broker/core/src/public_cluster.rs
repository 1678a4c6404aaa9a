//! A target's connection data for its clients: what clientcmd calls a cluster. It contains no
//! secret.
//!
//! The server sends it to an authorised caller on request. The exec plugin compares it with the
//! cluster that kubectl says it will connect to.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::{self, TargetCluster};
use keyferry_api::name::ObjectName;
use keyferry_keys::ca_bundle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum size of the CA certificates in bytes, as PEM.
const MAX_CA_BYTES: usize = ca_bundle::MAX_CA_BUNDLE_BYTES;

/// A target's connection data, in the member names of a kubeconfig's `cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PublicCluster {
    /// The TargetCluster's name.
    pub name: ObjectName,
    /// The apiserver's https URL, without a trailing slash.
    pub server: String,
    /// CA certificates: base64 of PEM. Without them, the client's own roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// The name in the apiserver's certificate, where it is not the server's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The proxy to connect through: http, https or socks5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
}

/// The cluster that a client says it will connect to (`spec.cluster` of
/// `client.authentication.k8s.io`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedCluster {
    /// `server`.
    pub server: String,
    /// `tls-server-name`, empty where there is none.
    pub tls_server_name: String,
    /// `insecure-skip-tls-verify`.
    pub insecure_skip_tls_verify: bool,
    /// `certificate-authority-data`, still base64; empty where there is none.
    pub certificate_authority_data: String,
    /// `proxy-url`, empty where there is none.
    pub proxy_url: String,
}

/// Received connection data has a member that cannot be used. No value is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {0} cannot be used")]
pub struct UnusableCluster(pub &'static str);

/// Why a client does not get the target's token. No value is repeated, because other people may
/// read the messages on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtherCluster {
    /// `server` is another URL.
    #[error("server is not the address of the target")]
    Server,
    /// `tls-server-name` is another name.
    #[error("tls-server-name is not that of the target")]
    TlsServerName,
    /// `proxy-url` is another proxy.
    #[error("proxy-url is not that of the target")]
    Proxy,
    /// The client does not check certificates.
    #[error("insecure-skip-tls-verify is set, so anyone on the network path could take the token")]
    Insecure,
    /// The client would trust its system's CAs, but the target has a CA of its own.
    #[error("certificate-authority-data is missing, and the target has a CA of its own")]
    AuthorityMissing,
    /// The client would trust a CA that is not the target's.
    #[error("certificate-authority-data holds a CA certificate that is not the target's")]
    AuthorityOther,
    /// The CA data is malformed, so it is unclear which CAs the client would trust.
    #[error("certificate-authority-data is not base64 of PEM certificates and nothing else")]
    AuthorityForm,
}

impl PublicCluster {
    /// The connection data of a target, with its CA certificates as PEM.
    pub fn of_target(target: &TargetCluster, ca_pem: Option<&str>) -> Self {
        Self {
            name: target.name.clone(),
            server: target.address.clone(),
            certificate_authority_data: ca_pem.map(|pem| STANDARD.encode(pem)),
            tls_server_name: target.tls_server_name.clone(),
            proxy_url: target.proxy_url.clone(),
        }
    }

    /// Checks received connection data against the rules of a TargetCluster.
    ///
    /// # Errors
    /// [`UnusableCluster`] names the member that breaks a rule.
    pub fn check_received(self) -> Result<Self, UnusableCluster> {
        if config::server_address(&self.server).ok().as_ref() != Some(&self.server) {
            return Err(UnusableCluster("server"));
        }
        if self
            .tls_server_name
            .as_deref()
            .is_some_and(|name| ObjectName::new(name).is_err())
        {
            return Err(UnusableCluster("tls-server-name"));
        }
        if self
            .proxy_url
            .as_ref()
            .is_some_and(|url| config::proxy_address(url).ok().as_ref() != Some(url))
        {
            return Err(UnusableCluster("proxy-url"));
        }
        if self
            .certificate_authority_data
            .as_deref()
            .is_some_and(|data| decode_certificates(data).is_none())
        {
            return Err(UnusableCluster("certificate-authority-data"));
        }
        Ok(self)
    }

    /// The CA certificates as PEM.
    pub fn ca_pem(&self) -> Option<String> {
        let bytes = STANDARD
            .decode(self.certificate_authority_data.as_deref()?)
            .ok()?;
        String::from_utf8(bytes).ok()
    }

    /// Checks that a client that uses `claimed` connects to this target and trusts no other server
    /// in its place.
    ///
    /// A client may trust fewer CA certificates than the target has, so that a CA can be replaced.
    ///
    /// # Errors
    /// [`OtherCluster`].
    pub fn is_what(&self, claimed: &ClaimedCluster) -> Result<(), OtherCluster> {
        if claimed.insecure_skip_tls_verify {
            return Err(OtherCluster::Insecure);
        }
        if claimed.server.strip_suffix('/').unwrap_or(&claimed.server) != self.server {
            return Err(OtherCluster::Server);
        }
        if claimed.tls_server_name != self.tls_server_name.as_deref().unwrap_or_default() {
            return Err(OtherCluster::TlsServerName);
        }
        if claimed.proxy_url != self.proxy_url.as_deref().unwrap_or_default() {
            return Err(OtherCluster::Proxy);
        }
        let own = match &self.certificate_authority_data {
            Some(data) => decode_certificates(data).ok_or(OtherCluster::AuthorityForm)?,
            None if claimed.certificate_authority_data.is_empty() => return Ok(()),
            // The target is verified with the system's roots. A further CA could certify another
            // server as this target.
            None => return Err(OtherCluster::AuthorityOther),
        };
        if claimed.certificate_authority_data.is_empty() {
            return Err(OtherCluster::AuthorityMissing);
        }
        let trusted = decode_certificates(&claimed.certificate_authority_data)
            .ok_or(OtherCluster::AuthorityForm)?;
        if trusted.iter().all(|certificate| own.contains(certificate)) {
            Ok(())
        } else {
            Err(OtherCluster::AuthorityOther)
        }
    }
}

/// Decodes base64 of PEM certificates to DER. It requires at least one certificate and accepts
/// nothing beside them, so that another reader cannot find one more.
fn decode_certificates(encoded: &str) -> Option<Vec<Vec<u8>>> {
    if encoded.len() > MAX_CA_BYTES.saturating_mul(2) {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    if text.len() > MAX_CA_BYTES {
        return None;
    }
    let (mut found, mut open) = (Vec::new(), None::<String>);
    for line in text
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
    {
        open = match (line, open) {
            ("-----BEGIN CERTIFICATE-----", None) => Some(String::new()),
            ("-----END CERTIFICATE-----", Some(body)) => {
                found.push(STANDARD.decode(body).ok().filter(|der| !der.is_empty())?);
                None
            }
            ("", None) => None,
            (line, Some(mut body)) => {
                body.push_str(line);
                Some(body)
            }
            _ => return None,
        };
    }
    (open.is_none() && !found.is_empty() && found.len() <= ca_bundle::MAX_CERTIFICATES)
        .then_some(found)
}

#[cfg(test)]
mod tests;
