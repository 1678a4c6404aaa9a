//! `api.clientCertificates`: which client certificate stands for which caller. Credentials for
//! fleet inputs share a part of these rules.

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Check;
use crate::name::{Namespace, ObjectName};
use crate::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};

/// The most rules of one server.
pub(super) const MAX_RULES: usize = 256;

/// The most Secrets with CAs: each has a watch.
pub(super) const MAX_AUTHORITY_SECRETS: usize = 16;

/// The longest URI. SPIFFE allows 2048 bytes too.
const MAX_URI_BYTES: usize = 2048;

/// Selects the client certificates of an entry: those with this URI, signed under this CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificateRule {
    /// The Secret in Keyferry's namespace whose `ca.crt` has the CA.
    pub authority_secret: ObjectName,
    /// The certificate's only URI, byte for byte.
    pub uri: String,
    /// Whether the CA may be the one whose certificates the hub's apiserver accepts.
    pub allow_hub_client_ca: bool,
}

/// One entry of `api.clientCertificates`: the certificates of this rule stand for this
/// ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerCertificate {
    /// Which certificates.
    pub rule: ClientCertificateRule,
    /// The ServiceAccount, by name and UID.
    pub service_account: ServiceAccountIdentity,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CallerCertificateSpec {
    /// The CA of the certificates.
    ca_secret_ref: AuthorityReference,
    /// The only URI among the certificate's alternative names, byte for byte, such as
    /// spiffe://example.com/ns/a/sa/b. It has a scheme; patterns are refused.
    #[serde(rename = "uriSAN")]
    #[schemars(length(max = MAX_URI_BYTES))]
    uri_san: String,
    /// The ServiceAccount for which the certificates stand.
    service_account: AccountSpec,
    /// Whether the CA may be one whose certificates are users of the hub's apiserver
    /// (client-ca-file, requestheader-client-ca-file), compared by public key.
    #[serde(default, rename = "allowHubClientCA")]
    allow_hub_client_ca: bool,
}

/// A rule as a nested object, because `serde` cannot flatten it into a type that denies unknown
/// fields.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientCertificateSpec {
    /// The CA of the certificate.
    ca_secret_ref: AuthorityReference,
    /// The certificate's only URI, as in api.clientCertificates. No other credential and no caller
    /// has it.
    #[serde(rename = "uriSAN")]
    #[schemars(length(max = MAX_URI_BYTES))]
    uri_san: String,
    /// As in api.clientCertificates.
    #[serde(default, rename = "allowHubClientCA")]
    allow_hub_client_ca: bool,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthorityReference {
    /// A Secret in clusterResourceNamespace whose ca.crt has one to 8 CA certificates: two while
    /// callers move to the next CA.
    #[schemars(with = "ObjectName")]
    name: String,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AccountSpec {
    /// Its namespace on the hub.
    #[schemars(with = "Namespace")]
    namespace: String,
    /// Its name.
    #[schemars(with = "ObjectName")]
    name: String,
    /// Its metadata.uid. If the ServiceAccount is created again, the rule is void until its new UID
    /// is written here.
    uid: String,
}

/// Reads the rules, and notes their mistakes.
pub(super) fn read_caller_certificates(
    specs: &[CallerCertificateSpec],
    check: &mut Check<'_>,
) -> Option<Vec<CallerCertificate>> {
    let path = "api.clientCertificates";
    if specs.len() > MAX_RULES {
        check.wrong(
            path,
            format!("has more than {MAX_RULES} entries"),
            "give callers that need no certificate a token",
        );
        return None;
    }
    let mut rules: Vec<CallerCertificate> = Vec::new();
    let mut complete = true;
    for (index, spec) in specs.iter().enumerate() {
        match read_caller_certificate(spec, &format!("{path}[{index}]"), check) {
            Some(rule) => rules.push(rule),
            None => complete = false,
        }
    }
    let mut secrets = std::collections::BTreeSet::new();
    for (index, rule) in rules.iter().enumerate() {
        let same = |other: &&CallerCertificate| {
            other.rule.authority_secret == rule.rule.authority_secret
                && other.rule.uri == rule.rule.uri
        };
        if complete && rules.iter().take(index).any(|other| same(&other)) {
            check.wrong(
                &format!("{path}[{index}].uriSAN"),
                "stands in an earlier entry with the same Secret",
                "remove one of both entries: a certificate is one caller",
            );
            complete = false;
        }
        secrets.insert(&rule.rule.authority_secret);
    }
    if secrets.len() > MAX_AUTHORITY_SECRETS {
        check.wrong(
            path,
            format!("names more than {MAX_AUTHORITY_SECRETS} Secrets"),
            "let entries share the Secret of their CA",
        );
        complete = false;
    }
    complete.then_some(rules)
}

fn read_caller_certificate(
    spec: &CallerCertificateSpec,
    path: &str,
    check: &mut Check<'_>,
) -> Option<CallerCertificate> {
    let certificate = ClientCertificateSpec {
        ca_secret_ref: spec.ca_secret_ref.clone(),
        uri_san: spec.uri_san.clone(),
        allow_hub_client_ca: spec.allow_hub_client_ca,
    };
    let rule = certificate.read_rule(path, check);
    let account = &spec.service_account;
    let namespace = check.take(
        &format!("{path}.serviceAccount.namespace"),
        Namespace::new(account.namespace.as_str()),
        "name the namespace of a ServiceAccount on the hub",
    );
    let name = check.take(
        &format!("{path}.serviceAccount.name"),
        ObjectName::new(account.name.as_str()),
        "name a ServiceAccount on the hub",
    );
    let uid = check.take(
        &format!("{path}.serviceAccount.uid"),
        Uid::new(&account.uid),
        "write what kubectl get serviceaccount NAME -o jsonpath={.metadata.uid} prints",
    );
    Some(CallerCertificate {
        rule: rule?,
        service_account: ServiceAccountIdentity {
            account: ServiceAccount {
                namespace: namespace?,
                name: name?,
            },
            uid: uid?,
        },
    })
}

impl ClientCertificateSpec {
    /// Reads the rule at `path`, and notes its mistakes.
    pub(super) fn read_rule(
        self,
        path: &str,
        check: &mut Check<'_>,
    ) -> Option<ClientCertificateRule> {
        let authority_secret = check.take(
            &format!("{path}.caSecretRef.name"),
            ObjectName::new(self.ca_secret_ref.name),
            "name a Secret with ca.crt in Keyferry's namespace",
        );
        let checked_uri = check_uri(&self.uri_san).map(|()| self.uri_san);
        let uri = check.take(
            &format!("{path}.uriSAN"),
            checked_uri,
            "write the URI in the caller's certificate, such as spiffe://example.com/ns/a/sa/b",
        );
        Some(ClientCertificateRule {
            authority_secret: authority_secret?,
            uri: uri?,
            allow_hub_client_ca: self.allow_hub_client_ca,
        })
    }
}

/// Checks that the text is a URI with a scheme. It is compared byte for byte, so a pattern would
/// match nothing.
fn check_uri(text: &str) -> Result<(), &'static str> {
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let scheme_is_valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !scheme_is_valid || rest.is_empty() {
        return Err("is not a URI with a scheme");
    }
    if text.len() > MAX_URI_BYTES {
        return Err("is longer than 2048 bytes");
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a character that a URI cannot have");
    }
    if text.contains('*') {
        return Err("has a *, but a URI is compared byte for byte");
    }
    Ok(())
}
