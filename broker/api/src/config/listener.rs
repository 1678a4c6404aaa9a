//! The listeners of a ServerConfiguration: address, serving certificate, TLS version and limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;

use super::check::Check;
use crate::name::ObjectName;
use crate::schema;

/// Where the published documents are served if no address is configured.
pub(super) const DISCOVERY_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);
/// Where the token API is served if no address is configured.
pub(super) const API_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
/// Where health is served if no address is configured.
pub(super) const HEALTH_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The limit of connections per source. The default is many times what a node's Pods need, and an eighth
/// of the capacity of the published documents' listener.
pub(super) const CONNECTIONS_LIMIT: LimitBounds = LimitBounds {
    default: 256,
    max: 65_536,
};

/// Every TLS version with its name.
pub(super) const TLS_VERSIONS: &[(&str, TlsVersion)] =
    &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TlsSpec {
    /// A Secret of type kubernetes.io/tls in clusterResourceNamespace. Either this or the two files.
    #[schemars(with = "Option<ObjectName>")]
    pub(super) secret_name: Option<String>,
    /// A PEM file with the certificate chain, leaf first: not expired, and with serverAuth if it has
    /// an extended key usage.
    pub(super) cert_file: Option<PathBuf>,
    /// A PEM file with the private key. With certFile.
    pub(super) key_file: Option<PathBuf>,
    /// The lowest TLS version of a client. 1.2 is only for discovery, for old verifiers.
    #[schemars(transform = schema::choices(TLS_VERSIONS))]
    pub(super) min_version: Option<String>,
}

/// The address and the certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The socket address to listen on.
    pub address: SocketAddr,
    /// Where the serving certificate comes from; re-read when it changes.
    pub tls: TlsSource,
    /// The lowest TLS version that a client may use.
    pub min_version: TlsVersion,
    /// The most connections of one source: an address or, on the discovery listener, the /64 of an
    /// IPv6 address. None: no limit per source.
    pub connections_per_address: Option<NonZeroU32>,
}

/// Where the serving certificate of a listener comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSource {
    /// A Secret of type `kubernetes.io/tls` in Keyferry's namespace, watched through the hub's API.
    Secret(ObjectName),
    /// Two files.
    Files(TlsFiles),
    /// The file names no certificate. Only commands that read a server's file accept this, because
    /// the server may get its certificate from a flag.
    Unset,
}

/// PEM files of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2, for old verifiers of the published documents.
    V1_2,
    /// TLS 1.3.
    #[default]
    V1_3,
}

/// Flags and environment variables about listeners, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerOverrides {
    /// `--tls-secret`: the Secret of every listener without a flag of its own.
    pub tls_secret: Option<ObjectName>,
    /// `--api-tls-secret`.
    pub api_tls_secret: Option<ObjectName>,
    /// `--discovery-tls-secret`.
    pub discovery_tls_secret: Option<ObjectName>,
    /// `--api-https-addr`.
    pub api_address: Option<SocketAddr>,
    /// `--discovery-https-addr`.
    pub discovery_address: Option<SocketAddr>,
    /// `--discovery-http-addr`.
    pub discovery_http_address: Option<SocketAddr>,
    /// `--health-addr`.
    pub health_address: Option<SocketAddr>,
    /// `--metrics-tls-secret`.
    pub metrics_tls_secret: Option<ObjectName>,
    /// `--metrics-https-addr`.
    pub metrics_address: Option<SocketAddr>,
    /// Accepts a listener without a certificate, for a command that reads a server's file without
    /// the server's flags.
    pub tls_may_be_unset: bool,
}

/// What overrides the file for one listener.
#[derive(Clone, Copy)]
pub(super) struct ListenerOverride<'a> {
    pub(super) secret: Option<&'a ObjectName>,
    pub(super) address: Option<SocketAddr>,
    pub(super) tls_may_be_unset: bool,
}

impl ListenerOverrides {
    pub(super) fn api(&self) -> ListenerOverride<'_> {
        self.with_shared(self.api_tls_secret.as_ref(), self.api_address)
    }

    pub(super) fn discovery(&self) -> ListenerOverride<'_> {
        self.with_shared(self.discovery_tls_secret.as_ref(), self.discovery_address)
    }

    pub(super) fn metrics(&self) -> ListenerOverride<'_> {
        self.with_shared(self.metrics_tls_secret.as_ref(), self.metrics_address)
    }

    fn with_shared<'a>(
        &'a self,
        secret: Option<&'a ObjectName>,
        address: Option<SocketAddr>,
    ) -> ListenerOverride<'a> {
        ListenerOverride {
            secret: secret.or(self.tls_secret.as_ref()),
            address,
            tls_may_be_unset: self.tls_may_be_unset,
        }
    }
}

/// The text is not an address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address; fix: write ip:port, such as 0.0.0.0:9443, or :port")]
pub struct ListenAddressError(String);

/// Reads an address to listen on: `ip:port`, or `:port` for every IPv4 address of the machine.
///
/// # Errors
/// [`ListenAddressError`].
pub fn listen_address(text: &str) -> Result<SocketAddr, ListenAddressError> {
    let wrong = || ListenAddressError(text.to_owned());
    // `u16::from_str` would accept a sign.
    match text.strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
            .parse()
            .map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            .map_err(|_| wrong()),
        Some(_) => Err(wrong()),
        None => text.parse().map_err(|_| wrong()),
    }
}

/// The fields that every listener has.
pub(super) struct ListenerFields {
    pub(super) address: Option<String>,
    pub(super) tls: Option<TlsSpec>,
    pub(super) connections_per_address: Option<u32>,
}

/// A limit as written: a number, or 0 for no limit.
pub(super) struct LimitBounds {
    pub(super) default: u32,
    pub(super) max: u32,
}

impl LimitBounds {
    /// Reads the field at `path`, and notes its mistake. The inner `None` means no limit.
    pub(super) fn read(
        &self,
        value: Option<u32>,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<Option<NonZeroU32>> {
        let value = value.unwrap_or(self.default);
        if value > self.max {
            check.wrong(
                path,
                format!("{value} is out of range"),
                format!("write a number from 1 to {}, or 0 for no limit", self.max),
            );
            return None;
        }
        Some(NonZeroU32::new(value))
    }

    /// Describes the field in its schema.
    pub(super) fn describe(&self) -> impl FnMut(&mut Schema) {
        let (default, max) = (self.default, self.max);
        move |schema| {
            schema.insert("default".to_owned(), json!(default));
            schema.insert("maximum".to_owned(), json!(max));
        }
    }
}

/// Reads the listener of the section `path`.
pub(super) fn read_listener(
    fields: ListenerFields,
    path: &str,
    default_address: SocketAddr,
    overrides: ListenerOverride<'_>,
    check: &mut Check<'_>,
) -> Option<Listener> {
    let address = read_address(
        fields.address.as_deref(),
        &format!("{path}.address"),
        default_address,
        check,
    );
    let connections = CONNECTIONS_LIMIT.read(
        fields.connections_per_address,
        &format!("{path}.limits.connectionsPerAddress"),
        check,
    );
    let tls = fields.tls.unwrap_or_default();
    let min_version = read_min_version(tls.min_version.as_deref(), path, check);
    let source = read_tls_source(tls, path, overrides, check);
    Some(Listener {
        address: overrides.address.or(address)?,
        tls: source?,
        min_version: min_version?,
        connections_per_address: connections?,
    })
}

fn read_min_version(text: Option<&str>, path: &str, check: &mut Check<'_>) -> Option<TlsVersion> {
    let field = format!("{path}.tls.minVersion");
    let version = match text {
        None => Some(TlsVersion::default()),
        Some(text) => TLS_VERSIONS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, version)| *version),
    };
    match version {
        // Keyferry's own clients, scrapers and every client in support have TLS 1.3, so the setting
        // would only help an attacker who wants the weaker version.
        Some(TlsVersion::V1_2) if path != "discovery" => {
            let listener = if path == "api" {
                "the token API"
            } else {
                "this listener"
            };
            check.wrong(
                &field,
                format!("is \"1.2\", but {listener} accepts only TLS 1.3"),
                "remove it; discovery.tls.minVersion is for old verifiers",
            );
            None
        }
        Some(version) => Some(version),
        None => {
            check.wrong(
                &field,
                format!(
                    "{:?} is not a TLS version that Keyferry speaks",
                    text.unwrap_or_default()
                ),
                "write \"1.3\" or, for discovery, \"1.2\"",
            );
            None
        }
    }
}

/// Decides where the certificate comes from. Mistakes of the file are reported even if a flag
/// overrides it.
fn read_tls_source(
    tls: TlsSpec,
    path: &str,
    overrides: ListenerOverride<'_>,
    check: &mut Check<'_>,
) -> Option<TlsSource> {
    let written = match (tls.secret_name, tls.cert_file, tls.key_file) {
        (None, None, None) => match (overrides.secret, overrides.tls_may_be_unset) {
            (None, false) => {
                check.wrong(
                    &format!("{path}.tls"),
                    "names no certificate",
                    "set secretName, or certFile and keyFile; or give --tls-secret",
                );
                None
            }
            _ => Some(TlsSource::Unset),
        },
        (Some(name), None, None) => check
            .take(
                &format!("{path}.tls.secretName"),
                ObjectName::new(name),
                "name a Secret of type kubernetes.io/tls in Keyferry's namespace",
            )
            .map(TlsSource::Secret),
        (Some(_), _, _) => {
            check.wrong(
                &format!("{path}.tls.secretName"),
                "is set beside certFile or keyFile",
                "keep either the Secret or both files",
            );
            None
        }
        (None, Some(certificate), Some(key)) => {
            Some(TlsSource::Files(TlsFiles { certificate, key }))
        }
        (None, None, Some(_)) => {
            check.wrong(
                &format!("{path}.tls.certFile"),
                "is missing beside keyFile",
                "add it",
            );
            None
        }
        (None, Some(_), None) => {
            check.wrong(
                &format!("{path}.tls.keyFile"),
                "is missing beside certFile",
                "add it",
            );
            None
        }
    };
    match overrides.secret {
        Some(secret) => written.map(|_| TlsSource::Secret(secret.clone())),
        None => written,
    }
}

/// Reads the address to listen on at `path`.
pub(super) fn read_address(
    text: Option<&str>,
    path: &str,
    default: SocketAddr,
    check: &mut Check<'_>,
) -> Option<SocketAddr> {
    match text {
        None => Some(default),
        Some(text) => check.take(
            path,
            listen_address(text).map_err(|_| format!("{text:?} is not an address")),
            "write ip:port, such as 0.0.0.0:9443",
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::listen_address;

    #[test]
    fn an_address_may_leave_out_the_ip() {
        for (text, read) in [
            (":9443", Some("0.0.0.0:9443")),
            ("[::]:8443", Some("[::]:8443")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            (":", None),
            (":+80", None),
            (":65536", None),
            ("localhost:80", None),
            ("9443", None),
            ("", None),
        ] {
            let found = listen_address(text).ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), read, "{text}");
        }
    }
}
