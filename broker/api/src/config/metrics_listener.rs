//! The TLS listener of a ServerConfiguration for metrics alone.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::check::Check;
use super::listener::{Given, Listener, ListenerSpec, Tls, listener};

/// The limit of connections per source: as on the health listener, because only scrapers connect.
const CONNECTIONS: u32 = 32;

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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct MetricsSpec {
    address: Option<String>,
    tls: Option<Tls>,
    authentication: Option<String>,
}

/// Reads the listener. The outer `None` means a mistake, the inner `None` that the file has no such
/// listener.
pub(super) fn metrics(
    spec: MetricsSpec,
    given: Given<'_>,
    check: &mut Check<'_>,
) -> Option<Option<MetricsListener>> {
    let MetricsSpec {
        address,
        tls,
        authentication,
    } = spec;
    let authentication = match authentication.as_deref() {
        None | Some("TokenReview") => Some(MetricsAuthentication::TokenReview),
        Some("None") => Some(MetricsAuthentication::None),
        Some(other) => {
            check.wrong(
                "metrics.authentication",
                format!("{other:?} is not a way to authenticate readers of metrics"),
                "use TokenReview or None",
            );
            None
        }
    };
    if address.is_none() && given.address.is_none() {
        if tls.is_some() {
            check.wrong(
                "metrics.address",
                "is missing beside tls",
                "add it, such as 0.0.0.0:8444; without it, metrics are served by health.address",
            );
        }
        return authentication.map(|_| None);
    }
    let spec = ListenerSpec {
        address,
        tls,
        ..ListenerSpec::default()
    };
    let mut listener = listener(spec, "metrics", 0, given, check)?;
    listener.connections_per_address = NonZeroU32::new(CONNECTIONS);
    Some(Some(MetricsListener {
        listener,
        authentication: authentication?,
    }))
}
