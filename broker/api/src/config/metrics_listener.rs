//! The TLS listener of a ServerConfiguration for metrics alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Check;
use super::listener::{Listener, ListenerFields, ListenerOverride, TlsSpec, read_listener};
use crate::schema;

/// The limit of connections per source: as on the health listener, because only scrapers connect.
const MAX_CONNECTIONS: u32 = 32;

/// The listener that serves metrics with TLS, and which clients may read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsListener {
    /// Its address and certificate.
    pub listener: Listener,
    /// How a client proves that it may read metrics.
    pub authentication: MetricsAuthentication,
}

/// How a client of the metrics listener proves that it may read metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAuthentication {
    /// A bearer token that the hub accepts, of a user who may `get` the path `/metrics`: a
    /// TokenReview and a SubjectAccessReview, as controller-runtime sends them.
    #[default]
    TokenReview,
    /// Every client may read them.
    None,
}

impl MetricsAuthentication {
    /// Every way with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("TokenReview", Self::TokenReview), ("None", Self::None)];
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct MetricsSpec {
    /// The address to listen on, ip:port or :port. Without it there is no such listener.
    pub(super) address: Option<String>,
    /// The serving certificate. Required with address.
    pub(super) tls: Option<TlsSpec>,
    /// Who may read metrics. TokenReview means a user with the right to get the path /metrics on the
    /// hub. None means everyone.
    #[schemars(transform = schema::choices(MetricsAuthentication::ALL))]
    pub(super) authentication: Option<String>,
}

/// Reads the listener. The outer `None` means a mistake, the inner `None` that the file has no such
/// listener.
pub(super) fn read_metrics_listener(
    spec: MetricsSpec,
    overrides: ListenerOverride<'_>,
    check: &mut Check<'_>,
) -> Option<Option<MetricsListener>> {
    let MetricsSpec {
        address,
        tls,
        authentication,
    } = spec;
    let authentication = check.choose_or_default(
        "metrics.authentication",
        authentication.as_deref(),
        "a way to authenticate readers of metrics",
        MetricsAuthentication::ALL,
    );
    if address.is_none() && overrides.address.is_none() {
        if tls.is_some() {
            check.wrong(
                "metrics.address",
                "is missing beside tls",
                "add it, such as 0.0.0.0:8444; without it, metrics are served by health.address",
            );
        }
        return authentication.map(|_| None);
    }
    let fields = ListenerFields {
        address,
        tls,
        connections_per_address: None,
    };
    // Without an address in the file, the one of the flag is used.
    let unused = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut listener = read_listener(fields, "metrics", unused, overrides, check)?;
    listener.connections_per_address = NonZeroU32::new(MAX_CONNECTIONS);
    Some(Some(MetricsListener {
        listener,
        authentication: authentication?,
    }))
}
