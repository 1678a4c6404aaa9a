//! `ServerConfiguration`: the settings of one Keyferry process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::audit_file::{AuditFile, read_audit_file};
use super::caller_certificates::{CallerCertificate, read_caller_certificates};
use super::check::Check;
use super::document::Document;
use super::external_issuer::{ExternalIssuer, PublishedIssuers, read_external_issuers};
use super::inputs::{Inputs, read_inputs};
use super::listener::{
    API_ADDRESS, DISCOVERY_ADDRESS, HEALTH_ADDRESS, Listener, ListenerFields, ListenerOverrides,
    read_address, read_listener,
};
use super::metrics_listener::{MetricsListener, read_metrics_listener};
use super::mistake::Mistake;
use super::server_spec::{
    ApiLimits, ApiSpec, DEFAULT_CALLER_AUDIENCE, DEFAULT_CANARY, DEFAULT_NAMESPACE, DiscoverySpec,
    KEY_ROTATION, MAX_AGE, MAX_ENDPOINTS, MAX_STALE_AUTHORIZATION, MISPLACED_FIELDS,
    ManagedIssuersSpec, NEW_CALLERS_LIMIT, ObjectSource, ServerSpec,
};
use crate::audience::Audience;
use crate::issuer::{Issuer, PublicUrl, PublicUrlError};
use crate::managed_issuer::INERT_AUDIENCE;
use crate::name::{self, Namespace, ObjectName};

/// The API group and version of the ServerConfiguration.
pub(super) const API_VERSION: &str = "config.keyferry.dev/v1alpha1";

/// A checked ServerConfiguration. Bounds and defaults are in the reference of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfiguration {
    /// The hub's name; `<hubName>:` begins every username at the targets. Never changes.
    pub hub_name: String,
    /// The origin at which targets reach the published documents. Never changes.
    pub public_url: PublicUrl,
    /// The only audience that callers' tokens may have.
    pub caller_audience: Audience,
    /// Keyferry's namespace, with the Secrets that targets name.
    pub cluster_resource_namespace: Namespace,
    /// The ServiceAccount without rights that is used to check audiences, in that namespace.
    pub canary_service_account: ObjectName,
    /// The hub's issuer, if it is pinned; else the first one that the hub reports.
    pub hub_issuer: Option<Issuer>,
    /// The addresses of the hub's apiservers, if their documents are read one by one. Empty: those
    /// that the hub lists, or the client's.
    pub hub_endpoints: Vec<HubEndpoint>,
    /// The listener of the published documents.
    pub discovery: Listener,
    /// The plain-HTTP listener that redirects to the published documents.
    pub discovery_http_address: Option<SocketAddr>,
    /// The listener of the token API.
    pub api: Listener,
    /// The client certificates that the token API accepts from callers. Empty: it asks for none.
    pub client_certificates: Vec<CallerCertificate>,
    /// The rate limits for unknown callers.
    pub new_callers: NewCallerLimits,
    /// The plain-HTTP listener of health, and of metrics without a listener of their own.
    pub health_address: SocketAddr,
    /// The TLS listener of metrics.
    pub metrics: Option<MetricsListener>,
    /// The `max-age` of every published document.
    pub max_age: Duration,
    /// How long a successful authorisation stays valid while the hub is unreachable.
    pub max_stale_authorization: Duration,
    /// Whether callers' tokens must be bound to a Pod.
    pub require_pod_bound: bool,
    /// Issuers other than the hub whose tokens callers may present.
    pub external_issuers: Vec<ExternalIssuer>,
    /// The origin at which clients reach the token API, for its metadata.
    pub api_public_url: Option<PublicUrl>,
    /// Settings of the managed issuers.
    pub managed_issuers: ManagedIssuers,
    /// The fleet inputs and the credentials that can read them.
    pub inputs: Inputs,
    /// Where TargetClusters and TargetAccesses are read from. One process reads only one source.
    pub objects: ObjectSource,
    /// The file that audit records are appended to; standard output if absent.
    pub audit_file: Option<AuditFile>,
}

impl ServerConfiguration {
    /// The Secrets with the CAs of client certificates: of callers, and of readers of fleet inputs.
    pub fn caller_authority_secrets(&self) -> BTreeSet<&ObjectName> {
        let callers = self.client_certificates.iter().map(|one| &one.rule);
        let inputs = self.inputs.credentials.iter();
        callers
            .chain(inputs.filter_map(|one| one.certificate()))
            .map(|rule| &rule.authority_secret)
            .collect()
    }
}

/// Settings of the command line or the environment, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--enable-keyferry-issuer`: whether targets may have `issuer: Keyferry`.
    pub enable_managed_issuers: Option<bool>,
    /// `--cluster-resource-namespace`: the namespace of the Secrets that cluster-scoped objects
    /// name.
    pub cluster_resource_namespace: Option<Namespace>,
    /// The flags about listeners.
    pub listeners: ListenerOverrides,
}

impl Overrides {
    /// Overrides for commands that only read a server's file: they accept managed issuers, and
    /// listeners without a certificate.
    pub fn of_a_reader() -> Self {
        Self {
            enable_managed_issuers: Some(true),
            cluster_resource_namespace: None,
            listeners: ListenerOverrides {
                tls_may_be_unset: true,
                ..ListenerOverrides::default()
            },
        }
    }
}

/// The origin of one apiserver of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubEndpoint(PublicUrl);

impl HubEndpoint {
    /// Makes an endpoint of a valid https origin.
    ///
    /// # Errors
    /// [`PublicUrlError`] for anything else.
    pub fn new(text: &str) -> Result<Self, PublicUrlError> {
        PublicUrl::new(text).map(HubEndpoint)
    }

    /// The origin as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Managed issuers, one per TargetCluster with `issuer: Keyferry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedIssuers {
    /// Whether managed issuers are allowed.
    pub enabled: bool,
    /// How long a key signs before it is rotated.
    pub rotate_every: Duration,
}

/// Limits of the requests a second from unknown callers. A known caller has a token that the hub
/// accepted recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewCallerLimits {
    /// Requests a second of one address. None: no limit.
    pub per_address: Option<NonZeroU32>,
    /// Requests a second with tokens of one namespace. None: no limit.
    pub per_namespace: Option<NonZeroU32>,
}

/// Reads the ServerConfiguration, and notes its mistakes. Each part is read whole before the first
/// mistake ends the reading, so that all mistakes are reported at once.
pub(super) fn read_server(
    document: &Document,
    overrides: &Overrides,
    mistakes: &mut Vec<Mistake>,
) -> Option<ServerConfiguration> {
    let mut check = Check::new(document, mistakes);
    let object: ServerSpec = check.read_fields(MISPLACED_FIELDS)?;
    let listeners = &overrides.listeners;
    let names = Names::read(&object, &mut check);
    let hub_endpoints = read_hub_endpoints(&object.hub.endpoints, &mut check);
    let hub_issuer = read_hub_issuer(object.hub.issuer, &mut check);
    let published = PublishedIssuers {
        hub_issuer: hub_issuer.as_ref(),
        public_url: names.public_url.as_ref(),
    };
    let external_issuers = read_external_issuers(object.external_issuers, &published, &mut check);
    let discovery = Discovery::read(object.discovery, listeners, &mut check);
    let api = Api::read(object.api, object.require_pod_bound, listeners, &mut check);
    let health_address = read_address(
        object.health.address.as_deref(),
        "health.address",
        HEALTH_ADDRESS,
        &mut check,
    );
    let metrics = read_metrics_listener(object.metrics, listeners.metrics(), &mut check);
    let max_stale_authorization = MAX_STALE_AUTHORIZATION.read(
        object.max_stale_authorization.as_deref(),
        "maxStaleAuthorization",
        &mut check,
    );
    let managed_issuers = read_managed_issuers(object.managed_issuers, overrides, &mut check);
    let callers = api.client_certificates.as_deref().unwrap_or_default();
    let inputs = read_inputs(object.inputs, callers, &mut check);
    let objects = check.choose_or_default(
        "objects",
        object.objects.as_deref(),
        "a source of objects",
        ObjectSource::ALL,
    );
    let audit_file = read_audit_file(object.audit, &mut check);
    let namespace = overrides.cluster_resource_namespace.clone();
    Some(ServerConfiguration {
        hub_name: names.hub_name?,
        public_url: names.public_url?,
        caller_audience: names.caller_audience?,
        cluster_resource_namespace: namespace.or(names.cluster_resource_namespace)?,
        canary_service_account: names.canary_service_account?,
        hub_issuer,
        hub_endpoints: hub_endpoints?,
        discovery: discovery.listener?,
        discovery_http_address: listeners.discovery_http_address.or(discovery.http_address),
        api: api.listener?,
        client_certificates: api.client_certificates?,
        new_callers: api.new_callers?,
        health_address: listeners.health_address.or(health_address)?,
        metrics: metrics?,
        max_age: discovery.max_age?,
        max_stale_authorization: max_stale_authorization?,
        require_pod_bound: object.require_pod_bound,
        external_issuers: external_issuers?,
        api_public_url: api.public_url,
        managed_issuers: managed_issuers?,
        inputs: inputs?,
        objects: objects?,
        audit_file: audit_file?,
    })
}

/// The names of Keyferry itself. A member with a mistake is absent.
struct Names {
    hub_name: Option<String>,
    public_url: Option<PublicUrl>,
    caller_audience: Option<Audience>,
    cluster_resource_namespace: Option<Namespace>,
    canary_service_account: Option<ObjectName>,
}

impl Names {
    fn read(object: &ServerSpec, check: &mut Check<'_>) -> Self {
        let hub_name = name::check_label(&object.hub_name).map(|()| object.hub_name.clone());
        let caller_audience = object
            .caller_audience
            .as_deref()
            .unwrap_or(DEFAULT_CALLER_AUDIENCE);
        let namespace = object.cluster_resource_namespace.as_deref();
        let canary = object.canary_service_account.as_deref();
        Self {
            hub_name: check.take(
                "hubName",
                hub_name,
                "write a short name such as hub; it begins every username at the targets",
            ),
            public_url: check.take(
                "publicURL",
                PublicUrl::new(&object.public_url),
                "write the origin that targets reach",
            ),
            caller_audience: {
                if caller_audience == INERT_AUDIENCE {
                    check.wrong(
                        "callerAudience",
                        "is the audience of tokens that nothing accepts",
                        "choose another audience",
                    );
                }
                check.take(
                    "callerAudience",
                    Audience::new(caller_audience),
                    "write one audience",
                )
            },
            cluster_resource_namespace: check.take(
                "clusterResourceNamespace",
                Namespace::new(namespace.unwrap_or(DEFAULT_NAMESPACE)),
                "name Keyferry's own namespace",
            ),
            canary_service_account: check.take(
                "canaryServiceAccount",
                ObjectName::new(canary.unwrap_or(DEFAULT_CANARY)),
                "name a ServiceAccount of Keyferry's namespace without rights",
            ),
        }
    }
}

fn read_hub_issuer(text: Option<String>, check: &mut Check<'_>) -> Option<Issuer> {
    check.take(
        "hub.issuer",
        Issuer::new(text?),
        "write the hub's --service-account-issuer",
    )
}

/// `discovery`: the listener of the published documents. A member with a mistake is absent.
struct Discovery {
    listener: Option<Listener>,
    http_address: Option<SocketAddr>,
    max_age: Option<Duration>,
}

impl Discovery {
    fn read(spec: DiscoverySpec, overrides: &ListenerOverrides, check: &mut Check<'_>) -> Self {
        let max_age = MAX_AGE.read(spec.max_age.as_deref(), "discovery.maxAge", check);
        let http_address = spec.http_address.as_deref().and_then(|text| {
            let unused = SocketAddr::from(([0, 0, 0, 0], 0));
            read_address(Some(text), "discovery.httpAddress", unused, check)
        });
        let fields = ListenerFields {
            address: spec.address,
            tls: spec.tls,
            connections_per_address: spec.limits.connections_per_address,
        };
        Self {
            listener: read_listener(
                fields,
                "discovery",
                DISCOVERY_ADDRESS,
                overrides.discovery(),
                check,
            ),
            http_address,
            max_age,
        }
    }
}

/// `api`: the listener of the token API. A member with a mistake is absent.
struct Api {
    listener: Option<Listener>,
    client_certificates: Option<Vec<CallerCertificate>>,
    new_callers: Option<NewCallerLimits>,
    public_url: Option<PublicUrl>,
}

impl Api {
    fn read(
        spec: ApiSpec,
        requires_pod: bool,
        overrides: &ListenerOverrides,
        check: &mut Check<'_>,
    ) -> Self {
        let new_callers = read_new_callers(&spec.limits, check);
        let client_certificates = read_caller_certificates(&spec.client_certificates, check);
        if requires_pod && !spec.client_certificates.is_empty() {
            check.wrong(
                "requirePodBound",
                "is true beside api.clientCertificates, but no certificate is bound to a Pod",
                "remove one of both",
            );
        }
        let public_url = spec.public_url.as_deref().and_then(|text| {
            check.take(
                "api.publicURL",
                PublicUrl::new(text),
                "write the origin at which clients reach the token API",
            )
        });
        let fields = ListenerFields {
            address: spec.address,
            tls: spec.tls,
            connections_per_address: spec.limits.connections_per_address,
        };
        Self {
            listener: read_listener(fields, "api", API_ADDRESS, overrides.api(), check),
            client_certificates,
            new_callers,
            public_url,
        }
    }
}

fn read_new_callers(limits: &ApiLimits, check: &mut Check<'_>) -> Option<NewCallerLimits> {
    let per_address = NEW_CALLERS_LIMIT.read(
        limits.new_callers_per_address,
        "api.limits.newCallersPerAddress",
        check,
    );
    let per_namespace = NEW_CALLERS_LIMIT.read(
        limits.new_callers_per_namespace,
        "api.limits.newCallersPerNamespace",
        check,
    );
    Some(NewCallerLimits {
        per_address: per_address?,
        per_namespace: per_namespace?,
    })
}

fn read_managed_issuers(
    spec: ManagedIssuersSpec,
    overrides: &Overrides,
    check: &mut Check<'_>,
) -> Option<ManagedIssuers> {
    let path = "managedIssuers.rotateEvery";
    let rotate_every = KEY_ROTATION.read(spec.rotate_every.as_deref(), path, check);
    Some(ManagedIssuers {
        enabled: overrides.enable_managed_issuers.unwrap_or(spec.enabled),
        rotate_every: rotate_every?,
    })
}

/// Returns the audience of callers' tokens, or its default if the documents do not state it.
pub(super) fn written_caller_audience(documents: &[Document]) -> &str {
    let own = documents
        .iter()
        .find(|document| document.kind() == "ServerConfiguration");
    own.map(|document| document.text("/callerAudience"))
        .filter(|text| !text.is_empty())
        .unwrap_or(DEFAULT_CALLER_AUDIENCE)
}

/// Reads the hub's endpoints: at most 16, each an origin.
fn read_hub_endpoints(texts: &[String], check: &mut Check<'_>) -> Option<Vec<HubEndpoint>> {
    let fix = "write the origin of each apiserver of the hub, such as https://10.0.0.1:6443";
    if texts.len() > MAX_ENDPOINTS {
        check.wrong(
            "hub.endpoints",
            format!("has more than {MAX_ENDPOINTS} entries"),
            fix,
        );
        return None;
    }
    let read = |(index, text): (usize, &String)| {
        check.take(
            &format!("hub.endpoints[{index}]"),
            HubEndpoint::new(text),
            fix,
        )
    };
    texts.iter().enumerate().map(read).collect()
}
