//! `TargetCluster`: a target's address, its CA, its one audience, and its allow rules.

mod client_certificates;
mod identity;
mod kind;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::access::{Probe, choice};
use super::allow::AllowRule;
use super::check::Check;
use super::document::{Document, Object};
use super::mistake::Mistake;
use super::server::ServerConfiguration;
use super::target_spec::{LifetimeSpec, SecretReference, TargetClusterSpec, TrustBundleReference};
use super::{DeletionPolicy, Generation, Policy, address, allow, span};
use crate::audience::Audience;
use crate::issuer::Issuer;
use crate::lifetime;
use crate::managed_issuer::{self, INERT_AUDIENCE};
use crate::name::{ObjectName, TrustBundleName};

pub use self::identity::ClusterIdentity;
pub(super) use self::identity::{ClusterIdentitySpec, check_unique as check_identities};

/// The API group and version of TargetCluster and TargetAccess.
pub(super) const API_VERSION: &str = "keyferry.dev/v1alpha1";

/// A checked TargetCluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCluster {
    /// Its name, which is also its UID in a file.
    pub name: ObjectName,
    /// How the fleet names it, if its inputs are served.
    pub identity: Option<ClusterIdentity>,
    /// Changes with its spec.
    pub generation: Generation,
    /// What it is.
    pub kind: TargetKind,
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

/// What a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetKind {
    /// A Kubernetes cluster.
    #[default]
    Cluster,
    /// A relying party that is not a cluster: it has an audience and no address.
    Audience,
}

impl TargetKind {
    /// Every kind with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("Cluster", Self::Cluster), ("Audience", Self::Audience)];
}

/// Which issuer signs the tokens for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenIssuer {
    /// The hub, by TokenRequest; its issuer is republished.
    Hub,
    /// Keyferry, with a key set only for this target, after a TokenRequest that the hub has
    /// granted.
    Keyferry,
}

impl TokenIssuer {
    /// Every issuer with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("Hub", Self::Hub), ("Keyferry", Self::Keyferry)];
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

/// Which party approves the requests for client certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateApproval {
    /// A user with the right to approve for the signer.
    #[default]
    Manual,
    /// `keyferry approve-certificates`, under an account of its own.
    Automatic,
}

impl CertificateApproval {
    /// Every choice with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("Manual", Self::Manual), ("Automatic", Self::Automatic)];
}

/// The lifetimes of tokens for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeRange {
    /// The lifetime of a token by default, in whole seconds.
    pub default: Duration,
    /// The longest lifetime that a delivery may request, in whole seconds.
    pub max: Duration,
}

/// Reads one TargetCluster into the policy.
pub(super) fn read(document: &Document, policy: &mut Policy, mistakes: &mut Vec<Mistake>) {
    let mut check = Check::new(document, mistakes);
    let Some(object) = check.read::<Object<TargetClusterSpec>>() else {
        return;
    };
    if object.metadata.namespace.is_some() {
        check.wrong(
            "metadata.namespace",
            "a TargetCluster is cluster-scoped",
            "remove metadata.namespace",
        );
    }
    let kind = kind::read(&object.spec, &mut check);
    let TargetClusterSpec {
        identity,
        kind: _,
        address,
        tls_server_name,
        proxy_url,
        cert_secret_ref,
        cluster_trust_bundle_ref,
        ca_bundle,
        audience,
        issuer,
        target_issuer,
        token_lifetime,
        hub,
        client_certificates,
        allow,
        deletion_policy,
        probe,
        suspend,
    } = object.spec;
    let name = check.take(
        "metadata.name",
        ObjectName::new(object.metadata.name),
        "name it as a Kubernetes object",
    );
    let identity = identity::read(identity, &mut check);
    let connection = Connection::read(address, tls_server_name, proxy_url, &mut check);
    let certificate = read_certificate(
        cluster_trust_bundle_ref,
        cert_secret_ref,
        ca_bundle,
        &mut check,
    );
    let audience = check.take(
        "spec.audience",
        Audience::new(audience),
        "give the target one audience that no other target has",
    );
    let issuer = read_issuer(&issuer, &mut check);
    let target_issuer = target_issuer.and_then(|text| {
        check.take(
            "spec.targetIssuer",
            Issuer::new(text),
            "write the target's own --service-account-issuer",
        )
    });
    let lifetime = read_lifetime(&token_lifetime, &mut check);
    let hub = hub.unwrap_or_default();
    let client_certificates = client_certificates::read(hub, client_certificates, &mut check);
    let allow: Arc<[AllowRule]> = allow
        .into_iter()
        .enumerate()
        .filter_map(|(index, rule)| allow::read(rule, index, &mut check))
        .collect();
    client_certificates::check_allowed(client_certificates.is_some(), &allow, &mut check);
    kind::check_allowed(kind, &allow, &mut check);
    let deletion_policy = DeletionPolicy::read(deletion_policy.as_deref(), &mut check);
    let probe = read_probe(kind, probe.as_deref(), &mut check);
    if !check.clean() {
        return;
    }
    let (
        Some(name),
        Some(address),
        Some(certificate),
        Some(audience),
        Some(issuer),
        Some(lifetime),
    ) = (
        name,
        connection.address,
        certificate,
        audience,
        issuer,
        lifetime,
    )
    else {
        return;
    };
    let target = TargetCluster {
        name: name.clone(),
        identity,
        generation: document.generation(),
        kind,
        address,
        tls_server_name: connection.tls_server_name,
        proxy_url: connection.proxy_url,
        certificate,
        client_certificates,
        audience,
        issuer,
        target_issuer,
        lifetime,
        allow,
        deletion_policy,
        probe,
        suspend,
    };
    policy.targets.insert(name, target);
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

fn read_certificate(
    bundle: Option<TrustBundleReference>,
    secret: Option<SecretReference>,
    inline: Option<String>,
    check: &mut Check<'_>,
) -> Option<CertificateSource> {
    let Some(bundle) = bundle else {
        return certificate(secret, inline, check);
    };
    if secret.is_some() || inline.is_some() {
        check.wrong(
            "spec.clusterTrustBundleRef",
            "is set together with certSecretRef or caBundle",
            "keep one of the three",
        );
        return None;
    }
    check
        .take(
            "spec.clusterTrustBundleRef.name",
            TrustBundleName::new(bundle.name),
            "name a ClusterTrustBundle of the hub",
        )
        .map(CertificateSource::TrustBundle)
}

/// No probe asks a relying party that is no cluster.
fn read_probe(kind: TargetKind, text: Option<&str>, check: &mut Check<'_>) -> Probe {
    let probe = choice(text, "spec.probe", Probe::WITHOUT_REQUIRE, check);
    match kind {
        TargetKind::Cluster => probe,
        TargetKind::Audience => Probe::Off,
    }
}

/// Checks the targets with `issuer: Keyferry`: whether managed issuers are enabled, and whether
/// their issuers are valid.
pub(super) fn check_issuers(
    documents: &[Document],
    server: Option<&ServerConfiguration>,
    mistakes: &mut Vec<Mistake>,
) {
    let Some(server) = server else { return };
    let own = |document: &&Document| {
        document.kind() == "TargetCluster" && document.text("/spec/issuer") == "Keyferry"
    };
    for document in documents.iter().filter(own) {
        if !server.managed_issuers.enabled {
            mistakes.push(document.mistake(
                "spec.issuer",
                "Keyferry signs nothing itself: its managed issuers are not enabled",
                "start it with --enable-keyferry-issuer, or set managedIssuers.enabled, or use Hub \
                 with an https --service-account-issuer on the hub",
            ));
        }
        let Ok(name) = ObjectName::new(document.text("/metadata/name")) else {
            continue;
        };
        match managed_issuer::issuer(&server.public_url, &name) {
            Ok(issuer) if managed_issuer::secret_name(&name).is_ok() => {
                if document.text("/spec/targetIssuer") == issuer.as_str() {
                    mistakes.push(document.mistake(
                        "spec.targetIssuer",
                        "is the issuer that Keyferry makes for this target",
                        "write the target's own --service-account-issuer",
                    ));
                }
            }
            _ => mistakes.push(document.mistake(
                "metadata.name",
                "is too long for a managed issuer: it is part of the issuer's URL and of a \
                 Secret's name",
                "choose a name of at most 200 characters",
            )),
        }
    }
}

/// Refuses audiences that are used twice or belong to Keyferry. Each of two targets with one
/// audience would accept the other's tokens, and a target with Keyferry's own audience could use
/// its tokens to call Keyferry.
///
/// Checks the documents as written, so that another mistake in one of them does not hide this one.
pub(super) fn check_audiences(documents: &[Document], own: &str, mistakes: &mut Vec<Mistake>) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for document in documents
        .iter()
        .filter(|document| document.kind() == "TargetCluster")
    {
        let (name, audience) = (
            document.text("/metadata/name"),
            document.text("/spec/audience"),
        );
        if audience.is_empty() {
            continue;
        }
        if audience == INERT_AUDIENCE {
            mistakes.push(document.mistake(
                "spec.audience",
                "is the audience of tokens that nothing accepts, which Keyferry uses to query the \
                 hub",
                "choose another audience",
            ));
        }
        if audience == own {
            mistakes.push(document.mistake(
                "spec.audience",
                "is Keyferry's own callerAudience, so a target could use its tokens to call \
                 Keyferry",
                "choose another audience",
            ));
        }
        match owners.get(audience) {
            Some(owner) => mistakes.push(document.mistake(
                "spec.audience",
                format!(
                    "is also the audience of TargetCluster/{owner}, so a token for one would \
                    open the other"
                ),
                "give each target an audience of its own",
            )),
            None => drop(owners.insert(audience, name)),
        }
    }
}

fn certificate(
    reference: Option<SecretReference>,
    inline: Option<String>,
    check: &mut Check<'_>,
) -> Option<CertificateSource> {
    match (reference, inline) {
        (Some(_), Some(_)) => {
            check.wrong(
                "spec.caBundle",
                "is set together with certSecretRef",
                "keep one of certSecretRef and caBundle",
            );
            None
        }
        (Some(reference), None) => check
            .take(
                "spec.certSecretRef.name",
                ObjectName::new(reference.name),
                "name a Secret in Keyferry's own namespace, without a slash",
            )
            .map(CertificateSource::Secret),
        (None, Some(pem)) if pem.contains("-----BEGIN CERTIFICATE-----") => {
            Some(CertificateSource::Inline(pem))
        }
        (None, Some(_)) => {
            check.wrong(
                "spec.caBundle",
                "holds no PEM certificate",
                "paste the target's CA certificates, with their BEGIN CERTIFICATE lines",
            );
            None
        }
        (None, None) => Some(CertificateSource::System),
    }
}

fn read_issuer(issuer: &str, check: &mut Check<'_>) -> Option<TokenIssuer> {
    let named = TokenIssuer::ALL.iter().find(|(name, _)| *name == issuer);
    if named.is_none() {
        check.wrong(
            "spec.issuer",
            format!("{issuer:?} is not an issuer type"),
            "use Hub or Keyferry",
        );
    }
    named.map(|(_, issuer)| *issuer)
}

/// Checks that every lifetime leaves a new key of the hub its activation delay before tokens signed
/// with it may be issued.
pub(super) fn leave_room(
    documents: &[Document],
    policy: &Policy,
    max_age: Duration,
    mistakes: &mut Vec<Mistake>,
) -> bool {
    let delay = lifetime::activation_delay(max_age);
    let least = lifetime::least_for(delay);
    let before = mistakes.len();
    for document in documents
        .iter()
        .filter(|document| document.kind() == "TargetCluster")
    {
        let target = policy
            .targets
            .values()
            .find(|target| target.name.as_str() == document.text("/metadata/name"));
        let Some(target) = target.filter(|target| target.lifetime.default < least) else {
            continue;
        };
        let problem = format!(
            "{} is too short for a new key of the hub: with discovery.maxAge {} it is \
             published {} before its tokens are issued, and a token is renewed \
             halfway through its life at the earliest, 70s before the old one becomes unusable",
            span::print(target.lifetime.default),
            span::print(max_age),
            span::print(delay),
        );
        let fix = format!(
            "write at least {} (twice {} and 70s), or a shorter discovery.maxAge",
            span::print(least),
            span::print(delay)
        );
        mistakes.push(document.mistake("spec.tokenLifetime.default", problem, fix));
    }
    mistakes.len() == before
}

fn read_lifetime(lifetime: &LifetimeSpec, check: &mut Check<'_>) -> Option<LifetimeRange> {
    const FIX: &str = "write a duration from 10m to 24h";
    let mut one = |path: &str, text: &Option<String>, default: Duration| {
        let Some(text) = text else {
            return Some(default);
        };
        let read =
            span::parse(text).and_then(|duration| lifetime::check(duration).map(|()| duration));
        check.take(
            path,
            read.map_err(|problem| format!("{text:?} {problem}")),
            FIX,
        )
    };
    let max = one(
        "spec.tokenLifetime.max",
        &lifetime.max,
        Duration::from_secs(12 * 3600),
    );
    let default = one(
        "spec.tokenLifetime.default",
        &lifetime.default,
        max.unwrap_or(lifetime::MAX).min(Duration::from_secs(3600)),
    );
    let (default, max) = (default?, max?);
    if default > max {
        let problem = format!(
            "{} is longer than max, {}",
            span::print(default),
            span::print(max)
        );
        check.wrong(
            "spec.tokenLifetime.default",
            problem,
            "lower default or raise max",
        );
        return None;
    }
    Some(LifetimeRange { default, max })
}
