//! `TargetCluster` as written. Its CustomResourceDefinition is derived from these types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access_spec::{DeletionPolicy, Probe};
use super::allow::AllowSpec;
use super::target::ClusterIdentitySpec;
use crate::name::{ObjectName, TrustBundleName};
use crate::schema::{self, choice_names, validation_rule};
use crate::status::TargetClusterStatus;

/// What the platform admin states of the target.
// A field that is added after a version has been in use has no default in the schema. The hub would
// put the default into every object that it returns, and a server of the version before, which
// refuses unknown fields, would refuse every TargetCluster until it is updated.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, JsonSchema)]
#[kube(
    group = "keyferry.dev",
    version = "v1alpha1",
    kind = "TargetCluster",
    root = "TargetClusterObject",
    plural = "targetclusters",
    shortname = "tgt",
    category = "keyferry",
    status = "TargetClusterStatus",
    doc = "A cluster whose apiserver trusts an issuer that Keyferry publishes.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Target-OK",
        type_ = "string",
        description = "Whether the target accepts the tokens of its accesses.",
        json_path = ".status.conditions[?(@.type==\"TargetAuthenticates\")].status"
    ),
    printcolumn(
        name = "Asked",
        type_ = "date",
        description = "How long ago the target was asked.",
        json_path = ".status.lastProbeTime"
    ),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Issuer", type_ = "string", json_path = ".spec.issuer", priority = 1),
    printcolumn(name = "Audience", type_ = "string", json_path = ".spec.audience", priority = 1),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.spec.issuer != 'Keyferry' || size(self.metadata.name) <= 200")
        .message(
            "a target with issuer Keyferry has a name of at most 200 characters, since it is part \
             of the issuer's URL"
        ),
    validation = Rule::new("!has(self.spec.sameAs) || self.spec.sameAs != self.metadata.name")
        .message("sameAs names this TargetCluster itself; name the one whose cluster it is"),
    attr = r#"x_kube(crates(kube_core = "kube_core"))"#,
    crates(kube = "kube_derive", kube_core = "kube_core")
)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub(crate) struct TargetClusterSpec {
    /// How the fleet names the cluster, for its inputs. It never changes once it is set.
    #[schemars(extend("x-kubernetes-validations" = [validation_rule(
        "self == oldSelf",
        "the identity is immutable; delete the TargetCluster and create it again",
    )]))]
    pub(super) identity: Option<ClusterIdentitySpec>,
    /// What the target is. Cluster, an apiserver; Audience, a relying party that is not a cluster,
    /// such as a registry, a cloud's token service or Vault: it has no address, nothing is sent to
    /// it, and its tokens are only requested. It never changes. Without it Cluster.
    #[schemars(extend("enum" = choice_names(TargetKind::ALL)))]
    pub(super) kind: Option<String>,
    /// Another TargetCluster, at whose cluster this one is a role: address, tlsServerName,
    /// proxyURL, CA certificates, issuer, targetIssuer and probe are those of the named one. Only
    /// together with role. It never changes.
    #[schemars(with = "Option<ObjectName>")]
    pub(super) same_as: Option<String>,
    /// The role's name, at most 32 of a-z, 0-9 and -, and not system. At the cluster, a token for
    /// this audience is the user <hub>:<role>:system:serviceaccount:… in the group
    /// <hub>:role:<role>. No two roles of one cluster have the same. It never changes.
    #[schemars(
        length(min = 1, max = 32),
        regex(pattern = "^[a-z0-9-]+$"),
        extend("x-kubernetes-validations" = [validation_rule(
            "self != 'system'",
            "system is reserved, because users without a role begin with it",
        )]),
    )]
    pub(super) role: Option<String>,
    /// The apiserver's URL, https://host[:port][/path], without credentials, query or fragment.
    /// A target with kind Audience has none. Changing it needs the verb retarget.
    #[schemars(transform = schema::server_address)]
    pub(super) address: Option<String>,
    /// The name to expect in the apiserver's certificate, where it is not the address's host.
    /// Changing it needs the verb retarget.
    #[schemars(
        with = "Option<ObjectName>",
        extend("x-kubernetes-validations" = [validation_rule(
            "!self.matches('(^|[.])([0-9]+|0x[0-9a-f]*)$')",
            "tlsServerName is an address, not a DNS name",
        )]),
    )]
    pub(super) tls_server_name: Option<String>,
    /// The proxy through which clients reach the target; scheme http, https or socks5, host and
    /// port, without credentials. Changing it needs the verb retarget.
    #[serde(rename = "proxyURL")]
    #[schemars(transform = schema::proxy_address)]
    pub(super) proxy_url: Option<String>,
    /// A Secret in Keyferry's own namespace whose ca.crt holds the target's CA certificates.
    /// Nothing else of it is read. Changing it needs the verb retarget.
    pub(super) cert_secret_ref: Option<SecretReference>,
    /// A ClusterTrustBundle of the hub that holds the target's CA certificates, instead of
    /// certSecretRef. Changing it needs the verb retarget.
    pub(super) cluster_trust_bundle_ref: Option<TrustBundleReference>,
    /// The target's CA certificates as PEM, instead of certSecretRef. With none of the three, clients
    /// use their system's roots. Changing it needs the verb retarget.
    #[schemars(
        length(min = 1, max = 131072),
        extend("x-kubernetes-validations" = [validation_rule(
            "self.contains('-----BEGIN CERTIFICATE-----')",
            "caBundle holds no PEM certificate",
        )]),
    )]
    pub(super) ca_bundle: Option<String>,
    /// The one audience of every token for this target: printable ASCII without space, comma,
    /// quotes, backtick and backslash. No two targets have the same, it is not the server's
    /// callerAudience, and it never changes.
    #[schemars(
        transform = schema::audience,
        extend("x-kubernetes-validations" = [
            validation_rule(
                "self == oldSelf",
                "the audience is immutable; delete the TargetCluster and create it again",
            ),
            validation_rule(
                "self != 'keyferry.dev/inert'",
                "this is the audience of tokens that nothing accepts, which Keyferry uses to \
                 query the hub; choose another",
            ),
        ]),
    )]
    pub(super) audience: String,
    /// Which issuer signs the tokens. Hub means the hub, by TokenRequest. Keyferry means a managed
    /// issuer of this target, which the server must enable.
    #[serde(default = "hub")]
    #[schemars(extend("enum" = choice_names(TokenIssuer::ALL)))]
    pub(super) issuer: String,
    /// The target's own --service-account-issuer, where its admin knows it; without it, an issuer
    /// that distributions give every cluster counts as the target's own.
    #[schemars(transform = schema::issuer)]
    pub(super) target_issuer: Option<String>,
    /// How long tokens for this target live.
    #[serde(default, skip_serializing_if = "LifetimeSpec::is_unset")]
    pub(super) token_lifetime: LifetimeSpec,
    /// Whether this is the hub's own apiserver. Then its only delivery is ClientCertificateSecret,
    /// and no token is minted for its audience. It never changes. Without it false.
    pub(super) hub: Option<bool>,
    /// How client certificates of a target with hub: true are issued.
    pub(super) client_certificates: Option<ClientCertificatesSpec>,
    /// The ServiceAccounts that may use the target. Without an entry, none may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), transform = schema::atomic)]
    pub(super) allow: Vec<AllowSpec>,
    /// Drain keeps a deleted TargetCluster, for which nothing is minted or refreshed any more,
    /// while accesses have delivered objects for it, until their tokens have expired and for 24
    /// hours at most. Immediate withdraws the objects at once.
    #[schemars(transform = schema::choices(DeletionPolicy::ALL))]
    pub(super) deletion_policy: Option<String>,
    /// Whether Keyferry itself connects to the target. With Report, it tries a token of each access
    /// whose own probe is not Off, and a token of an account without rights. With Off, it never
    /// connects. Without it Report.
    #[schemars(extend("enum" = choice_names(Probe::WITHOUT_REQUIRE)))]
    pub(super) probe: Option<String>,
    /// While it is true, nothing is minted or refreshed for this target. Delivered objects stay.
    #[serde(default)]
    pub(super) suspend: bool,
}

/// A Secret in Keyferry's own namespace, so the reference has no namespace.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretReference {
    /// The Secret's name.
    #[schemars(with = "ObjectName")]
    pub(super) name: String,
}

/// A ClusterTrustBundle, by its name alone.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustBundleReference {
    /// The ClusterTrustBundle's name.
    #[schemars(with = "TrustBundleName")]
    pub(super) name: String,
}

/// How client certificates are issued, as written.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientCertificatesSpec {
    /// Which party approves each request. Manual means a user, with kubectl certificate approve.
    /// Automatic means keyferry approve-certificates, which must run under an account of its own.
    /// Without it Manual.
    #[schemars(extend("enum" = choice_names(CertificateApproval::ALL)))]
    pub(super) approval: Option<String>,
    /// How long a certificate lives; 10m to 24h. Without it 24h. A certificate cannot be revoked.
    #[schemars(transform = schema::token_lifetime)]
    pub(super) max_lifetime: Option<String>,
}

/// The lifetimes of a target's tokens as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LifetimeSpec {
    /// What a token gets when a delivery asks for nothing; 10m to 24h. Without it 1h, or max where
    /// that is less.
    #[schemars(transform = schema::token_lifetime)]
    pub(super) default: Option<String>,
    /// The most that a delivery may ask for; 10m to 24h. Without it 12h.
    #[schemars(transform = schema::token_lifetime)]
    pub(super) max: Option<String>,
}

impl LifetimeSpec {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

fn hub() -> String {
    "Hub".to_owned()
}

fn of_allow(expression: &str, message: &str) -> ValidationRule {
    ValidationRule {
        field_path: Some(".allow".to_owned()),
        ..validation_rule(expression, message)
    }
}

fn rules() -> Vec<ValidationRule> {
    let rules = cluster_rules().into_iter();
    rules.chain(role_rules()).collect()
}

fn cluster_rules() -> [ValidationRule; 10] {
    [
        // The message names the field that is missing.
        ValidationRule {
            field_path: Some(".address".to_owned()),
            ..validation_rule(
                "has(self.kind) && self.kind == 'Audience' || has(self.address) \
                 || has(self.sameAs)",
                "a cluster has an address; a relying party that is not a cluster has kind: Audience",
            )
        },
        validation_rule(
            "!(has(self.kind) && self.kind == 'Audience') \
             || !(has(self.address) || has(self.tlsServerName) || has(self.proxyURL) \
             || has(self.certSecretRef) || has(self.clusterTrustBundleRef) || has(self.caBundle) \
             || has(self.targetIssuer) \
             || has(self.hub) && self.hub)",
            "a target with kind Audience has no address, tlsServerName, proxyURL, certSecretRef, \
             clusterTrustBundleRef, caBundle, targetIssuer or hub",
        ),
        // Of the whole spec, because a rule of an absent field is not evaluated.
        validation_rule(
            "(has(self.kind) ? self.kind : 'Cluster') \
             == (has(oldSelf.kind) ? oldSelf.kind : 'Cluster')",
            "kind is immutable; delete the TargetCluster and create it again",
        ),
        validation_rule(
            "(has(self.hub) && self.hub) == (has(oldSelf.hub) && oldSelf.hub)",
            "hub is immutable; delete the TargetCluster and create it again",
        ),
        validation_rule(
            "!has(oldSelf.identity) || has(self.identity)",
            "the identity is immutable; delete the TargetCluster and create it again",
        ),
        validation_rule(
            "has(self.hub) && self.hub || !has(self.clientCertificates)",
            "only a target with hub: true has clientCertificates",
        ),
        of_allow(
            "has(self.hub) && self.hub || !has(self.allow) || self.allow.all(one, \
             !has(one.deliveries) || !('ClientCertificateSecret' in one.deliveries))",
            "only a target with hub: true allows ClientCertificateSecret",
        ),
        of_allow(
            "!(has(self.hub) && self.hub) || !has(self.allow) || self.allow.all(one, \
             has(one.deliveries) \
             && one.deliveries.all(delivery, delivery == 'ClientCertificateSecret'))",
            "a target with hub: true allows ClientCertificateSecret alone, because the hub must \
             not accept a target's tokens",
        ),
        validation_rule(
            "!(has(self.certSecretRef) && has(self.caBundle)) \
             && !(has(self.clusterTrustBundleRef) \
             && (has(self.certSecretRef) || has(self.caBundle)))",
            "certSecretRef, caBundle and clusterTrustBundleRef exclude each other",
        ),
        ValidationRule {
            field_path: Some(".tokenLifetime".to_owned()),
            ..validation_rule(
                "!has(self.tokenLifetime) \
                 || duration(has(self.tokenLifetime.default) ? self.tokenLifetime.default : '10m') \
                 <= duration(has(self.tokenLifetime.max) ? self.tokenLifetime.max : '12h')",
                "tokenLifetime.default is longer than tokenLifetime.max",
            )
        },
    ]
}

fn role_rules() -> [ValidationRule; 3] {
    [
        validation_rule(
            "has(self.sameAs) == has(self.role)",
            "sameAs and role are set together",
        ),
        validation_rule(
            "!has(self.sameAs) || !(has(self.address) || has(self.tlsServerName) \
             || has(self.proxyURL) || has(self.certSecretRef) || has(self.clusterTrustBundleRef) \
             || has(self.caBundle) || has(self.targetIssuer) || has(self.identity) \
             || has(self.probe) || has(self.clientCertificates) \
             || has(self.issuer) && self.issuer != 'Hub' \
             || has(self.kind) && self.kind != 'Cluster' || has(self.hub) && self.hub)",
            "a target with sameAs has no address, tlsServerName, proxyURL, certSecretRef, \
             clusterTrustBundleRef, caBundle, issuer, targetIssuer, identity, probe, kind, hub or \
             clientCertificates of its own",
        ),
        validation_rule(
            "(has(self.sameAs) ? self.sameAs + ' ' + (has(self.role) ? self.role : '') : '') \
             == (has(oldSelf.sameAs) \
             ? oldSelf.sameAs + ' ' + (has(oldSelf.role) ? oldSelf.role : '') : '')",
            "sameAs is immutable, and so is role; delete the TargetCluster and create it again",
        ),
    ]
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
