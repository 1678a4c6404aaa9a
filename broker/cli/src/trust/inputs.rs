//! Collects the inputs of the target rules: from the flags, else from Keyferry's configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{
    AllowRule, Configuration, NamespaceRule, ObjectSource, TargetCluster, TargetRole, TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::Namespace;
use keyferry_api::service_account::ServiceAccount;
use keyferry_api::status::TargetClusterStatus;
use keyferry_core::authorise::is_system;
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError, MAX_CA_BUNDLE_BYTES};
use keyferry_platform::clock::{Clock, SystemClock};

use super::known_hub::KnownHub;
use super::target_rules::{AudienceRules, TargetRules, check_prefix};
use super::{TrustArgs, local_file};
use crate::command_error::CommandError;
use crate::local_file::ReadError;

/// The default of `tokenLifetime.max`.
const MAX_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The target rules, and notes about them.
pub(super) struct TrustInputs {
    /// An entry for each issuer; never empty. The first is that of the TargetCluster itself, unless
    /// only roles of a managed issuer admit ServiceAccounts.
    pub(super) entries: Vec<TargetRules>,
    /// The prefix of users and groups.
    pub(super) prefix: String,
    /// The target's own issuer, if the configuration states it.
    pub(super) own_issuer: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Reads the arguments, and what they lack from the hub's settings.
///
/// # Errors
/// What is missing, wrong, or cannot be read.
pub(super) fn read(
    args: &TrustArgs,
    known: Option<&KnownHub>,
) -> Result<TrustInputs, CommandError> {
    let known_target = match known {
        Some(known) => Some((&known.configuration, target(&known.configuration, args)?)),
        None => None,
    };
    let target = known_target.map(|(_, target)| target);
    refuse_role(target)?;
    let status = known.and_then(|known| known.status.as_ref());
    let mut notes = status.map(warnings).unwrap_or_default();
    let unread_roles = known.and_then(|known| known.unread_roles.as_deref());
    notes.extend(unread_roles.map(|why| {
        format!("whether the TargetCluster has roles is unknown, so the file may lack them: {why}")
    }));
    let issuer = stated_issuer(args, known_target)?;
    notes.extend(notes_on_flags(args, &issuer, known.is_some()));
    let audience = stated_audience(args, known_target)?;
    let prefix = stated_prefix(args, known_target)?;
    // An apiserver refuses a discoveryURL that equals the issuer's own URL. It reads the default
    // path below that URL anyway.
    let default_url = issuer.discovery_url();
    let rules = TargetRules {
        issuer: issuer.as_str().to_owned(),
        discovery_url: stated_discovery_url(args, known_target).filter(|url| *url != default_url),
        certificate_authority: match (&args.discovery_ca, status) {
            (Some(file), _) => Some(certificates(file)?),
            (None, Some(status)) => stated_authority(args, status, &mut notes)?,
            (None, None) => None,
        },
        prefix: prefix.clone(),
        audiences: Vec::new(),
    };
    let base = AudienceRules {
        target: args.target.clone().unwrap_or_default(),
        audience: audience.as_str().to_owned(),
        role: None,
        allow: allowed(args, known, target, &mut notes)?,
        max_lifetime: args
            .max_lifetime
            .or(target.map(|target| target.lifetime.max))
            .unwrap_or(MAX_LIFETIME),
    };
    let entries = entries(&rules, base, known, target, &mut notes)?;
    let own_issuer = target
        .and_then(|target| target.target_issuer.as_ref())
        .map(|issuer| issuer.as_str().to_owned());
    Ok(TrustInputs {
        entries,
        prefix,
        own_issuer,
        notes,
    })
}

impl TrustInputs {
    /// Returns the users of the ServiceAccounts themselves, in order; not those of roles.
    pub(super) fn users(&self) -> Vec<String> {
        let audiences = self.entries.iter().flat_map(|rules| &rules.audiences);
        let accounts = audiences
            .filter(|one| one.role.is_none())
            .flat_map(|one| &one.allow);
        accounts
            .map(|account| format!("{}{}", self.prefix, account.username()))
            .collect()
    }

    /// Renders all entries.
    #[cfg(any(feature = "view", test))]
    pub(super) fn text(&self) -> String {
        self.entries.iter().map(TargetRules::entry).collect()
    }

    /// Returns the roles of the TargetCluster that admit ServiceAccounts.
    pub(super) fn roles(&self) -> impl Iterator<Item = &str> {
        let audiences = self.entries.iter().flat_map(|rules| &rules.audiences);
        audiences.filter_map(|one| one.role.as_deref())
    }
}

/// Returns the entry of a TargetCluster with its roles; with managed issuers, an entry for each. A
/// TargetCluster that admits nobody has no part in them.
fn entries(
    rules: &TargetRules,
    base: AudienceRules,
    known: Option<&KnownHub>,
    target: Option<&TargetCluster>,
    notes: &mut Vec<String>,
) -> Result<Vec<TargetRules>, CommandError> {
    let empty_allow = |name: &str| format!("allow of TargetCluster {name} names no ServiceAccount");
    let name = base.target.clone();
    let has_users = !base.allow.is_empty();
    // A role takes it from there.
    let base_issuer = target.map(|target| target.issuer);
    let entry_of = |issuer: String, audiences: Vec<AudienceRules>| TargetRules {
        issuer,
        audiences,
        ..rules.clone()
    };
    let audiences = Some(base).filter(|_| has_users).into_iter().collect();
    let mut entries = vec![entry_of(rules.issuer.clone(), audiences)];
    for (known, target, role) in roles_at(known, target) {
        let mut own_notes = Vec::new();
        let role_rules = AudienceRules {
            target: target.name.to_string(),
            audience: target.audience.as_str().to_owned(),
            role: Some(role.role.to_string()),
            allow: allowed_by_target(target, Some(known), &mut own_notes),
            max_lifetime: target.lifetime.max,
        };
        let lines = own_notes.into_iter();
        notes.extend(lines.map(|line| format!("{}: {line}", target.name)));
        if role_rules.allow.is_empty() {
            let why = empty_allow(&role_rules.target);
            notes.push(format!(
                "{why}, so the file has nothing for role {}",
                role.role
            ));
        } else if base_issuer == Some(TokenIssuer::Keyferry) {
            let issuer = managed_issuer(&known.configuration, target).ok_or_else(unknown_issuer)?;
            let without_url = TargetRules {
                discovery_url: None,
                ..entry_of(issuer.as_str().to_owned(), vec![role_rules])
            };
            entries.push(without_url);
        } else if let Some(entry) = entries.first_mut() {
            entry.audiences.push(role_rules);
        }
    }
    entries.retain(|entry| !entry.audiences.is_empty());
    if entries.is_empty() {
        let why = empty_allow(&name);
        return Err(CommandError::new(format!(
            "finding the allowed ServiceAccounts: {why}; give --allow"
        )));
    }
    if !has_users {
        let why = empty_allow(&name);
        notes.push(format!("{why}, so the file has only its roles"));
    }
    Ok(entries)
}

/// Returns the known roles at the cluster of a TargetCluster.
fn roles_at<'a>(
    known: Option<&'a KnownHub>,
    base: Option<&'a TargetCluster>,
) -> impl Iterator<Item = (&'a KnownHub, &'a TargetCluster, &'a TargetRole)> {
    let pairs = known.zip(base).into_iter();
    pairs.flat_map(|(known, base)| {
        let targets = known.configuration.policy.targets.values();
        let roles = targets.filter_map(|target| Some((target, target.role.as_ref()?)));
        roles
            .filter(|(_, role)| role.same_as == base.name)
            .map(move |(target, role)| (known, target, role))
    })
}

/// Returns the issuer that signs only the tokens of this TargetCluster.
fn managed_issuer(configuration: &Configuration, target: &TargetCluster) -> Option<Issuer> {
    let public_url = configuration.server.public_url.as_str();
    Issuer::new(format!("{public_url}/issuers/{}", target.name)).ok()
}

fn unknown_issuer() -> CommandError {
    CommandError::with_fix(
        "finding the hub's issuer: neither the configuration, the hub's discovery document nor the \
         TargetClusters' statuses say it",
        "give --issuer, or hub.issuer in the configuration",
    )
}

/// A role has no file of its own: its rules are in the entry of its cluster.
fn refuse_role(target: Option<&TargetCluster>) -> Result<(), CommandError> {
    let Some((target, role)) = target.and_then(|it| Some((it, it.role.as_ref()?))) else {
        return Ok(());
    };
    let (base, role) = (&role.same_as, &role.role);
    Err(CommandError::with_fix(
        format!(
            "TargetCluster {} is role {role} at the cluster of TargetCluster {base}, whose file has \
             the rules of both",
            target.name
        ),
        format!("keyferry trust {base}"),
    ))
}

/// The settings of the hub, and the target there, if they are known.
type KnownTarget<'a> = Option<(&'a Configuration, &'a TargetCluster)>;

fn stated_issuer(args: &TrustArgs, known: KnownTarget<'_>) -> Result<Issuer, CommandError> {
    if let Some(issuer) = &args.issuer {
        return Issuer::new(issuer.as_str())
            .map_err(|error| CommandError::new(format!("reading --issuer {issuer:?}: {error}")));
    }
    let known_issuer = known.and_then(|(configuration, target)| match target.issuer {
        TokenIssuer::Hub => configuration.server.hub_issuer.clone(),
        TokenIssuer::Keyferry => managed_issuer(configuration, target),
    });
    known_issuer.ok_or_else(unknown_issuer)
}

fn stated_audience(args: &TrustArgs, known: KnownTarget<'_>) -> Result<Audience, CommandError> {
    match (&args.audience, known) {
        (Some(audience), _) => Audience::new(audience.as_str()).map_err(|error| {
            CommandError::new(format!("reading --audience {audience:?}: {error}"))
        }),
        (None, Some((_, target))) => Ok(target.audience.clone()),
        (None, None) => Err(CommandError::new(
            "finding the target's audience: give --audience, or --config",
        )),
    }
}

fn stated_prefix(args: &TrustArgs, known: KnownTarget<'_>) -> Result<String, CommandError> {
    let prefix = match (&args.prefix, known) {
        (Some(prefix), _) => prefix.clone(),
        (None, Some((configuration, _))) => format!("{}:", configuration.server.hub_name),
        (None, None) => {
            return Err(CommandError::new(
                "finding the prefix: give --prefix, like hub:, or --config",
            ));
        }
    };
    check_prefix(&prefix)
        .map_err(|error| CommandError::new(format!("reading the prefix {prefix:?}: {error}")))?;
    Ok(prefix)
}

fn stated_discovery_url(args: &TrustArgs, known: KnownTarget<'_>) -> Option<String> {
    match (&args.discovery_url, known) {
        (Some(url), _) => Some(url.clone()),
        // A managed issuer has its document at the default path.
        (None, Some((_, target))) if target.issuer == TokenIssuer::Keyferry => None,
        (None, Some((configuration, _))) => Some(configuration.server.public_url.discovery_url()),
        (None, None) => None,
    }
}

/// Notes on values that a target takes literally, and that a user may have meant otherwise.
fn notes_on_flags(args: &TrustArgs, issuer: &Issuer, is_hub_known: bool) -> Vec<String> {
    let (mut notes, url) = (Vec::new(), issuer.as_str());
    if issuer.is_cluster_default() {
        notes.push(format!(
            "{url} is the issuer that kubeadm, k3s and kind give every cluster: a target that has \
             it itself refuses the entry; explain IssuerCollision"
        ));
    }
    if args.issuer.is_some() && url.ends_with('/') {
        notes.push(format!(
            "--issuer {url} ends in a slash: the target accepts only tokens whose iss ends in one \
             too"
        ));
    }
    match args.discovery_url.as_deref() {
        None if !is_hub_known => notes.push(format!(
            "the target reads the keys by {}: give --discovery-url for another place, such as \
             Keyferry's publicURL",
            issuer.discovery_url()
        )),
        Some(place) if has_no_path(place) => notes.push(format!(
            "--discovery-url {place} has no path, and the target reads exactly this URL: Keyferry \
             publishes {}/.well-known/openid-configuration",
            place.trim_end_matches('/')
        )),
        Some(_) | None => {}
    }
    if let Some(prefix) = &args.prefix
        && prefix.ends_with(char::is_alphanumeric)
    {
        notes.push(format!(
            "--prefix {prefix} does not end in a colon: the users are \
             {prefix}system:serviceaccount:NAMESPACE:NAME"
        ));
    }
    notes
}

/// Whether a URL is a host alone.
fn has_no_path(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    rest.split_once('/').is_none_or(|(_, path)| path.is_empty())
}

fn target<'a>(
    configuration: &'a Configuration,
    args: &TrustArgs,
) -> Result<&'a TargetCluster, CommandError> {
    let name = args.target.as_deref().unwrap_or_default();
    let targets = &configuration.policy.targets;
    let found = targets
        .iter()
        .find(|(known, _)| known.as_str() == name)
        .map(|(_, target)| target);
    found.ok_or_else(|| {
        let known: Vec<&str> = targets.keys().map(|known| known.as_str()).collect();
        let place = match configuration.server.objects {
            ObjectSource::File => "the configuration",
            ObjectSource::CustomResources => "the hub",
        };
        let known = if known.is_empty() {
            "no usable TargetCluster".to_owned()
        } else {
            known.join(", ")
        };
        CommandError::new(format!(
            "finding TargetCluster {name:?}: {place} has {known}"
        ))
    })
}

/// Returns the CA certificates of the discovery documents that the status states, encoded again.
fn stated_authority(
    args: &TrustArgs,
    status: &TargetClusterStatus,
    notes: &mut Vec<String>,
) -> Result<Option<String>, CommandError> {
    // The certificates of the status are for the server of the status.
    let elsewhere = args.discovery_url.is_some() || args.issuer.is_some();
    match status.discovery_certificate_authority.as_deref() {
        Some(pem) if !elsewhere => {
            let bundle = CaBundle::from_pem(pem.as_bytes(), SystemClock::start().now().wall);
            let bundle = bundle.map_err(|error| {
                CommandError::with_fix(
                    format!("reading discoveryCertificateAuthority of the status: {error}"),
                    "give the CA certificates by --discovery-ca FILE",
                )
            })?;
            Ok(Some(bundle.to_pem()))
        }
        _ => {
            notes.push(
                "no CA of the discovery documents is known, so the target will trust the roots of \
                 its system for them; give --discovery-ca FILE for a CA of your own"
                    .to_owned(),
            );
            Ok(None)
        }
    }
}

/// The conditions of the status that matter to a target admin who trusts the hub.
fn warnings(status: &TargetClusterStatus) -> Vec<String> {
    let matters = ["LabelsUnprotected", "PairingUnprotected"];
    status
        .conditions
        .iter()
        .filter(|condition| {
            matters.contains(&condition.kind.as_str()) && condition.status == "True"
        })
        .map(|condition| format!("{}: {}", condition.kind, condition.message))
        .collect()
}

/// Returns the allowed ServiceAccounts, from the flags or else from the target's `allow`.
fn allowed(
    args: &TrustArgs,
    known: Option<&KnownHub>,
    target: Option<&TargetCluster>,
    notes: &mut Vec<String>,
) -> Result<BTreeSet<ServiceAccount>, CommandError> {
    if !args.allow.is_empty() {
        return Ok(args.allow.iter().cloned().collect());
    }
    let Some(target) = target else {
        return Err(CommandError::new(
            "finding the allowed ServiceAccounts: give --allow NAMESPACE/NAME, or --config",
        ));
    };
    Ok(allowed_by_target(target, known, notes))
}

/// Returns the ServiceAccounts that `allow` of a target admits now.
fn allowed_by_target(
    target: &TargetCluster,
    known: Option<&KnownHub>,
    notes: &mut Vec<String>,
) -> BTreeSet<ServiceAccount> {
    let mut allow = BTreeSet::new();
    for (index, rule) in target.allow.iter().enumerate() {
        allow.extend(allowed_by_rule(index, rule, known, notes));
    }
    let own = known.and_then(|known| known.configuration.policy.own_namespace.as_ref());
    let before = allow.len();
    allow.retain(|account| Some(&account.namespace) != own);
    if allow.len() < before {
        notes.push(
            "ServiceAccounts of Keyferry's own namespace never get a token: left out".to_owned(),
        );
    }
    allow
}

/// Returns the ServiceAccounts that one rule of `allow` admits now.
fn allowed_by_rule(
    index: usize,
    rule: &AllowRule,
    known: Option<&KnownHub>,
    notes: &mut Vec<String>,
) -> Vec<ServiceAccount> {
    let namespaces: Vec<&Namespace> = match &rule.namespaces {
        NamespaceRule::Named(names) => names.iter().collect(),
        NamespaceRule::Selected(selector) => match known.map(|known| &known.namespaces) {
            Some(Ok(namespaces)) => {
                let selected: Vec<&Namespace> = namespaces
                    .iter()
                    .filter(|(name, labels)| !is_system(name) && selector.matches(labels))
                    .map(|(name, _)| name)
                    .collect();
                notes.push(format!(
                    "allow[{index}] selects namespaces by their labels: {} now; one that gets the \
                     labels later is refused by the target, and one that loses them is admitted, \
                     until this file is written again",
                    selected.len()
                ));
                selected
            }
            Some(Err(why)) => {
                notes.push(format!(
                    "allow[{index}] selects namespaces by their labels, which are unknown: {why}; \
                     it is left out; list all ServiceAccounts with --allow to include it"
                ));
                Vec::new()
            }
            None => Vec::new(),
        },
    };
    let in_namespace = |namespace: &Namespace| {
        let names = rule.service_accounts.iter().cloned();
        let namespace = namespace.clone();
        names.map(move |name| ServiceAccount {
            namespace: namespace.clone(),
            name,
        })
    };
    namespaces.into_iter().flat_map(in_namespace).collect()
}

/// The file of CA certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificatesError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The certificates are not valid.
    #[error("reading the CA certificates from {}: {error}", path.display())]
    Bundle { path: PathBuf, error: CaBundleError },
}

/// Reads the certificates of a file and encodes them again, so that nothing else of the file is
/// printed.
pub(super) fn certificates(path: &Path) -> Result<String, CertificatesError> {
    let bytes = local_file::read(path, "the CA certificates", MAX_CA_BUNDLE_BYTES)?;
    let bundle = CaBundle::from_pem(&bytes, SystemClock::start().now().wall);
    let bundle = bundle.map_err(|error| CertificatesError::Bundle {
        path: path.to_owned(),
        error,
    })?;
    Ok(bundle.to_pem())
}
