//! `TargetAccess` as written. Its CustomResourceDefinition is derived from these types.

#![expect(
    clippy::duplicated_attributes,
    reason = "two columns of the same type are two attributes with the same text"
)]

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::secret_shape::{MAX_ENTRIES, MAX_VALUE_CHARS};
use super::check::Check;
use crate::name::ObjectName;
use crate::schema::{self, LABEL_PATTERN, choice_names, validation_rule};
use crate::status::TargetAccessStatus;

/// What the tenant asks for.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, JsonSchema)]
#[kube(
    group = "keyferry.dev",
    version = "v1alpha1",
    kind = "TargetAccess",
    root = "TargetAccessObject",
    plural = "targetaccesses",
    shortname = "tga",
    category = "keyferry",
    namespaced,
    status = "TargetAccessStatus",
    doc = "The use of a target by one ServiceAccount of the same namespace, and the shapes in which \
           its credential is delivered.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".spec.targetClusterRef.name"
    ),
    printcolumn(
        name = "Target-OK",
        type_ = "string",
        description = "Whether the target accepts a token of this access.",
        json_path = ".status.conditions[?(@.type==\"TargetAuthenticates\")].status"
    ),
    printcolumn(
        name = "Asked",
        type_ = "date",
        description = "How long ago the target was asked.",
        json_path = ".status.lastProbeTime"
    ),
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".status.exposureUntil"
    ),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    crates(kube_core = "kube_core")
)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct TargetAccessSpec {
    /// The TargetCluster. A reference never carries a namespace.
    pub(super) target_cluster_ref: TargetReference,
    /// The ServiceAccount of the same namespace that tokens are minted for.
    #[schemars(with = "ObjectName")]
    pub(super) service_account_name: String,
    /// Other ServiceAccounts of the same namespace that may ask the server for this access; each
    /// also needs create on serviceaccounts/token of serviceAccountName.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ObjectName>", length(max = 64), transform = schema::set)]
    pub(super) callers: Vec<String>,
    /// The shapes in which the credential is issued. Without an entry, HTTP and Exec, on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = schema::map_by_name)]
    pub(super) deliveries: Vec<DeliverySpec>,
    /// Drain keeps a deleted access, unauthorised and unrefreshed, until its last delivered token
    /// has expired, so that consumers of the objects can end cleanly. Immediate deletes the objects
    /// at once.
    #[schemars(transform = schema::choices(DeletionPolicy::ALL))]
    pub(super) deletion_policy: Option<String>,
    /// Whether Keyferry tries a token at the target. Report shows the result in the status; Require
    /// delivers nothing until the target has accepted a token.
    #[schemars(transform = schema::choices(Probe::ALL))]
    pub(super) probe: Option<String>,
    /// While it is true, nothing is minted or refreshed for this access. Delivered objects stay.
    #[serde(default)]
    pub(super) suspend: bool,
}

/// A TargetCluster, which has no namespace.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetReference {
    /// The TargetCluster's name.
    #[schemars(with = "ObjectName")]
    pub(super) name: String,
}

/// One shape in which the credential is delivered.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = delivery_rules()))]
pub(super) struct DeliverySpec {
    /// Its name in this list.
    #[schemars(length(min = 1, max = 63), extend("pattern" = LABEL_PATTERN))]
    pub(super) name: String,
    /// The shape.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = choice_names(DeliveryType::ALL)))]
    pub(super) delivery_type: String,
    /// The name of the object to write, in the same namespace. Without it: FluxConfigMap, the
    /// access's name; KubeConfigSecret and ClusterAPISecret, <access>-kubeconfig; ArgoCDSecret,
    /// cluster-<access>; ClientCertificateSecret, <access>-client-tls; ClusterProfile, the target's
    /// name.
    #[schemars(with = "Option<ObjectName>")]
    pub(super) object_name: Option<String>,
    /// How long a token in a Secret lives; 10m to 24h, at most the target's tokenLifetime.max.
    /// Without it 12h, or that maximum.
    #[schemars(transform = schema::token_lifetime)]
    pub(super) token_lifetime: Option<String>,
    /// What an Argo CD cluster Secret holds beside the connection.
    #[serde(rename = "argoCD")]
    pub(super) argo_cd: Option<ArgoCdSpec>,
    /// How the Secret of a KubeConfigSecret is written, for consumers that look for more than its
    /// name.
    pub(super) secret: Option<SecretSpec>,
}

/// The field `secret` of a delivery as written.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretSpec {
    /// The key of the kubeconfig. Without it value.
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[-._a-zA-Z0-9]+$"))]
    pub(super) key: Option<String>,
    /// The Secret's type; none of Kubernetes' own. Without it Opaque.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[-._/a-zA-Z0-9]+$"))]
    pub(super) secret_type: Option<String>,
    /// Labels beside Keyferry's own, such as istio/multiCluster. Names by which Keyferry, Kubernetes,
    /// Argo CD or Cluster API act are refused.
    #[schemars(transform = schema::texts_by_name(MAX_ENTRIES, 63))]
    pub(super) labels: Option<BTreeMap<String, String>>,
    /// Annotations beside Keyferry's own, with the same names refused.
    #[schemars(transform = schema::texts_by_name(MAX_ENTRIES, MAX_VALUE_CHARS))]
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// The field `argoCD` of a delivery as written.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgoCdSpec {
    /// The AppProject that the cluster is for. Without it every project could use the cluster.
    #[schemars(with = "ObjectName")]
    pub(super) project: String,
    /// Exec names the plugin keyferry credential, so no token is at rest; BearerToken writes one.
    #[schemars(transform = schema::choices(ArgoCdForm::ALL))]
    pub(super) form: Option<String>,
}

fn delivery_rules() -> [ValidationRule; 5] {
    [
        validation_rule(
            "!(self.type in ['HTTP', 'Exec']) || !has(self.objectName)",
            "HTTP and Exec answer requests and write no object; remove objectName",
        ),
        validation_rule(
            "self.type in ['KubeConfigSecret', 'ClusterAPISecret', 'ArgoCDSecret'] \
             || !has(self.tokenLifetime)",
            "only a delivery that writes a token to a Secret has a tokenLifetime",
        ),
        validation_rule(
            "(self.type == 'ArgoCDSecret') == has(self.argoCD)",
            "a delivery of type ArgoCDSecret, and no other, has argoCD.project",
        ),
        validation_rule(
            "self.type != 'ClusterAPISecret' || !has(self.objectName) \
             || self.objectName.endsWith('-kubeconfig')",
            "the object of a ClusterAPISecret is named <cluster>-kubeconfig",
        ),
        validation_rule(
            "self.type == 'KubeConfigSecret' || !has(self.secret)",
            "only a delivery of type KubeConfigSecret has secret",
        ),
    ]
}

/// The form in which a credential is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeliveryType {
    /// An Argo CD cluster Secret.
    ArgoCDSecret,
    /// A Secret with a client certificate for the hub's own apiserver.
    ClientCertificateSecret,
    /// A Cluster API kubeconfig Secret.
    ClusterAPISecret,
    /// An item in a ClusterProfile's `status.accessProviders`.
    ClusterProfile,
    /// An ExecCredential for kubectl and client-go.
    Exec,
    /// A Flux `provider: generic` ConfigMap.
    FluxConfigMap,
    /// The token exchange and the kubeconfig route.
    HTTP,
    /// A Secret with a kubeconfig under `value`.
    KubeConfigSecret,
}

impl DeliveryType {
    /// The delivery types that an allow rule allows by default: those that leave no bearer token at
    /// rest.
    pub const DEFAULT: &'static [Self] = &[Self::HTTP, Self::Exec, Self::FluxConfigMap];

    /// The delivery types that answer requests and write no object.
    pub(super) const ON_REQUEST: [Self; 2] = [Self::HTTP, Self::Exec];

    /// Every delivery type with its name.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("ArgoCDSecret", Self::ArgoCDSecret),
        ("ClientCertificateSecret", Self::ClientCertificateSecret),
        ("ClusterAPISecret", Self::ClusterAPISecret),
        ("ClusterProfile", Self::ClusterProfile),
        ("Exec", Self::Exec),
        ("FluxConfigMap", Self::FluxConfigMap),
        ("HTTP", Self::HTTP),
        ("KubeConfigSecret", Self::KubeConfigSecret),
    ];

    /// The type's name, as objects spell it.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, shape)| *shape == self)
            .map(|(name, _)| *name)
            .unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, delivery)| *delivery)
            .ok_or_else(|| {
                let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
                format!("is not a delivery; there are {}", names.join(", "))
            })
    }
}

/// How Argo CD gets its credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgoCdForm {
    /// By the plugin `keyferry credential`; no token is at rest.
    #[default]
    Exec,
    /// By a bearer token in the Secret.
    BearerToken,
}

impl ArgoCdForm {
    /// Every form with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("Exec", Self::Exec), ("BearerToken", Self::BearerToken)];
}

/// What happens to written objects when their access, or the target that they lead to, is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// They stay until the last written token has expired.
    #[default]
    Drain,
    /// They are deleted at once.
    Immediate,
}

impl DeletionPolicy {
    /// Every policy with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("Drain", Self::Drain), ("Immediate", Self::Immediate)];

    pub(super) fn read(text: Option<&str>, check: &mut Check<'_>) -> Option<Self> {
        check.choose_or_default("spec.deletionPolicy", text, "a valid value", Self::ALL)
    }
}

/// Whether the controller tries a token at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// No token is tried.
    Off,
    /// A token is tried, and the status reports the result.
    #[default]
    Report,
    /// A token is tried, and nothing is delivered before the target has accepted one.
    Require,
}

impl Probe {
    /// Every choice with its name.
    pub(super) const ALL: &'static [(&'static str, Self)] = &[
        ("Off", Self::Off),
        ("Report", Self::Report),
        ("Require", Self::Require),
    ];
    /// The choices of a target, and of an access in a file: only the controller delivers, so only
    /// there can an access require a probe.
    pub(super) const WITHOUT_REQUIRE: &'static [(&'static str, Self)] =
        &[("Off", Self::Off), ("Report", Self::Report)];
}
