//! `inputs` of a ServerConfiguration: whether fleet inputs are served, and the credentials of the
//! machines that read them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::Deserialize;

use super::caller_certificates::{
    CallerCertificate, ClientCertificateRule, ClientCertificateSpec, MOST_SECRETS,
};
use super::check::Check;
use super::listener::limit;
use crate::name::{ClusterDns, Namespace, ObjectName};

/// The most credentials of one server: two for each of 10,000 clusters.
const MOST_CREDENTIALS: usize = 20_000;

/// Requests a second of one credential, by default.
const REQUESTS: u32 = 5;
const MOST_REQUESTS: u32 = 100_000;

/// The fleet inputs of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Whether the API listener serves them. Default no.
    pub enabled: bool,
    /// The credentials that can read them, each with its own name and its own Secret.
    pub credentials: Vec<InputCredential>,
    /// How many requests a second each credential may send; an Admin one may send ten times as
    /// many. Default 5.
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct InputsSpec {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    credentials: Vec<CredentialSpec>,
    requests_per_second: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CredentialSpec {
    name: String,
    scope: String,
    cluster: Option<String>,
    namespace: Option<String>,
    secret_ref: Option<SecretRefSpec>,
    client_certificate: Option<ClientCertificateSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRefSpec {
    name: String,
}

/// Reads the inputs, and notes their mistakes. `callers` are the entries of `api.clientCertificates`.
pub(super) fn read(
    written: InputsSpec,
    callers: &[CallerCertificate],
    check: &mut Check<'_>,
) -> Option<Inputs> {
    let InputsSpec {
        enabled,
        credentials,
        requests_per_second,
    } = written;
    let requests_per_second = limit(
        requests_per_second,
        "inputs.requestsPerSecond",
        REQUESTS,
        MOST_REQUESTS,
        check,
    );
    if !enabled && !credentials.is_empty() {
        check.wrong(
            "inputs.credentials",
            "is set, but inputs are not enabled",
            "set inputs.enabled: true, or remove the credentials",
        );
    }
    if credentials.len() > MOST_CREDENTIALS {
        check.wrong(
            "inputs.credentials",
            format!("has more than {MOST_CREDENTIALS} entries"),
            "split the fleet over several hubs",
        );
        return None;
    }
    let (mut names, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let caller_uris: BTreeSet<&str> = callers.iter().map(|one| one.rule.uri.as_str()).collect();
    let caller_secrets = callers.iter().map(|one| one.rule.authority_secret.clone());
    let mut authorities: BTreeSet<ObjectName> = caller_secrets.collect();
    let mut uris = BTreeSet::new();
    let mut read = Vec::with_capacity(credentials.len());
    for (index, written) in credentials.into_iter().enumerate() {
        let at = |field: &str| format!("inputs.credentials[{index}].{field}");
        let name = check.take(
            &at("name"),
            ObjectName::new(written.name),
            "name the credential as a Kubernetes object",
        );
        let proof = proof(written.secret_ref, written.client_certificate, &at, check);
        let scope = scope(
            &written.scope,
            written.cluster,
            written.namespace,
            &at,
            check,
        );
        let (Some(name), Some(proof), Some(scope)) = (name, proof, scope) else {
            continue;
        };
        if !names.insert(name.clone()) {
            check.wrong(
                &at("name"),
                "is the name of another credential",
                "give each credential a name of its own",
            );
        }
        match &proof {
            // One Secret for two credentials would be one token for two scopes.
            InputProof::Token(secret) => {
                if !secrets.insert(secret.clone()) {
                    check.wrong(
                        &at("secretRef.name"),
                        "is the Secret of another credential",
                        "give each credential a Secret of its own",
                    );
                }
            }
            InputProof::Certificate(rule) => {
                authorities.insert(rule.authority_secret.clone());
                if caller_uris.contains(rule.uri.as_str()) {
                    check.wrong(
                        &at("clientCertificate.uriSAN"),
                        "is also in api.clientCertificates",
                        "give the certificate another URI: one that reads inputs is no caller \
                         of tokens",
                    );
                }
                if !uris.insert(rule.uri.clone()) {
                    check.wrong(
                        &at("clientCertificate.uriSAN"),
                        "is the URI of another credential",
                        "give each credential a URI of its own",
                    );
                }
            }
        }
        read.push(InputCredential { name, scope, proof });
    }
    if authorities.len() > MOST_SECRETS {
        check.wrong(
            "inputs.credentials",
            format!("names more than {MOST_SECRETS} Secrets with CAs, with api.clientCertificates"),
            "let entries share the Secret of their CA",
        );
    }
    Some(Inputs {
        enabled,
        credentials: read,
        requests_per_second: requests_per_second?,
    })
}

fn proof(
    secret: Option<SecretRefSpec>,
    certificate: Option<ClientCertificateSpec>,
    at: &impl Fn(&str) -> String,
    check: &mut Check<'_>,
) -> Option<InputProof> {
    match (secret, certificate) {
        (Some(secret), None) => check
            .take(
                &at("secretRef.name"),
                ObjectName::new(secret.name),
                "name a Secret of Keyferry's own namespace",
            )
            .map(InputProof::Token),
        (None, Some(certificate)) => certificate
            .read(&at("clientCertificate"), check)
            .map(InputProof::Certificate),
        _ => {
            check.wrong(
                &at("secretRef"),
                "a credential has exactly one of secretRef and clientCertificate",
                "write secretRef for a token, or clientCertificate, and not both",
            );
            None
        }
    }
}

fn scope(
    scope: &str,
    cluster: Option<String>,
    namespace: Option<String>,
    at: &impl Fn(&str) -> String,
    check: &mut Check<'_>,
) -> Option<InputScope> {
    match (scope, cluster, namespace) {
        ("Read", Some(cluster), None) => check
            .take(
                &at("cluster"),
                ClusterDns::new(cluster),
                "write the clusterDNS of a TargetCluster's identity",
            )
            .map(InputScope::Cluster),
        ("Read", None, Some(namespace)) => check
            .take(
                &at("namespace"),
                Namespace::new(namespace),
                "write a namespace of the hub",
            )
            .map(InputScope::Namespace),
        ("Read", ..) => {
            check.wrong(
                &at("scope"),
                "a Read credential names exactly one of cluster and namespace",
                "write cluster, or namespace, and not both",
            );
            None
        }
        ("Admin", None, None) => Some(InputScope::Admin),
        ("Admin", ..) => {
            check.wrong(
                &at("scope"),
                "an Admin credential reads all clusters and namespaces, and this one names one",
                "remove cluster and namespace, or use scope: Read",
            );
            None
        }
        (other, ..) => {
            check.wrong(
                &at("scope"),
                format!("{other:?} is not a scope"),
                "use Read or Admin",
            );
            None
        }
    }
}
