//! The facts that every page, table and document is made from.
//!
//! Times are in UTC. A field that is `None` is not known; what hides it is in [`Fleet::gaps`], or is
//! a finding of its target.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use serde::Serialize;

use crate::gap::Gap;

/// The version of the JSON document: `schema` of [`Fleet`].
pub const SCHEMA: &str = "keyferry.dev/fleet/v1";

/// All that is known, judged at [`Reading::judged_at`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Who read it, where and when.
    pub reading: Reading,
    /// What could not be read.
    pub gaps: Vec<Gap>,
    /// The earliest end of a delivered token or certificate: how long the fleet works if the hub
    /// stops now. `None` if no delivery wrote one, or the accesses were not readable.
    pub runway: Option<Ending>,
    /// The targets, worst first, then by runway, then by name.
    pub targets: Vec<TargetFacts>,
    /// The namespaces with accesses, by name.
    pub tenants: Vec<TenantFacts>,
    /// The accesses, by namespace and name.
    pub accesses: Vec<AccessFacts>,
    /// The hub's signing keys.
    pub keys: KeyFacts,
    /// All that ends, the earliest first.
    pub endings: Vec<Ending>,
    /// Refusals from the audit log.
    pub denials: DenialFacts,
}

/// Who read the facts, where and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// Where they come from.
    pub source: Source,
    /// The user that read them, as the hub authenticates it; `None` for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ForeignText>,
    /// When the lists were read.
    pub read_at: Timestamp,
    /// The moment of all judgements about what has ended or is about to.
    pub judged_at: Timestamp,
    /// The only namespace that was read, if it is a tenant's reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Namespace>,
    /// Whether addresses, audiences, users and namespaces of others are left out.
    pub redacted: bool,
    /// Why the newest attempt to read failed, if the facts are from an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<ReadFailure>,
}

/// Where facts come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Source {
    /// The API of the hub.
    Hub {
        /// Its URL.
        server: ForeignText,
    },
    /// A folder of YAML files.
    Folder {
        /// Its path as it was given.
        path: ForeignText,
    },
    /// The embedded hub and target of `demo`.
    Demo,
    /// Made up by `demo`, with this seed. Every page says so.
    Generated {
        /// The seed.
        seed: u64,
    },
}

/// An attempt to read that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadFailure {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub message: ForeignText,
    /// What to do.
    pub fix: String,
}

/// How a target, an access or a tenant is. The order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Health {
    /// Something does not work now.
    Broken,
    /// Something works, but is about to end or is unsafe.
    Attention,
    /// Nothing proves that it works or does not.
    Unknown,
    /// Proven to work when last asked.
    Ready,
}

/// One answer to a question about a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "answer")]
pub enum Answer {
    /// It holds.
    Yes,
    /// It does not hold.
    No {
        /// The stable reason code.
        reason: ForeignText,
        /// What is wrong.
        message: ForeignText,
    },
    /// Not known.
    Unknown {
        /// Why, such as "never asked: probe is Off".
        why: ForeignText,
    },
}

/// What is known about one TargetCluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetFacts {
    /// Its name.
    pub name: ObjectName,
    /// The worst of what follows.
    pub health: Health,
    /// Whether it is no Kubernetes cluster (`kind: Audience`).
    pub relying_party: bool,
    /// Whether it is the hub itself (`hub: true`).
    pub hub: bool,
    /// Whether nothing is minted for it.
    pub suspended: bool,
    /// Which role it is at the cluster of which TargetCluster, like `view of prod`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<ForeignText>,
    /// The URL of its apiserver.
    pub address: Option<ForeignText>,
    /// Its audience.
    pub audience: Option<ForeignText>,
    /// The issuer that it has to trust.
    pub issuer: Option<ForeignText>,
    /// Whether it answers.
    pub reachable: Answer,
    /// Where its CA certificates come from, and when the first of them ends.
    pub certificate_authority: AuthorityFacts,
    /// Whether its AuthenticationConfiguration is active, as its answers to tokens show.
    pub file_active: Answer,
    /// Whether it has read the issuer's keys.
    pub keys_read: Answer,
    /// How it answered the accesses' tokens.
    pub accepted: AcceptedFacts,
    /// How many accesses name it.
    pub accesses: usize,
    /// How many namespaces those are in.
    pub tenants: usize,
    /// The earliest end of what was delivered for it.
    pub next_ending: Option<Timestamp>,
    /// The one cause, in about ten words; empty if it is ready.
    pub cause: ForeignText,
    /// The cause's stable reason code.
    pub reason: Option<ForeignText>,
    /// The command that is next, with its arguments.
    pub next_command: Option<String>,
    /// Its conditions that are not as they should be, worst first.
    pub findings: Vec<Finding>,
    /// The rows of `allow[]`.
    pub allow: Vec<AllowFacts>,
    /// Desired trust against live, if it was compared.
    pub trust: Option<TrustFacts>,
}

/// The CA certificates of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityFacts {
    /// `Secret NAME`, `ClusterTrustBundle NAME`, `inline` or `system roots`.
    pub source: ForeignText,
    /// When the first certificate ends; `None` if the certificates were not readable.
    pub ends: Option<Timestamp>,
}

/// How a target answered tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedFacts {
    /// Those that it accepted.
    pub accepted: u32,
    /// Those that it refused.
    pub refused: u32,
    /// Those that it did not answer.
    pub unanswered: u32,
    /// The accesses that it was asked about.
    pub asked: u32,
    /// When it was last asked.
    pub asked_at: Option<Timestamp>,
}

/// A condition that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub health: Health,
    /// The condition's type.
    pub condition: ForeignText,
    /// Its reason code.
    pub reason: ForeignText,
    /// Its message.
    pub message: ForeignText,
}

/// One rule of `allow[]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowFacts {
    /// The namespaces, or the selector as kubectl writes it.
    pub namespaces: ForeignText,
    /// The ServiceAccounts.
    pub service_accounts: Vec<ForeignText>,
    /// The deliveries.
    pub deliveries: Vec<ForeignText>,
}

/// Desired trust of a target against live, by value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustFacts {
    /// The AuthenticationConfiguration.
    pub file: Comparison,
    /// The file that the apiserver loaded.
    pub loaded_file: Comparison,
    /// The keys that it read.
    pub keys: Comparison,
    /// What it did with tokens.
    pub behaviour: Comparison,
}

impl TrustFacts {
    /// Returns the comparisons with their names, in the order in which they are shown.
    pub fn rows(&self) -> [(&'static str, &Comparison); 4] {
        [
            ("file", &self.file),
            ("loaded file", &self.loaded_file),
            ("keys", &self.keys),
            ("behaviour", &self.behaviour),
        ]
    }
}

/// A comparison of what should be with what is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "result")]
pub enum Comparison {
    /// Both are the same.
    Matches,
    /// They differ.
    Differs {
        /// Each difference, by field.
        differences: Vec<ForeignText>,
    },
    /// Not compared.
    NotCompared {
        /// Why.
        why: String,
    },
}

impl Comparison {
    /// Nothing was compared.
    pub fn not_compared(why: impl Into<String>) -> Self {
        // It may repeat what a target or a file says.
        let why = ForeignText::new(&why.into()).to_string();
        Self::NotCompared { why }
    }

    /// What was compared: it differs if there is a difference.
    pub fn of_differences(differences: impl IntoIterator<Item = String>) -> Self {
        let differences: Vec<ForeignText> = differences
            .into_iter()
            .map(|it| ForeignText::new(&it))
            .collect();
        match differences.is_empty() {
            true => Self::Matches,
            false => Self::Differs { differences },
        }
    }

    /// Whether what is differs from what should be.
    pub fn differs(&self) -> bool {
        matches!(self, Self::Differs { .. })
    }
}

/// What is known about one namespace with accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantFacts {
    /// The namespace.
    pub namespace: Namespace,
    /// The worst of its accesses.
    pub health: Health,
    /// The targets that its accesses name.
    pub targets: Vec<ObjectName>,
    /// The ServiceAccounts that its accesses use.
    pub service_accounts: Vec<ObjectName>,
    /// How many accesses it has.
    pub accesses: usize,
    /// The earliest end of what was delivered to it.
    pub next_ending: Option<Timestamp>,
}

/// What is known about one TargetAccess.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessFacts {
    /// Its namespace and name.
    #[serde(serialize_with = "as_text")]
    pub name: AccessName,
    /// The worst of its conditions.
    pub health: Health,
    /// The TargetCluster that it names.
    pub target: ObjectName,
    /// The ServiceAccount that tokens are minted for.
    pub service_account: ObjectName,
    /// Other ServiceAccounts that may ask for it.
    pub callers: Vec<ForeignText>,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What it delivers.
    pub deliveries: Vec<DeliveryFacts>,
    /// The user that the target reported.
    pub user: Option<ForeignText>,
    /// Whether the target accepted its token.
    pub accepted: Answer,
    /// When the target was asked.
    pub asked_at: Option<Timestamp>,
    /// When the last delivered token expires.
    pub exposure_until: Option<Timestamp>,
    /// The one cause, in about ten words; empty if it is ready.
    pub cause: ForeignText,
    /// The cause's stable reason code.
    pub reason: Option<ForeignText>,
    /// Its conditions that are not as they should be, worst first.
    pub findings: Vec<Finding>,
}

/// One delivery of an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryFacts {
    /// Its type, such as `FluxConfigMap`.
    pub delivery_type: ForeignText,
    /// The name of the object that it writes, if it writes one.
    pub object: Option<ForeignText>,
    /// `Delivered`, or the reason code of the failure; `None` for one that is answered on request.
    pub reason: Option<ForeignText>,
    /// When the token in the object expires.
    pub expires_at: Option<Timestamp>,
    /// When it is rewritten.
    pub renew_at: Option<Timestamp>,
    /// The kid of the key that signed it.
    pub key_id: Option<ForeignText>,
}

/// Something that ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// What it is.
    pub what: EndingKind,
    /// Where: an access, a target or a listener.
    pub place: ForeignText,
    /// The target that it concerns, if there is one.
    pub target: Option<ObjectName>,
    /// When it ends.
    pub at: Timestamp,
    /// When it is renewed by itself; `None` if a person has to.
    pub renew_at: Option<Timestamp>,
}

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum EndingKind {
    /// A token that a delivery wrote.
    Token,
    /// A client certificate that a delivery wrote.
    ClientCertificate,
    /// A CA certificate of a target.
    TargetCertificateAuthority,
    /// A CA certificate of the discovery documents' server.
    DiscoveryCertificateAuthority,
    /// A serving certificate of Keyferry.
    ServingCertificate,
}

/// The hub's signing keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyFacts {
    /// The hub's issuer.
    pub issuer: Option<ForeignText>,
    /// Whether the journal was readable. Else only the keys that delivered tokens name are known,
    /// and only how many tokens use them.
    pub journal_read: bool,
    /// The keys, the newest first.
    pub keys: Vec<KeyLife>,
}

/// The life of one signing key. A time that is `None` is not known, or has not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyLife {
    /// Its kid.
    pub kid: ForeignText,
    /// Its algorithm.
    pub algorithm: Option<ForeignText>,
    /// Where it stands at the moment of judgement.
    pub state: KeyState,
    /// When it was published.
    pub published_at: Option<Timestamp>,
    /// When every target knows it.
    pub active_at: Option<Timestamp>,
    /// When a token signed with it was first seen.
    pub signs_since: Option<Timestamp>,
    /// When a token signed with it was last seen.
    pub signs_until: Option<Timestamp>,
    /// When the hub was seen without it.
    pub withdrawn_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it is safe to remove from the hub; `None` while it signs.
    pub safe_to_remove_at: Option<Timestamp>,
    /// How many delivered objects hold a token of it; `None` if accesses were not readable.
    pub live_tokens: Option<usize>,
    /// When the last of those ends.
    pub last_token_ends: Option<Timestamp>,
}

/// Where a signing key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum KeyState {
    /// Published, but some target may not know it.
    Activating,
    /// Every target knows it, and it has not been seen to sign.
    Active,
    /// It is the newest key that was seen to sign.
    Signs,
    /// It no longer signs, and tokens of it may live.
    Verifies,
    /// No token of it lives.
    Retired,
    /// Revoked for ever.
    Revoked,
    /// Known from delivered tokens alone.
    NotKnown,
}

/// Refusals, from audit lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DenialFacts {
    /// Where the lines come from; `None` if none was read, so that the rest says nothing.
    pub source: Option<String>,
    /// How many lines were read.
    pub lines: usize,
    /// The time of the first line.
    pub since: Option<Timestamp>,
    /// Refusals of the last hour, by reason and namespace of the caller, the most frequent first.
    pub groups: Vec<DenialGroup>,
    /// The last 50, the newest first.
    pub newest: Vec<Denial>,
}

/// Refusals with one reason to callers of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DenialGroup {
    /// The reason code.
    pub reason: ForeignText,
    /// The caller's namespace; empty if the caller is not known.
    pub namespace: ForeignText,
    /// How many in the last hour.
    pub count: usize,
    /// How many in each of the last 60 minutes, the oldest first; only minutes with some.
    pub by_minute: BTreeMap<u8, usize>,
}

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// When.
    pub at: Timestamp,
    /// The caller, as far as it was known.
    pub caller: Option<ForeignText>,
    /// The access that was asked for.
    pub access: Option<ForeignText>,
    /// The target.
    pub target: Option<ForeignText>,
    /// The reason code.
    pub reason: ForeignText,
    /// What happened, from the text about the code.
    pub cause: String,
    /// What to do.
    pub fix: String,
}

fn as_text<S: serde::Serializer>(name: &AccessName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}
