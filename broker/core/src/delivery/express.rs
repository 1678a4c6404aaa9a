//! Which delivery type can carry which field of a target. A target with a field that the type
//! cannot carry is not written: a consumer that silently dropped the field would send its token
//! elsewhere.

use std::fmt;

use keyferry_api::config::{DeliveryType, TargetCluster, TokenIssuer};

/// A field of a target that a delivery type cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExpressible {
    /// The field of the TargetCluster.
    pub field: Field,
    /// The delivery type that cannot carry it.
    pub delivery: DeliveryType,
}

/// A field of a TargetCluster that not every delivery type can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A path in `address`.
    AddressPath,
    /// `issuer: Keyferry`.
    Issuer,
    /// `proxyURL`.
    ProxyUrl,
    /// `tlsServerName`.
    TlsServerName,
}

impl Field {
    /// Every field, for the table in the documentation.
    pub const ALL: &'static [Self] = &[
        Self::AddressPath,
        Self::Issuer,
        Self::ProxyUrl,
        Self::TlsServerName,
    ];

    /// The field as objects spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressPath => "a path in spec.address",
            Self::Issuer => "spec.issuer: Keyferry",
            Self::ProxyUrl => "spec.proxyURL",
            Self::TlsServerName => "spec.tlsServerName",
        }
    }

    fn is_set(self, target: &TargetCluster) -> bool {
        match self {
            Self::AddressPath => target.address.trim_start_matches("https://").contains('/'),
            Self::Issuer => target.issuer == TokenIssuer::Keyferry,
            Self::ProxyUrl => target.proxy_url.is_some(),
            Self::TlsServerName => target.tls_server_name.is_some(),
        }
    }

    /// Whether this delivery type carries the field to its consumers.
    pub fn is_carried_by(self, delivery: DeliveryType) -> bool {
        match delivery {
            // Flux mints its own tokens, keeps only host and port of the address, and has no other
            // fields. The Secret of a client certificate has no address at all.
            DeliveryType::ClientCertificateSecret | DeliveryType::FluxConfigMap => false,
            // The library that its consumers use drops the server name.
            DeliveryType::ClusterProfile => self != Self::TlsServerName,
            DeliveryType::ArgoCDSecret
            | DeliveryType::ClusterAPISecret
            | DeliveryType::Exec
            | DeliveryType::HTTP
            | DeliveryType::KubeConfigSecret => true,
        }
    }
}

impl fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let able = DeliveryType::ALL
            .iter()
            .filter(|(_, delivery)| self.field.is_carried_by(*delivery))
            .map(|(name, _)| *name);
        let able: Vec<&str> = able.collect();
        write!(
            f,
            "{} cannot carry {} of the TargetCluster; use {}",
            self.delivery.as_str(),
            self.field.as_str(),
            able.join(", ")
        )
    }
}

/// Checks that the delivery type can carry every field that the target sets.
///
/// # Errors
/// The first field that it cannot carry.
pub fn check_expressible(
    delivery: DeliveryType,
    target: &TargetCluster,
) -> Result<(), NotExpressible> {
    let dropped = Field::ALL
        .iter()
        .copied()
        .find(|field| field.is_set(target) && !field.is_carried_by(delivery));
    dropped.map_or(Ok(()), |field| Err(NotExpressible { field, delivery }))
}
