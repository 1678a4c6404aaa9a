//! The statuses of TargetCluster and TargetAccess: what the controller writes, and what commands
//! read back.
//!
//! Times are text, because an object's status may have been written by another program, and one
//! unreadable time must not hide the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::schema;

/// What Keyferry found. Conditions by kstatus conventions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetClusterStatus {
    /// The generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready and the most important finding, in one short line: the column STATUS. The conditions
    /// have the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub summary: Option<String>,
    /// Ready, TargetReachable, TargetAuthenticates, AudienceConflict, ClientCertificateIgnored,
    /// TargetUnrestricted, PairingUnprotected, LabelsUnprotected, AdmissionPolicyIncomplete,
    /// LeaderMissing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::map_by_type)]
    pub conditions: Vec<Condition>,
    /// How many accesses name the target, and how it answered their tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accesses: Option<ProbeCounts>,
    /// When Keyferry last asked the target about a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub last_probe_time: Option<String>,
    /// The issuer that the target has to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Where the target's apiserver reads that issuer's documents.
    #[serde(rename = "discoveryURL", skip_serializing_if = "Option::is_none")]
    pub discovery_url: Option<String>,
    /// CA certificates of the server of those documents, as the target's apiserver needs them in
    /// its AuthenticationConfiguration; PEM. Absent if Keyferry knows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_certificate_authority: Option<String>,
    /// The prefix of the hub's users and groups at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username_prefix: Option<String>,
    /// Keyferry's own namespace, with the Secrets that TargetClusters name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_resource_namespace: Option<String>,
    /// Where the CA certificates of the target come from: Secret,
    /// ClusterTrustBundle, Inline or SystemRoots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// The last keyferry.dev/requestedAt that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// What Keyferry found and did. Conditions by kstatus conventions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetAccessStatus {
    /// The generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready and the target's answer to a token, in one short line: the column STATUS. The
    /// conditions have the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub summary: Option<String>,
    /// Ready (Authorized and Delivered), Authorized, Delivered, TargetReachable,
    /// TargetAuthenticates, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::map_by_type)]
    pub conditions: Vec<Condition>,
    /// The target as a kubeconfig's cluster has it, and its audience. Nothing secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The user that the target authenticates the token as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityStatus>,
    /// When Keyferry last asked the target about a token of this access. Absent if it does not
    /// ask, such as for an access that only callers use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub last_probe_time: Option<String>,
    /// When the last token that was written to an object expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub exposure_until: Option<String>,
    /// What became of each delivery that writes an object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::map_by_name)]
    pub deliveries: Vec<DeliveryStatus>,
    /// The last keyferry.dev/requestedAt that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// How many accesses name a target, and how the target answered their tokens when it was last
/// asked. The target is not asked about an access that only callers use, or whose probe is Off.
///
/// Its schema has the formats that apiservers know, which warn of `uint32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeCounts {
    /// The accesses that name the target.
    #[schemars(with = "i32")]
    pub total: u32,
    /// Those whose token the target accepted.
    #[schemars(with = "i32")]
    pub accepted: u32,
    /// Those whose token the target refused, or took for an unexpected user.
    #[schemars(with = "i32")]
    pub refused: u32,
    /// Those about which the target was asked, and did not answer.
    #[schemars(with = "i32")]
    pub unanswered: u32,
}

/// The target as a kubeconfig's cluster has it, and its audience. Nothing secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ClusterStatus {
    /// The apiserver's URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// PEM in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// The name to expect in the apiserver's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The proxy through which clients reach the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// The one audience of every token for this target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// The user that the target authenticates the token as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// The username.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The UID; empty if the target maps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::atomic)]
    pub groups: Option<Vec<String>>,
    /// When the target first reported this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub observed_at: Option<String>,
}

/// What became of one delivery that writes an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// The delivery's name, or the kind and name of an object that is no longer wanted.
    pub name: String,
    /// The delivery's type.
    #[serde(rename = "type")]
    pub delivery_type: String,
    /// The object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Delivered, or the reason code of the failure.
    pub reason: String,
    /// The text for readers of the TargetAccess.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the token in the object expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub expires_at: Option<String>,
    /// When it is rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::time)]
    pub renew_at: Option<String>,
    /// Its jti.
    #[serde(rename = "tokenID", skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The kid of the key that signed it.
    #[serde(rename = "keyID", skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
}
