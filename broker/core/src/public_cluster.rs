//! Where a target is, as its clients may know it: what clientcmd calls a cluster. Nothing in it is
//! a secret.
//!
//! The server tells it to an authorised caller who asks; the exec plugin holds it against what
//! kubectl says it will talk to.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::ca_bundle;
use crate::config::{self, TargetCluster};
use crate::name::ObjectName;

/// The most bytes of CA certificates, as PEM.
const MAX_CA_BYTES: usize = ca_bundle::MAX_CA_BUNDLE_BYTES;

/// A target's connection data, in the member names of a kubeconfig's `cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PublicCluster {
    /// The TargetCluster's name.
    pub name: ObjectName,
    /// The apiserver's https URL, without a trailing slash.
    pub server: String,
    /// CA certificates: base64 of PEM. None means the client's own roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// The name in the apiserver's certificate, where it is not the server's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The proxy on the way: http, https or socks5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
}

/// A cluster as a client says that it will use it (`spec.cluster` of
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

/// Received connection data that cannot be used. Nothing of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {0} cannot be used")]
pub struct UnusableCluster(pub &'static str);

/// Why a client is not given the target's token. No value is repeated: the messages are read on
/// other people's screens.
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
    /// Certificates are not checked.
    #[error("insecure-skip-tls-verify is set, so anybody on the way could take the token")]
    Insecure,
    /// The client would trust whoever its system trusts.
    #[error("certificate-authority-data is missing, and the target has a CA of its own")]
    AuthorityMissing,
    /// The client would trust a CA that is not the target's.
    #[error("certificate-authority-data holds a CA certificate that is not the target's")]
    AuthorityOther,
    /// It cannot be told what the client would make of it.
    #[error("certificate-authority-data is not base64 of PEM certificates and nothing else")]
    AuthorityForm,
}

impl PublicCluster {
    /// That of a target with its CA certificates as PEM.
    pub fn of(target: &TargetCluster, ca_pem: Option<&str>) -> Self {
        Self {
            name: target.name.clone(),
            server: target.address.clone(),
            certificate_authority_data: ca_pem.map(|pem| STANDARD.encode(pem)),
            tls_server_name: target.tls_server_name.clone(),
            proxy_url: target.proxy_url.clone(),
        }
    }

    /// What a server sent, held against the rules of a TargetCluster.
    ///
    /// # Errors
    /// [`UnusableCluster`] names the member.
    pub fn checked(self) -> Result<Self, UnusableCluster> {
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
            .is_some_and(|data| certificates(data).is_none())
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

    /// Whether a client that uses `claimed` talks to this target and trusts nobody else to be it.
    ///
    /// A client that trusts fewer of the target's certificates than there are is let through: so a
    /// CA can be replaced.
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
            Some(data) => certificates(data).ok_or(OtherCluster::AuthorityForm)?,
            None if claimed.certificate_authority_data.is_empty() => return Ok(()),
            // The target is verified by the roots of the system; a further CA is one more that
            // could be it.
            None => return Err(OtherCluster::AuthorityOther),
        };
        if claimed.certificate_authority_data.is_empty() {
            return Err(OtherCluster::AuthorityMissing);
        }
        let trusted =
            certificates(&claimed.certificate_authority_data).ok_or(OtherCluster::AuthorityForm)?;
        if trusted.iter().all(|certificate| own.contains(certificate)) {
            Ok(())
        } else {
            Err(OtherCluster::AuthorityOther)
        }
    }
}

/// The certificates of base64 of PEM, as DER; at least one, and nothing beside them: another reader
/// must not find one more.
fn certificates(encoded: &str) -> Option<Vec<Vec<u8>>> {
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
