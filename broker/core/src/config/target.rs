//! `TargetCluster`: where a target is, its CA, its one audience, and who may use it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::access::DeliveryType;
use super::check::{Check, Mistake};
use super::document::{Document, Metadata};
use super::selector::{LabelSelector, NamespaceSelector};
use super::server::ServerConfiguration;
use super::{Generation, Policy, span};
use crate::audience::Audience;
use crate::issuer::Issuer;
use crate::lifetime;
use crate::name::{Namespace, ObjectName};

/// The API group and version of TargetCluster and TargetAccess.
pub(super) const API_VERSION: &str = "keyferry.dev/v1alpha1";

/// A TargetCluster, checked.
#[derive(Clone, Debug)]
pub struct TargetCluster {
    /// Its name, which is also its UID in a file.
    pub name: ObjectName,
    /// Changes with its spec.
    pub generation: Generation,
    /// The apiserver's URL: https, a path allowed; no trailing slash.
    pub address: String,
    /// The name to expect in the apiserver's certificate, where it is not the address's host.
    pub tls_server_name: Option<String>,
    /// The proxy through which clients reach the target: http, https or socks5.
    pub proxy_url: Option<String>,
    /// Where the target's CA certificates come from.
    pub certificate: CertificateSource,
    /// The one audience of every token for this target.
    pub audience: Audience,
    /// The target's own issuer, where its admin stated it.
    pub target_issuer: Option<Issuer>,
    /// Lifetimes of its tokens.
    pub lifetime: LifetimeRange,
    /// Who may use it. Empty means nobody.
    pub allow: Vec<AllowRule>,
    /// Whether nothing is minted for the time being.
    pub suspend: bool,
}

/// Where a target's CA certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// `ca.crt` of this Secret in Keyferry's namespace.
    Secret(ObjectName),
    /// PEM in the object itself.
    Inline(String),
    /// The client's own roots.
    System,
}

/// How long tokens for one target live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeRange {
    /// What a token gets when nothing else is asked, in whole seconds.
    pub default: Duration,
    /// The most that a delivery may ask for, in whole seconds.
    pub max: Duration,
}

/// One entry of `allow[]`: these ServiceAccounts of these namespaces, by these deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowRule {
    /// Which namespaces.
    pub namespaces: NamespaceRule,
    /// Which ServiceAccounts in them, by exact name.
    pub service_accounts: BTreeSet<ObjectName>,
    /// In which shapes a credential may leave.
    pub deliveries: BTreeSet<DeliveryType>,
}

/// The namespaces of an [`AllowRule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRule {
    /// These, by exact name.
    Named(BTreeSet<Namespace>),
    /// Those whose labels match.
    Selected(NamespaceSelector),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Object {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    address: String,
    tls_server_name: Option<String>,
    #[serde(rename = "proxyURL")]
    proxy_url: Option<String>,
    cert_secret_ref: Option<LocalReference>,
    ca_bundle: Option<String>,
    audience: String,
    #[serde(default = "hub")]
    issuer: String,
    target_issuer: Option<String>,
    #[serde(default)]
    token_lifetime: Lifetime,
    #[serde(default)]
    allow: Vec<Rule>,
    #[serde(default)]
    suspend: bool,
}

/// A reference to an object whose namespace follows from the referrer: it has no namespace field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocalReference {
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lifetime {
    default: Option<String>,
    max: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    namespaces: Option<Vec<String>>,
    namespace_selector: Option<LabelSelector>,
    service_accounts: Vec<String>,
    deliveries: Option<Vec<String>>,
}

fn hub() -> String {
    "Hub".to_owned()
}

/// Reads one TargetCluster into the policy.
pub(super) fn read(document: &Document, policy: &mut Policy, mistakes: &mut Vec<Mistake>) {
    let Some(object) = document.read::<Object>(mistakes) else { return };
    let mut check = Check::new(document, mistakes);
    if object.metadata.namespace.is_some() {
        check.wrong("metadata.namespace", "a TargetCluster is cluster-scoped", "remove metadata.namespace");
    }
    let Spec { address, tls_server_name, proxy_url, cert_secret_ref, ca_bundle, audience, issuer, target_issuer, token_lifetime, allow, suspend } =
        object.spec;
    let name = check.take("metadata.name", ObjectName::new(object.metadata.name), "name it as a Kubernetes object");
    let address = check.take("spec.address", read_address(&address), "write https://host[:port][/path]");
    let tls_server_name = tls_server_name.and_then(|text| check.take("spec.tlsServerName", read_server_name(text), "write a DNS name"));
    let proxy_url = proxy_url.and_then(|text| check.take("spec.proxyURL", read_proxy(&text), "write http, https or socks5://host:port"));
    let certificate = certificate(cert_secret_ref, ca_bundle, &mut check);
    let audience = check.take("spec.audience", Audience::new(audience), "give the target one audience that no other target has");
    read_issuer(&issuer, &mut check);
    let target_issuer =
        target_issuer.and_then(|text| check.take("spec.targetIssuer", Issuer::new(text), "write the target's own --service-account-issuer"));
    let lifetime = read_lifetime(&token_lifetime, &mut check);
    let allow = allow.into_iter().enumerate().filter_map(|(index, rule)| read_rule(rule, index, &mut check)).collect();
    if !check.clean() {
        return;
    }
    let (Some(name), Some(address), Some(certificate), Some(audience), Some(lifetime)) = (name, address, certificate, audience, lifetime) else {
        return;
    };
    let generation = document.generation();
    let target = TargetCluster {
        name: name.clone(),
        generation,
        address,
        tls_server_name,
        proxy_url,
        certificate,
        audience,
        target_issuer,
        lifetime,
        allow,
        suspend,
    };
    if policy.targets.insert(name, target).is_some() {
        mistakes.push(document.mistake("metadata.name", "a second TargetCluster has this name", "rename or remove one of them"));
    }
}

/// Two targets with one audience could not tell their tokens apart, and Keyferry's own audience would let a target's token in.
pub(super) fn check_audiences(documents: &[Document], policy: &Policy, server: Option<&ServerConfiguration>, mistakes: &mut Vec<Mistake>) {
    let mut owners: BTreeMap<&Audience, &ObjectName> = BTreeMap::new();
    for target in policy.targets.values() {
        let Some(document) = documents.iter().find(|document| document.is("TargetCluster", target.name.as_str())) else { continue };
        if server.is_some_and(|server| server.caller_audience == target.audience) {
            mistakes.push(document.mistake(
                "spec.audience",
                "is Keyferry's own callerAudience, so a target could use its tokens to call Keyferry",
                "choose another audience",
            ));
        }
        if let Some(owner) = owners.insert(&target.audience, &target.name) {
            mistakes.push(document.mistake(
                "spec.audience",
                format!("is also the audience of TargetCluster/{owner}, so a token for one would open the other"),
                "give each target an audience of its own",
            ));
        }
    }
}

fn read_address(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if url.scheme() != "https" {
        return Err("is not an https URL, and a bearer token must not travel in the clear");
    }
    if text.contains('@') || !url.username().is_empty() || url.password().is_some() {
        return Err("holds credentials");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("holds a query or a fragment");
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) || !text.is_ascii() {
        return Err("has no usable host and port");
    }
    // Kept as written but for the trailing slash; the parser's own spelling decides only whether it is sound.
    if text.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'%')) || text.contains("/../") || text.ends_with("/..") {
        return Err("holds characters or path segments that clients read differently");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn read_server_name(text: String) -> Result<String, &'static str> {
    ObjectName::new(text.clone()).map(|_| text).map_err(|_| "is not a DNS name")
}

fn read_proxy(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https" | "socks5") {
        return Err("is not an http, https or socks5 URL");
    }
    if text.contains('@') || url.password().is_some() {
        return Err("holds credentials, which every reader of the kubeconfig would get");
    }
    if url.host_str().is_none_or(str::is_empty) || !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("is not a plain host and port");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn certificate(reference: Option<LocalReference>, inline: Option<String>, check: &mut Check<'_>) -> Option<CertificateSource> {
    match (reference, inline) {
        (Some(_), Some(_)) => {
            check.wrong("spec.caBundle", "stands beside certSecretRef", "keep one of certSecretRef and caBundle");
            None
        }
        (Some(reference), None) => check
            .take("spec.certSecretRef.name", ObjectName::new(reference.name), "name a Secret in Keyferry's own namespace, without a slash")
            .map(CertificateSource::Secret),
        (None, Some(pem)) => Some(CertificateSource::Inline(pem)),
        (None, None) => Some(CertificateSource::System),
    }
}

fn read_issuer(issuer: &str, check: &mut Check<'_>) {
    match issuer {
        "Hub" => {}
        "Keyferry" => check.wrong("spec.issuer", "Keyferry is not available yet", "use Hub, with an https --service-account-issuer on the hub"),
        _ => check.wrong("spec.issuer", format!("{issuer:?} is no issuer"), "use Hub"),
    }
}

fn read_lifetime(lifetime: &Lifetime, check: &mut Check<'_>) -> Option<LifetimeRange> {
    const MEND: &str = "write a duration from 10m to 24h";
    let mut one = |path: &str, text: &Option<String>, default: Duration| match text {
        None => Some(default),
        Some(text) => {
            let duration = check.take(path, span::parse(text), MEND)?;
            let bounded = lifetime::check(duration).map(|()| duration);
            check.take(path, bounded, MEND)
        }
    };
    let max = one("spec.tokenLifetime.max", &lifetime.max, Duration::from_secs(12 * 3600))?;
    let default = one("spec.tokenLifetime.default", &lifetime.default, Duration::from_secs(3600).min(max))?;
    if default > max {
        let problem = format!("{} is longer than max, {}", span::print(default), span::print(max));
        check.wrong("spec.tokenLifetime.default", problem, "lower default or raise max");
        return None;
    }
    Some(LifetimeRange { default, max })
}

fn read_rule(rule: Rule, index: usize, check: &mut Check<'_>) -> Option<AllowRule> {
    let path = format!("spec.allow[{index}]");
    let namespaces = match (rule.namespaces, rule.namespace_selector) {
        (Some(names), None) => {
            let names = names_of(names, &format!("{path}.namespaces"), |text| Namespace::new(text), check)?;
            Some(NamespaceRule::Named(names))
        }
        (None, Some(selector)) => NamespaceSelector::read(selector, &format!("{path}.namespaceSelector"), check).map(NamespaceRule::Selected),
        _ => {
            check.wrong(&path, "needs exactly one of namespaces and namespaceSelector", "keep one of them");
            None
        }
    };
    let service_accounts = names_of(rule.service_accounts, &format!("{path}.serviceAccounts"), |text| ObjectName::new(text), check);
    let deliveries = match rule.deliveries {
        None => Some(DeliveryType::DEFAULT.iter().copied().collect()),
        Some(names) => names_of(names, &format!("{path}.deliveries"), |text| DeliveryType::parse(&text), check),
    };
    Some(AllowRule { namespaces: namespaces?, service_accounts: service_accounts?, deliveries: deliveries? })
}

fn names_of<T: Ord, E: std::fmt::Display>(
    names: Vec<String>,
    path: &str,
    parse: impl Fn(String) -> Result<T, E>,
    check: &mut Check<'_>,
) -> Option<BTreeSet<T>> {
    if names.is_empty() {
        check.wrong(path, "is empty", "list at least one exact name");
        return None;
    }
    let count = names.len();
    let read: BTreeSet<T> = names
        .into_iter()
        .enumerate()
        .filter_map(|(index, name)| {
            let shown = format!("{name:?}");
            let parsed = parse(name).map_err(|error| format!("{shown} {error}"));
            check.take(&format!("{path}[{index}]"), parsed, "write an exact name; patterns are not allowed")
        })
        .collect();
    if check.clean() && read.len() < count {
        check.wrong(path, "names something twice", "list each name once");
    }
    Some(read)
}
