//! `TargetCluster`: a target's address, its CA, its one audience, and its allow rules.

mod client_certificates;
mod identity;
mod kind;
mod role;

use std::sync::Arc;
use std::time::Duration;

use super::access_spec::{DeletionPolicy, Probe};
use super::allow::AllowRule;
use super::check::Check;
use super::document::{Document, Metadata, Object};
use super::duration::{print_duration, read_token_lifetime};
use super::generation::Generation;
use super::mistake::Mistake;
use super::target_spec::{
    CertificateApproval, LifetimeSpec, SecretReference, TargetClusterSpec, TargetKind, TokenIssuer,
    TrustBundleReference,
};
use super::{address, allow};
use crate::audience::Audience;
use crate::issuer::Issuer;
use crate::lifetime;
use crate::name::{ObjectName, TrustBundleName};

pub use self::identity::ClusterIdentity;
pub(super) use self::identity::ClusterIdentitySpec;
pub use self::role::TargetRole;
pub(super) use self::role::{RoleFault, check_base};

/// The API group and version of TargetCluster and TargetAccess.
pub(super) const API_VERSION: &str = "keyferry.dev/v1alpha1";

/// The lifetime of a token if none is configured.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
/// The longest lifetime of a token if none is configured.
const DEFAULT_MAX_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// A checked TargetCluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCluster {
    /// Its name, which is also its UID in a file.
    pub name: ObjectName,
    /// How the fleet names it, if its inputs are served.
    pub identity: Option<ClusterIdentity>,
    /// Changes with its spec, and that of a role also with its base's.
    pub generation: Generation,
    /// Changes with its own spec alone.
    pub spec_generation: Generation,
    /// What it is.
    pub kind: TargetKind,
    /// What it is at the cluster of another target, if it is a role there. A policy holds a role
    /// with its base's address, `tls_server_name`, `proxy_url`, `certificate`, `issuer`,
    /// `target_issuer` and `probe`, see [`TargetCluster::at_base`].
    pub role: Option<TargetRole>,
    /// The apiserver's URL: https, a path allowed; no trailing slash. Empty if the target is no
    /// cluster.
    pub address: String,
    /// The name to expect in the apiserver's certificate, if it is not the address's host.
    pub tls_server_name: Option<String>,
    /// The proxy through which clients reach the target: http, https or socks5.
    pub proxy_url: Option<String>,
    /// The source of the target's CA certificates.
    pub certificate: CertificateSource,
    /// How client certificates are issued, if the target is the hub's own apiserver. Nothing else
    /// is issued for that target.
    pub client_certificates: Option<ClientCertificates>,
    /// The only audience of every token for this target.
    pub audience: Audience,
    /// Which issuer signs its tokens.
    pub issuer: TokenIssuer,
    /// The target's own issuer, if its admin stated it.
    pub target_issuer: Option<Issuer>,
    /// Lifetimes of its tokens.
    pub lifetime: LifetimeRange,
    /// Which ServiceAccounts may use it. Empty means none.
    pub allow: Arc<[AllowRule]>,
    /// What happens to the objects delivered for it when it is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Whether the controller tries tokens at the target: `Off` or `Report`.
    pub probe: Probe,
    /// Whether minting is suspended.
    pub suspend: bool,
}

impl TargetCluster {
    /// Whether it is a cluster, with an address.
    pub fn is_cluster(&self) -> bool {
        self.kind == TargetKind::Cluster
    }
}

/// The source of a target's CA certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// `ca.crt` of this Secret in Keyferry's namespace.
    Secret(ObjectName),
    /// This ClusterTrustBundle of the hub.
    TrustBundle(TrustBundleName),
    /// PEM in the object itself.
    Inline(String),
    /// The client's own roots.
    System,
}

/// How client certificates for the hub's own apiserver are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Which party approves their requests.
    pub approval: CertificateApproval,
    /// The lifetime to request, in whole seconds.
    pub max_lifetime: Duration,
}

/// The lifetimes of tokens for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeRange {
    /// The lifetime of a token by default, in whole seconds.
    pub default: Duration,
    /// The longest lifetime that a delivery may request, in whole seconds.
    pub max: Duration,
}

/// Reads one TargetCluster; `None` if it has mistakes.
pub(super) fn read_target(
    document: &Document,
    mistakes: &mut Vec<Mistake>,
) -> Option<TargetCluster> {
    let mut check = Check::new(document, mistakes);
    let Object { metadata, spec, .. } = check.read_fields::<Object<TargetClusterSpec>>(&[])?;
    check_cluster_scoped(&metadata, &mut check);
    let kind = kind::read_kind(&spec, &mut check);
    let name = check.take(
        "metadata.name",
        ObjectName::new(metadata.name),
        "name it as a Kubernetes object",
    );
    let role = role::read_role(&spec, name.as_ref(), &mut check);
    let identity = identity::read_identity(spec.identity, &mut check);
    let connection = Connection::read(
        spec.address,
        spec.tls_server_name,
        spec.proxy_url,
        &mut check,
    );
    let certificate = read_certificate_source(
        spec.cluster_trust_bundle_ref,
        spec.cert_secret_ref,
        spec.ca_bundle,
        &mut check,
    );
    let audience = read_audience(&spec.audience, &mut check);
    let issuer = check.choose(
        "spec.issuer",
        &spec.issuer,
        "an issuer type",
        TokenIssuer::ALL,
    );
    let target_issuer = read_target_issuer(spec.target_issuer, &mut check);
    let lifetime = read_lifetime_range(&spec.token_lifetime, &mut check);
    let is_hub = spec.hub.unwrap_or_default();
    let client_certificates =
        client_certificates::read_client_certificates(is_hub, spec.client_certificates, &mut check);
    let allow = allow::read_allow_rules(spec.allow, &mut check);
    client_certificates::check_allowed(client_certificates.is_some(), &allow, &mut check);
    kind::check_allowed(kind, &allow, &mut check);
    let deletion_policy = DeletionPolicy::read(spec.deletion_policy.as_deref(), &mut check);
    let probe = read_probe(kind, spec.probe.as_deref(), &mut check);
    if !check.clean() {
        return None;
    }
    Some(TargetCluster {
        name: name?,
        identity,
        generation: document.generation(),
        spec_generation: document.generation(),
        kind,
        role,
        address: connection.address?,
        tls_server_name: connection.tls_server_name,
        proxy_url: connection.proxy_url,
        certificate: certificate?,
        client_certificates,
        audience: audience?,
        issuer: issuer?,
        target_issuer,
        lifetime: lifetime?,
        allow,
        deletion_policy: deletion_policy?,
        probe: probe?,
        suspend: spec.suspend,
    })
}

fn check_cluster_scoped(metadata: &Metadata, check: &mut Check<'_>) {
    if metadata.namespace.is_some() {
        check.wrong(
            "metadata.namespace",
            "a TargetCluster is cluster-scoped",
            "remove metadata.namespace",
        );
    }
}

fn read_audience(text: &str, check: &mut Check<'_>) -> Option<Audience> {
    check.take(
        "spec.audience",
        Audience::new(text),
        "give the target one audience that no other target has",
    )
}

fn read_target_issuer(text: Option<String>, check: &mut Check<'_>) -> Option<Issuer> {
    check.take(
        "spec.targetIssuer",
        Issuer::new(text?),
        "write the target's own --service-account-issuer",
    )
}

/// How a client reaches the target. A member with a mistake is absent.
struct Connection {
    address: Option<String>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

impl Connection {
    fn read(
        address: Option<String>,
        tls_server_name: Option<String>,
        proxy_url: Option<String>,
        check: &mut Check<'_>,
    ) -> Self {
        let address = match address {
            Some(address) => check.take(
                "spec.address",
                address::server(&address),
                "write https://host[:port][/path]",
            ),
            None => Some(String::new()),
        };
        let tls_server_name = tls_server_name.and_then(|text| {
            check.take(
                "spec.tlsServerName",
                address::server_name(text),
                "write a DNS name",
            )
        });
        let proxy_url = proxy_url.and_then(|text| {
            check.take(
                "spec.proxyURL",
                address::proxy(&text),
                "write http, https or socks5://host:port",
            )
        });
        Self {
            address,
            tls_server_name,
            proxy_url,
        }
    }
}

/// No probe asks a relying party that is no cluster.
fn read_probe(kind: TargetKind, text: Option<&str>, check: &mut Check<'_>) -> Option<Probe> {
    let probe =
        check.choose_or_default("spec.probe", text, "a valid value", Probe::WITHOUT_REQUIRE);
    match kind {
        TargetKind::Cluster => probe,
        TargetKind::Audience => Some(Probe::Off),
    }
}

fn read_certificate_source(
    bundle: Option<TrustBundleReference>,
    secret: Option<SecretReference>,
    inline: Option<String>,
    check: &mut Check<'_>,
) -> Option<CertificateSource> {
    match (bundle, secret, inline) {
        (None, None, None) => Some(CertificateSource::System),
        (Some(bundle), None, None) => check
            .take(
                "spec.clusterTrustBundleRef.name",
                TrustBundleName::new(bundle.name),
                "name a ClusterTrustBundle of the hub",
            )
            .map(CertificateSource::TrustBundle),
        (None, Some(secret), None) => check
            .take(
                "spec.certSecretRef.name",
                ObjectName::new(secret.name),
                "name a Secret in Keyferry's own namespace, without a slash",
            )
            .map(CertificateSource::Secret),
        (None, None, Some(pem)) if pem.contains("-----BEGIN CERTIFICATE-----") => {
            Some(CertificateSource::Inline(pem))
        }
        (None, None, Some(_)) => {
            check.wrong(
                "spec.caBundle",
                "holds no PEM certificate",
                "paste the target's CA certificates, with their BEGIN CERTIFICATE lines",
            );
            None
        }
        (Some(_), ..) => {
            check.wrong(
                "spec.clusterTrustBundleRef",
                "is set together with certSecretRef or caBundle",
                "keep one of the three",
            );
            None
        }
        (None, Some(_), Some(_)) => {
            check.wrong(
                "spec.caBundle",
                "is set together with certSecretRef",
                "keep one of certSecretRef and caBundle",
            );
            None
        }
    }
}

fn read_lifetime_range(spec: &LifetimeSpec, check: &mut Check<'_>) -> Option<LifetimeRange> {
    let max = match &spec.max {
        Some(text) => read_token_lifetime(text, "spec.tokenLifetime.max", check),
        None => Some(DEFAULT_MAX_LIFETIME),
    };
    let path = "spec.tokenLifetime.default";
    let default = match &spec.default {
        Some(text) => read_token_lifetime(text, path, check),
        None => Some(max.unwrap_or(lifetime::MAX).min(DEFAULT_LIFETIME)),
    };
    let (default, max) = (default?, max?);
    if default > max {
        let problem = format!(
            "{} is longer than max, {}",
            print_duration(default),
            print_duration(max)
        );
        check.wrong(path, problem, "lower default or raise max");
        return None;
    }
    Some(LifetimeRange { default, max })
}
