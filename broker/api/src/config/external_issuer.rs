//! `externalIssuers` of a ServerConfiguration: issuers of callers' tokens other than the hub, such
//! as a CI system, and the ServiceAccounts that their tokens stand for.
//!
//! Every user of a public CI system gets tokens of its issuer. So each rule must name one project
//! by an id that no other project can get, and the refs or environments that may use the rule.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::check::Check;
use super::duration::DurationBounds;
use super::external_rule::{ClaimRule, ClaimRuleSpec, MAX_RULES, read_rules};
use super::external_system::ExternalSystem;
use crate::audience::Audience;
use crate::issuer::{Issuer, PublicUrl};
use crate::managed_issuer::INERT_AUDIENCE;
use crate::name::{Namespace, ObjectName};
use crate::schema;
use crate::service_account::{ServiceAccount, Uid};

pub(super) const MAX_ISSUERS: usize = 32;
/// The longest lifetime of a token.
const TOKEN_LIFETIME: DurationBounds = DurationBounds {
    default: 3600,
    range: 5 * 60..=24 * 3600,
};

/// An issuer whose tokens stand for one ServiceAccount of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIssuer {
    /// The `iss` of its tokens, byte for byte. Its discovery document is below this URL.
    pub url: Issuer,
    /// The system that signs them, if the file says it.
    pub system: Option<ExternalSystem>,
    /// The only `aud` that its tokens may have.
    pub audience: Audience,
    /// PEM certificates that its server is checked against; the system's roots if absent.
    pub certificate_authority: Option<String>,
    /// A token must meet one of these rules. At least one.
    pub rules: Vec<ClaimRule>,
    /// The ServiceAccount for which such a token stands.
    pub service_account: ServiceAccount,
    /// The UID that the ServiceAccount must have, if it is pinned.
    pub service_account_uid: Option<Uid>,
    /// The longest accepted `exp` minus `iat`.
    pub max_token_lifetime: Duration,
    /// How often one token may be exchanged.
    pub token_use: TokenUse,
}

/// How often one token of an external issuer may be exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenUse {
    /// Once for each replica. The token must have a `jti`.
    #[default]
    Once,
    /// Until it expires, for systems that give a job one token only.
    UntilExpiry,
}

impl TokenUse {
    /// Every use with its name.
    const ALL: &'static [(&'static str, Self)] =
        &[("Once", Self::Once), ("UntilExpiry", Self::UntilExpiry)];
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExternalIssuerSpec {
    /// The iss of its tokens. Its discovery document is below it, and its jwks_uri is on the same
    /// origin.
    #[schemars(transform = schema::issuer)]
    url: String,
    /// The system that signs its tokens, which decides what a rule must have. Without it, a rule
    /// must have repository_id or project_id, as GitHub's and GitLab's jobs do.
    #[schemars(extend("enum" = schema::choice_names(ExternalSystem::ALL)))]
    system: Option<String>,
    /// Whether the sub of a rule is never given to anyone else, which only you know. Required with
    /// system Other.
    #[schemars(extend("enum" = ["Immutable"]))]
    subject: Option<String>,
    /// The only aud of its tokens.
    #[schemars(transform = schema::audience)]
    audience: String,
    /// PEM certificates that its server is checked against. Without it, the system's roots.
    certificate_authority: Option<String>,
    /// Which claims a token must have. It must meet one of these rules.
    #[schemars(length(min = 1, max = MAX_RULES))]
    rules: Vec<ClaimRuleSpec>,
    /// The ServiceAccount for which such a token stands.
    service_account: ServiceAccountSpec,
    /// The longest exp minus iat of a token.
    #[schemars(transform = TOKEN_LIFETIME.describe())]
    max_token_lifetime: Option<String>,
    /// How often one token may be exchanged. Once is for each replica, and the token must have a
    /// jti. UntilExpiry is for systems that give a job one token only.
    #[schemars(transform = schema::choices(TokenUse::ALL))]
    token_use: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceAccountSpec {
    /// Its namespace on the hub.
    #[schemars(with = "Namespace")]
    namespace: String,
    /// Its name.
    #[schemars(with = "ObjectName")]
    name: String,
    /// Its metadata.uid, if it is pinned: a recreated ServiceAccount is then refused.
    uid: Option<String>,
}

/// The issuers that Keyferry publishes, which no external issuer may be.
pub(super) struct PublishedIssuers<'a> {
    /// The hub's issuer, if it is pinned.
    pub(super) hub_issuer: Option<&'a Issuer>,
    /// The origin of the managed issuers, which no external issuer may be below.
    pub(super) public_url: Option<&'a PublicUrl>,
}

/// Reads the list. Every mistake refuses the file: if a bad rule were skipped, its conflict with
/// another rule would go unnoticed.
pub(super) fn read_external_issuers(
    specs: Vec<ExternalIssuerSpec>,
    published: &PublishedIssuers<'_>,
    check: &mut Check<'_>,
) -> Option<Vec<ExternalIssuer>> {
    if specs.len() > MAX_ISSUERS {
        check.wrong(
            "externalIssuers",
            format!("has more than {MAX_ISSUERS} entries"),
            "write several rules into one entry",
        );
        return None;
    }
    let issuers: Option<Vec<_>> = specs
        .into_iter()
        .enumerate()
        .map(|(index, spec)| {
            read_external_issuer(spec, &format!("externalIssuers[{index}]"), published, check)
        })
        .collect();
    let issuers = issuers?;
    check_overlaps(&issuers, check);
    Some(issuers)
}

fn read_external_issuer(
    spec: ExternalIssuerSpec,
    path: &str,
    published: &PublishedIssuers<'_>,
    check: &mut Check<'_>,
) -> Option<ExternalIssuer> {
    let url_path = format!("{path}.url");
    let url = check.take(
        &url_path,
        Issuer::new(spec.url.as_str()),
        "write the iss claim of its tokens",
    );
    if let Some(url) = &url {
        check_url(url, &url_path, published, check);
    }
    let system = read_system(&spec, url.as_ref(), path, check);
    let audience = read_audience(spec.audience, system, &format!("{path}.audience"), check);
    let at_host = url.as_ref().map(host_of);
    let at_host = at_host.and_then(|host| ExternalSystem::at_public_host(&host));
    let rules = read_rules(spec.rules, system, at_host, &format!("{path}.rules"), check);
    let account_path = format!("{path}.serviceAccount");
    let account = read_service_account(spec.service_account, &account_path, check);
    let lifetime = DurationBounds {
        default: system.map_or(TOKEN_LIFETIME.default, |system| system.facts().longest_life),
        range: TOKEN_LIFETIME.range,
    };
    let max_token_lifetime = lifetime.read(
        spec.max_token_lifetime.as_deref(),
        &format!("{path}.maxTokenLifetime"),
        check,
    );
    let token_use = read_token_use(
        spec.token_use.as_deref(),
        system,
        &format!("{path}.tokenUse"),
        check,
    );
    let (service_account, service_account_uid) = account?;
    Some(ExternalIssuer {
        url: url?,
        system,
        audience: audience?,
        certificate_authority: spec.certificate_authority,
        rules,
        service_account,
        service_account_uid,
        max_token_lifetime: max_token_lifetime?,
        token_use: token_use?,
    })
}

/// Reads who signs the tokens, and checks that it can be so.
fn read_system(
    spec: &ExternalIssuerSpec,
    url: Option<&Issuer>,
    path: &str,
    check: &mut Check<'_>,
) -> Option<ExternalSystem> {
    let system_path = format!("{path}.system");
    let system = spec
        .system
        .as_deref()
        .and_then(|name| check.choose(&system_path, name, "a system", ExternalSystem::ALL));
    if let (Some(system), Some(url)) = (system, url) {
        check_host(system, url, &system_path, check);
    }
    let subject = spec.subject.as_deref();
    check_subject(system, subject, &format!("{path}.subject"), check);
    system
}

fn read_audience(
    text: String,
    system: Option<ExternalSystem>,
    path: &str,
    check: &mut Check<'_>,
) -> Option<Audience> {
    if text == INERT_AUDIENCE {
        check.wrong(
            path,
            "is the audience of tokens that nothing accepts",
            "choose another audience",
        );
    }
    if let Some(only) = system.and_then(|system| system.facts().audience)
        && text != only
    {
        check.wrong(
            path,
            "is not the audience of its tokens, which no job can choose",
            format!("write {only}"),
        );
    }
    check.take(
        path,
        Audience::new(text),
        "write one audience, such as the address of this token API",
    )
}

fn host_of(url: &Issuer) -> String {
    Url::parse(url.as_str())
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .unwrap_or_default()
}

fn check_host(system: ExternalSystem, url: &Issuer, path: &str, check: &mut Check<'_>) {
    if let Some(problem) = system.host_problem(&host_of(url)) {
        check.wrong(
            path,
            problem,
            "compare url with the iss of a token, and name the system that signs it",
        );
    }
}

/// Only the admin of the other system knows whether a `sub` is ever given to someone else.
fn check_subject(
    system: Option<ExternalSystem>,
    subject: Option<&str>,
    path: &str,
    check: &mut Check<'_>,
) {
    match (system, subject) {
        (Some(ExternalSystem::Other), None) => check.wrong(
            path,
            "is missing: another user who gets the same sub later could meet the rule",
            "write Immutable if the system never gives a sub to anyone else; else use none of it",
        ),
        (Some(ExternalSystem::Other), Some("Immutable")) | (_, None) => {}
        (Some(ExternalSystem::Other), Some(_)) => check.wrong(
            path,
            "is not Immutable",
            "write Immutable if the system never gives a sub to anyone else",
        ),
        (_, Some(_)) => check.wrong(path, "is for system Other alone", "remove it"),
    }
}

fn read_token_use(
    text: Option<&str>,
    system: Option<ExternalSystem>,
    path: &str,
    check: &mut Check<'_>,
) -> Option<TokenUse> {
    let Some(facts) = system.map(ExternalSystem::facts) else {
        return check.choose_or_default(path, text, "a use of a token", TokenUse::ALL);
    };
    let Some(text) = text else {
        return Some(facts.token_use);
    };
    let token_use = check.choose(path, text, "a use of a token", TokenUse::ALL)?;
    if token_use == TokenUse::Once && !facts.has_token_id {
        check.wrong(
            path,
            "needs a jti, which this system's tokens do not have",
            "write UntilExpiry, or remove the field",
        );
    }
    Some(token_use)
}

/// Reads the ServiceAccount, and its UID if that is pinned.
fn read_service_account(
    spec: ServiceAccountSpec,
    path: &str,
    check: &mut Check<'_>,
) -> Option<(ServiceAccount, Option<Uid>)> {
    let namespace = check.take(
        &format!("{path}.namespace"),
        Namespace::new(spec.namespace),
        "write the namespace of a ServiceAccount of the hub",
    );
    let name = check.take(
        &format!("{path}.name"),
        ObjectName::new(spec.name),
        "write the name of a ServiceAccount of the hub",
    );
    let uid = check.take(
        &format!("{path}.uid"),
        spec.uid.map(Uid::new).transpose(),
        "write the metadata.uid of the ServiceAccount, or remove the field",
    );
    let account = ServiceAccount {
        namespace: namespace?,
        name: name?,
    };
    Some((account, uid?))
}

fn check_url(url: &Issuer, path: &str, published: &PublishedIssuers<'_>, check: &mut Check<'_>) {
    if url.is_cluster_default() {
        check.wrong(
            path,
            "is the issuer that distributions give to every cluster, so any cluster could sign",
            "name an issuer that no other system and no other cluster has",
        );
    }
    if published
        .hub_issuer
        .is_some_and(|hub| same_issuer(hub.as_str(), url.as_str()))
    {
        check.wrong(
            path,
            "is the hub's own issuer, whose tokens the hub reviews",
            "remove the entry; a ServiceAccount of the hub needs none",
        );
    }
    if published
        .public_url
        .is_some_and(|public| same_origin(public.as_str(), url.as_str()))
    {
        check.wrong(
            path,
            "is below publicURL, where Keyferry publishes its own issuers",
            "name the issuer of another system",
        );
    }
}

/// Refuses two entries that could accept the same token: the order of a list must not decide for
/// which ServiceAccount the token stands.
fn check_overlaps(issuers: &[ExternalIssuer], check: &mut Check<'_>) {
    for (index, one) in issuers.iter().enumerate() {
        for (before, other) in issuers.iter().enumerate().take(index) {
            let same = one.url == other.url;
            if !same && same_issuer(one.url.as_str(), other.url.as_str()) {
                check.wrong(
                    &format!("externalIssuers[{index}].url"),
                    format!("differs from externalIssuers[{before}].url only in its spelling"),
                    "write the iss claim of the tokens into both",
                );
            }
            if !same {
                continue;
            }
            if one.certificate_authority != other.certificate_authority {
                check.wrong(
                    &format!("externalIssuers[{index}].certificateAuthority"),
                    format!(
                        "differs from that of externalIssuers[{before}], which has the same url"
                    ),
                    "write the same certificates into both",
                );
            }
            if one.audience != other.audience {
                continue;
            }
            let overlap = one.rules.iter().enumerate().find_map(|(mine, rule)| {
                let theirs = other.rules.iter().position(|their| rule.overlaps(their))?;
                Some((mine, theirs))
            });
            if let Some((mine, theirs)) = overlap {
                check.wrong(
                    &format!("externalIssuers[{index}].rules[{mine}].claims"),
                    format!(
                        "and externalIssuers[{before}].rules[{theirs}].claims can accept the same \
                         token"
                    ),
                    "give one claim different values in both, or different audiences to both \
                     entries",
                );
            }
        }
    }
}

/// Whether two texts name the same issuer: they differ at most in the case of the host, a default
/// port or a slash at the end.
pub fn same_issuer(one: &str, other: &str) -> bool {
    let bare = |text: &str| {
        Url::parse(text)
            .ok()
            .map(|url| url.as_str().trim_end_matches('/').to_owned())
    };
    match (bare(one), bare(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn same_origin(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => one.origin() == other.origin(),
        _ => false,
    }
}
