//! `inputs` of a ServerConfiguration: whether fleet inputs are served, and the credentials of the
//! machines that read them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::caller_certificates::{
    CallerCertificate, ClientCertificateRule, ClientCertificateSpec, MAX_AUTHORITY_SECRETS,
};
use super::check::Check;
use super::listener::LimitBounds;
use crate::name::{ClusterDns, Namespace, ObjectName};
use crate::schema::choice_names;

/// The most credentials of one server: two for each of 10,000 clusters.
const MAX_CREDENTIALS: usize = 20_000;

/// The limit of requests a second of one credential.
const REQUESTS_LIMIT: LimitBounds = LimitBounds {
    default: 5,
    max: 100_000,
};

/// The fleet inputs of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Whether the API listener serves them.
    pub enabled: bool,
    /// The credentials that can read them, each with its own name and its own Secret.
    pub credentials: Vec<InputCredential>,
    /// How many requests a second each credential may send; an Admin one may send ten times as
    /// many.
    pub requests_per_second: Option<NonZeroU32>,
}

/// A credential of a machine that has no ServiceAccount token of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputCredential {
    /// Its name, which is also the user of HTTP Basic.
    pub name: ObjectName,
    /// What it can read.
    pub scope: InputScope,
    /// What a machine shows to use it.
    pub proof: InputProof,
}

/// What a machine shows to use a credential for fleet inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputProof {
    /// A token, whose hash is in this Secret of Keyferry's namespace.
    Token(ObjectName),
    /// A client certificate of this rule.
    Certificate(ClientCertificateRule),
}

impl InputCredential {
    /// The Secret with the hash of its token, if it has one.
    pub fn token_secret(&self) -> Option<&ObjectName> {
        match &self.proof {
            InputProof::Token(secret) => Some(secret),
            InputProof::Certificate(_) => None,
        }
    }

    /// The rule for its client certificate, if it has one.
    pub fn certificate(&self) -> Option<&ClientCertificateRule> {
        match &self.proof {
            InputProof::Token(_) => None,
            InputProof::Certificate(rule) => Some(rule),
        }
    }
}

impl Inputs {
    /// The first URI that is in both lists: a reader's in `credentials` and a caller's in
    /// `callers`. One certificate would then be both.
    pub fn uri_of_a_caller(&self, callers: &[CallerCertificate]) -> Option<&str> {
        let callers: BTreeSet<&str> = callers.iter().map(|one| one.rule.uri.as_str()).collect();
        let mut uris = self.credentials.iter().filter_map(|one| one.certificate());
        uris.find(|rule| callers.contains(rule.uri.as_str()))
            .map(|rule| rule.uri.as_str())
    }
}

/// What a credential can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputScope {
    /// The inputs of one cluster.
    Cluster(ClusterDns),
    /// The targets of one namespace.
    Namespace(Namespace),
    /// The inputs of every cluster and of every namespace.
    Admin,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct InputsSpec {
    /// Whether the listener of the token API serves them. A change needs a restart.
    #[serde(default)]
    enabled: bool,
    /// The credentials of the machines that read them. They and api.clientCertificates name at most 16
    /// Secrets with CAs. A change needs no restart, unless it names a CA Secret that no entry named
    /// before.
    #[serde(default)]
    #[schemars(length(max = MAX_CREDENTIALS))]
    credentials: Vec<CredentialSpec>,
    /// Requests a second of each credential; an Admin one may send ten times as many. 0 is no limit.
    /// A change needs a restart.
    #[schemars(transform = REQUESTS_LIMIT.describe())]
    requests_per_second: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CredentialSpec {
    /// Its name, which no other credential has. It is also the user of HTTP Basic.
    #[schemars(with = "ObjectName")]
    name: String,
    /// What it can read. Read needs exactly one of cluster and namespace, Admin has neither.
    #[schemars(extend("enum" = choice_names(SCOPES)))]
    scope: String,
    /// The identity.clusterDNS of the TargetCluster whose inputs it reads.
    #[schemars(with = "Option<ObjectName>")]
    cluster: Option<String>,
    /// The namespace of the hub whose targets it reads.
    #[schemars(with = "Option<Namespace>")]
    namespace: Option<String>,
    /// The Secret with its token, which no other credential has. Exactly one of this and
    /// clientCertificate.
    secret_ref: Option<TokenSecretReference>,
    /// The client certificate that it shows instead of a token.
    client_certificate: Option<ClientCertificateSpec>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TokenSecretReference {
    /// A Secret in clusterResourceNamespace.
    #[schemars(with = "ObjectName")]
    name: String,
}

/// What `scope` says.
#[derive(Clone, Copy)]
enum ScopeKind {
    Read,
    Admin,
}

/// Every scope with its name.
const SCOPES: &[(&str, ScopeKind)] = &[("Read", ScopeKind::Read), ("Admin", ScopeKind::Admin)];

/// Reads the inputs, and notes their mistakes. `callers` are the entries of `api.clientCertificates`.
pub(super) fn read_inputs(
    spec: InputsSpec,
    callers: &[CallerCertificate],
    check: &mut Check<'_>,
) -> Option<Inputs> {
    let path = "inputs.requestsPerSecond";
    let requests_per_second = REQUESTS_LIMIT.read(spec.requests_per_second, path, check);
    if !spec.enabled && !spec.credentials.is_empty() {
        check.wrong(
            "inputs.credentials",
            "is set, but inputs are not enabled",
            "set inputs.enabled: true, or remove the credentials",
        );
    }
    if spec.credentials.len() > MAX_CREDENTIALS {
        check.wrong(
            "inputs.credentials",
            format!("has more than {MAX_CREDENTIALS} entries"),
            "split the fleet over several hubs",
        );
        return None;
    }
    let mut uses = CredentialUses::of_callers(callers);
    let mut credentials = Vec::with_capacity(spec.credentials.len());
    for (index, spec) in spec.credentials.into_iter().enumerate() {
        let field = |name: &str| format!("inputs.credentials[{index}].{name}");
        if let Some(credential) = read_credential(spec, &field, check) {
            uses.add(&credential, &field, check);
            credentials.push(credential);
        }
    }
    if uses.authority_secrets.len() > MAX_AUTHORITY_SECRETS {
        check.wrong(
            "inputs.credentials",
            format!(
                "names more than {MAX_AUTHORITY_SECRETS} Secrets with CAs, with \
                 api.clientCertificates"
            ),
            "let entries share the Secret of their CA",
        );
    }
    Some(Inputs {
        enabled: spec.enabled,
        credentials,
        requests_per_second: requests_per_second?,
    })
}

fn read_credential(
    spec: CredentialSpec,
    field: &impl Fn(&str) -> String,
    check: &mut Check<'_>,
) -> Option<InputCredential> {
    let name = check.take(
        &field("name"),
        ObjectName::new(spec.name),
        "name the credential as a Kubernetes object",
    );
    let proof = read_proof(spec.secret_ref, spec.client_certificate, field, check);
    let scope = read_scope(&spec.scope, spec.cluster, spec.namespace, field, check);
    Some(InputCredential {
        name: name?,
        scope: scope?,
        proof: proof?,
    })
}

/// What the credentials so far use. No two credentials share any of it, except Secrets with CAs.
struct CredentialUses {
    caller_uris: BTreeSet<String>,
    names: BTreeSet<ObjectName>,
    token_secrets: BTreeSet<ObjectName>,
    uris: BTreeSet<String>,
    authority_secrets: BTreeSet<ObjectName>,
}

impl CredentialUses {
    fn of_callers(callers: &[CallerCertificate]) -> Self {
        let rules = callers.iter().map(|caller| &caller.rule);
        let (caller_uris, authority_secrets) = rules
            .map(|rule| (rule.uri.clone(), rule.authority_secret.clone()))
            .unzip();
        Self {
            caller_uris,
            names: BTreeSet::new(),
            token_secrets: BTreeSet::new(),
            uris: BTreeSet::new(),
            authority_secrets,
        }
    }

    /// Adds a credential, and notes what another one uses already.
    fn add(
        &mut self,
        credential: &InputCredential,
        field: &impl Fn(&str) -> String,
        check: &mut Check<'_>,
    ) {
        if !self.names.insert(credential.name.clone()) {
            check.wrong(
                &field("name"),
                "is the name of another credential",
                "give each credential a name of its own",
            );
        }
        let rule = match &credential.proof {
            // One Secret for two credentials would be one token for two scopes.
            InputProof::Token(secret) => {
                if !self.token_secrets.insert(secret.clone()) {
                    check.wrong(
                        &field("secretRef.name"),
                        "is the Secret of another credential",
                        "give each credential a Secret of its own",
                    );
                }
                return;
            }
            InputProof::Certificate(rule) => rule,
        };
        self.authority_secrets.insert(rule.authority_secret.clone());
        if self.caller_uris.contains(&rule.uri) {
            check.wrong(
                &field("clientCertificate.uriSAN"),
                "is also in api.clientCertificates",
                "give the certificate another URI: one that reads inputs is no caller of tokens",
            );
        }
        if !self.uris.insert(rule.uri.clone()) {
            check.wrong(
                &field("clientCertificate.uriSAN"),
                "is the URI of another credential",
                "give each credential a URI of its own",
            );
        }
    }
}

fn read_proof(
    secret: Option<TokenSecretReference>,
    certificate: Option<ClientCertificateSpec>,
    field: &impl Fn(&str) -> String,
    check: &mut Check<'_>,
) -> Option<InputProof> {
    match (secret, certificate) {
        (Some(secret), None) => check
            .take(
                &field("secretRef.name"),
                ObjectName::new(secret.name),
                "name a Secret of Keyferry's own namespace",
            )
            .map(InputProof::Token),
        (None, Some(certificate)) => certificate
            .read_rule(&field("clientCertificate"), check)
            .map(InputProof::Certificate),
        _ => {
            check.wrong(
                &field("secretRef"),
                "a credential has exactly one of secretRef and clientCertificate",
                "write secretRef for a token, or clientCertificate, and not both",
            );
            None
        }
    }
}

fn read_scope(
    scope: &str,
    cluster: Option<String>,
    namespace: Option<String>,
    field: &impl Fn(&str) -> String,
    check: &mut Check<'_>,
) -> Option<InputScope> {
    let scope = check.choose(&field("scope"), scope, "a scope", SCOPES)?;
    match (scope, cluster, namespace) {
        (ScopeKind::Read, Some(cluster), None) => check
            .take(
                &field("cluster"),
                ClusterDns::new(cluster),
                "write the clusterDNS of a TargetCluster's identity",
            )
            .map(InputScope::Cluster),
        (ScopeKind::Read, None, Some(namespace)) => check
            .take(
                &field("namespace"),
                Namespace::new(namespace),
                "write a namespace of the hub",
            )
            .map(InputScope::Namespace),
        (ScopeKind::Read, ..) => {
            check.wrong(
                &field("scope"),
                "a Read credential names exactly one of cluster and namespace",
                "write cluster, or namespace, and not both",
            );
            None
        }
        (ScopeKind::Admin, None, None) => Some(InputScope::Admin),
        (ScopeKind::Admin, ..) => {
            check.wrong(
                &field("scope"),
                "an Admin credential reads all clusters and namespaces, and this one names one",
                "remove cluster and namespace, or use scope: Read",
            );
            None
        }
    }
}
