//! `ServerConfiguration` as written. The table of docs/reference/configuration.md and the schema for
//! editors are printed from these types.

use schemars::JsonSchema;
use serde::Deserialize;

use super::audit_file::AuditSpec;
use super::caller_certificates::{CallerCertificateSpec, MAX_RULES};
use super::duration::DurationBounds;
use super::external_issuer::{ExternalIssuerSpec, MAX_ISSUERS};
use super::inputs::InputsSpec;
use super::listener::{
    API_ADDRESS, CONNECTIONS_LIMIT, DISCOVERY_ADDRESS, HEALTH_ADDRESS, LimitBounds, TlsSpec,
};
use super::metrics_listener::MetricsSpec;
use super::misfit::MisplacedField;
use crate::name::{Namespace, ObjectName};
use crate::schema;

/// The audience of callers' tokens if none is configured.
pub(super) const DEFAULT_CALLER_AUDIENCE: &str = "keyferry.dev";

/// Keyferry's namespace if none is configured.
pub(super) const DEFAULT_NAMESPACE: &str = "keyferry-system";
/// The ServiceAccount without rights if none is configured.
pub(super) const DEFAULT_CANARY: &str = "keyferry-canary";

/// The most apiservers of the hub that the file can name.
pub(super) const MAX_ENDPOINTS: usize = 16;

/// The `max-age` of published documents.
pub(super) const MAX_AGE: DurationBounds = DurationBounds {
    default: 60,
    range: 30..=3600,
};
/// How long an authorisation outlives the hub's answers.
pub(super) const MAX_STALE_AUTHORIZATION: DurationBounds = DurationBounds {
    default: 300,
    range: 0..=3600,
};
/// How long a key of a managed issuer signs.
pub(super) const KEY_ROTATION: DurationBounds = DurationBounds {
    default: 720 * 3600,
    range: 24 * 3600..=8760 * 3600,
};
/// The limit of requests a second from unknown callers. Checking the signatures of the default
/// takes a hundredth of a core.
pub(super) const NEW_CALLERS_LIMIT: LimitBounds = LimitBounds {
    default: 100,
    max: 100_000,
};

const NO_CLIENTS: &str = "is set, but that listener does not authenticate clients";

/// The fields that people look for in the wrong section.
pub(super) const MISPLACED_FIELDS: &[MisplacedField] = &[
    MisplacedField {
        path: "discovery.limits.newCallersPerAddress",
        problem: NO_CLIENTS,
        fix: "set it under api.limits",
    },
    MisplacedField {
        path: "discovery.limits.newCallersPerNamespace",
        problem: NO_CLIENTS,
        fix: "set it under api.limits",
    },
    MisplacedField {
        path: "discovery.clientCertificates",
        problem: NO_CLIENTS,
        fix: "set it under api",
    },
    MisplacedField {
        path: "discovery.publicURL",
        problem: "is set, but the origin of the published documents is publicURL",
        fix: "remove it",
    },
    MisplacedField {
        path: "api.maxAge",
        problem: "is set, but caches never store tokens",
        fix: "remove it, or set discovery.maxAge",
    },
    MisplacedField {
        path: "api.httpAddress",
        problem: "is set, but the token API never speaks plain HTTP",
        fix: "remove it",
    },
];

/// The settings of one Keyferry process. It is the first document of the file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ServerSpec {
    /// The version of this object.
    #[serde(rename = "apiVersion")]
    _api_version: String,
    /// The kind of this object.
    #[serde(rename = "kind")]
    _kind: String,
    /// It has no effect.
    #[serde(rename = "metadata")]
    _metadata: Option<ServerMetadata>,
    /// The hub's name, a short label. Every username at the targets begins with <hubName>:, which
    /// keyferry trust writes into a target's AuthenticationConfiguration; such a file by hand needs
    /// the same prefix. Never change either.
    #[schemars(with = "Namespace")]
    pub(super) hub_name: String,
    /// The origin at which targets reach the discovery listener, https://host[:port] without path,
    /// query, fragment or credentials. The published jwks_uri contains it, and targets pin that URL
    /// until they restart or reload. It never changes.
    #[serde(rename = "publicURL")]
    #[schemars(transform = schema::origin)]
    pub(super) public_url: String,
    /// The only audience that callers' tokens may have: printable ASCII without space, comma,
    /// quotes, backtick and backslash. The server does not start if the hub's own apiserver accepts
    /// it.
    #[schemars(
        transform = schema::audience,
        extend("default" = DEFAULT_CALLER_AUDIENCE),
    )]
    pub(super) caller_audience: Option<String>,
    /// Keyferry's own namespace, with the Secrets that this file and the TargetClusters name.
    #[schemars(with = "Option<Namespace>", extend("default" = DEFAULT_NAMESPACE))]
    pub(super) cluster_resource_namespace: Option<String>,
    /// A ServiceAccount of that namespace. Keyferry mints for it to find out whether the hub accepts
    /// an audience. Never bind a role to it.
    #[schemars(with = "Option<ObjectName>", extend("default" = DEFAULT_CANARY))]
    pub(super) canary_service_account: Option<String>,
    /// What is known of the hub.
    #[serde(default)]
    pub(super) hub: HubSpec,
    /// The listener of the published documents.
    #[serde(default)]
    pub(super) discovery: DiscoverySpec,
    /// The listener of the token API.
    #[serde(default)]
    pub(super) api: ApiSpec,
    /// The listener of health, in plain HTTP.
    #[serde(default)]
    pub(super) health: HealthSpec,
    /// The listener of metrics with TLS. Without it, metrics are at health.address.
    #[serde(default)]
    pub(super) metrics: MetricsSpec,
    /// How long Keyferry uses an earlier TokenReview or SubjectAccessReview while the hub does not
    /// answer, how long a watch of ServiceAccounts or Namespaces may fail before the token API
    /// refuses requests, and how long cached tokens are issued after the last reading of the key
    /// journal (at least 30s).
    #[schemars(transform = MAX_STALE_AUTHORIZATION.describe())]
    pub(super) max_stale_authorization: Option<String>,
    /// Whether callers' tokens of the hub must be bound to a Pod, which those of kubectl create token
    /// are not. It does not concern the tokens of externalIssuers. Not beside
    /// api.clientCertificates.
    #[serde(default)]
    pub(super) require_pod_bound: bool,
    /// Issuers other than the hub whose tokens callers may present, such as a CI system. A change
    /// needs a restart.
    #[serde(default)]
    #[schemars(length(max = MAX_ISSUERS))]
    pub(super) external_issuers: Vec<ExternalIssuerSpec>,
    /// The issuers of the targets with issuer: Keyferry.
    #[serde(default)]
    pub(super) managed_issuers: ManagedIssuersSpec,
    /// The fleet inputs.
    #[serde(default)]
    pub(super) inputs: InputsSpec,
    /// Where TargetClusters and TargetAccesses are read from. File means this file, after the
    /// ServerConfiguration. CustomResources means the hub, where the CRDs must be installed, with
    /// deliveries, statuses and the AudiencePairing; such an object in the file is then a mistake.
    #[schemars(transform = schema::choices(ObjectSource::ALL))]
    pub(super) objects: Option<String>,
    /// The audit log. Without a file it is on standard output.
    #[serde(default)]
    pub(super) audit: AuditSpec,
}

/// `metadata` of a ServerConfiguration, which is not an object of the hub but may have a name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServerMetadata {
    /// Any name.
    #[serde(rename = "name")]
    _name: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HubSpec {
    /// The hub's --service-account-issuer, to pin it: an https URL without query, fragment or
    /// credentials. Without it, the first issuer that the hub states after a start, until the process
    /// ends.
    #[schemars(transform = schema::issuer)]
    pub(super) issuer: Option<String>,
    /// The hub's apiservers, each https://host[:port]. Keyferry asks each of them for its keys, with
    /// the certificate name of the client's own server address, and withdraws a key only when every
    /// one answers without it. Without an entry, those that the hub lists in EndpointSlice
    /// default/kubernetes where Keyferry runs in it, else the client's own.
    #[serde(default)]
    #[schemars(length(max = MAX_ENDPOINTS), transform = schema::origins)]
    pub(super) endpoints: Vec<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DiscoverySpec {
    /// The address to listen on, ip:port or :port. No host names.
    #[schemars(extend("default" = DISCOVERY_ADDRESS))]
    pub(super) address: Option<String>,
    /// An address for plain HTTP, which only redirects. Without it none.
    pub(super) http_address: Option<String>,
    /// The serving certificate, for the host of publicURL. Required, unless a flag names its Secret.
    pub(super) tls: Option<TlsSpec>,
    /// The max-age of every published document. It also sets the activation delay, for which a new
    /// key is published before Keyferry issues tokens that it signed: 30s, maxAge and 30s. A
    /// tokenLifetime.default below twice that delay and 140s is a mistake.
    #[schemars(transform = MAX_AGE.describe())]
    pub(super) max_age: Option<String>,
    /// What one source may use of the listener.
    #[serde(default)]
    pub(super) limits: DiscoveryLimits,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DiscoveryLimits {
    /// The most connections of one IPv4 address or IPv6 /64. 0 is no limit, and then
    /// the handshakes and requests of an address have no rate either.
    #[schemars(transform = CONNECTIONS_LIMIT.describe())]
    pub(super) connections_per_address: Option<u32>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApiSpec {
    /// The address to listen on, ip:port or :port. No host names.
    #[schemars(extend("default" = API_ADDRESS))]
    pub(super) address: Option<String>,
    /// The origin at which clients reach the token API, https://host[:port]. With it, the API serves
    /// its metadata; nothing else uses it.
    #[serde(rename = "publicURL")]
    #[schemars(transform = schema::origin)]
    pub(super) public_url: Option<String>,
    /// The serving certificate, for any host. Required, unless a flag names its Secret.
    pub(super) tls: Option<TlsSpec>,
    /// Which client certificate stands for which caller. The entries name at most 16 Secrets. Without
    /// an entry, the listener asks for no certificate.
    #[serde(default)]
    #[schemars(length(max = MAX_RULES))]
    pub(super) client_certificates: Vec<CallerCertificateSpec>,
    /// What one source may use of the listener.
    #[serde(default)]
    pub(super) limits: ApiLimits,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApiLimits {
    /// The most connections of one address. 0 is no limit, and then the handshakes, requests and body
    /// memory of an address have none either.
    #[schemars(transform = CONNECTIONS_LIMIT.describe())]
    pub(super) connections_per_address: Option<u32>,
    /// Requests a second from one address with tokens that the hub has not accepted lately. 0 is no
    /// limit.
    #[schemars(transform = NEW_CALLERS_LIMIT.describe())]
    pub(super) new_callers_per_address: Option<u32>,
    /// Requests a second with valid but new tokens of one namespace. 0 is no limit.
    #[schemars(transform = NEW_CALLERS_LIMIT.describe())]
    pub(super) new_callers_per_namespace: Option<u32>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthSpec {
    /// The address to listen on, ip:port or :port. No kubelet reaches the default.
    #[schemars(extend("default" = HEALTH_ADDRESS))]
    pub(super) address: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ManagedIssuersSpec {
    /// Whether targets may have issuer: Keyferry. The flag --enable-keyferry-issuer and its variable
    /// override it. A change needs a restart.
    #[serde(default)]
    pub(super) enabled: bool,
    /// How long a key signs before it is rotated.
    #[schemars(transform = KEY_ROTATION.describe())]
    pub(super) rotate_every: Option<String>,
}

/// Where TargetClusters and TargetAccesses are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectSource {
    /// In the configuration file, after the ServerConfiguration.
    #[default]
    File,
    /// On the hub, as custom resources; only then are there deliveries that write objects.
    CustomResources,
}

impl ObjectSource {
    /// Every source with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] = &[
        ("File", Self::File),
        ("CustomResources", Self::CustomResources),
    ];
}
