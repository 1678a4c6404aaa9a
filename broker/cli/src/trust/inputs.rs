//! Collects the inputs of the target rules: from the flags, else from Keyferry's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::config::{
    AllowRule, Configuration, NamespaceRule, ObjectSource, TargetCluster, TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::Namespace;
use keyferry_api::service_account::ServiceAccount;
use keyferry_api::status::TargetClusterStatus;
use keyferry_client::ClientError;
use keyferry_core::authorise::is_system;
use keyferry_keys::ca_bundle::{CaBundle, CaBundleError, MAX_CA_BUNDLE_BYTES};
use keyferry_platform::clock::{Clock, SystemClock};

use super::target_rules::{TargetRules, check_prefix};
use super::{TrustArgs, local_file};
use crate::command_error::CommandError;
use crate::local_file::ReadError;

/// The default of `tokenLifetime.max`.
const MAX_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The target rules, and notes about them.
pub(super) struct TrustInputs {
    pub(super) rules: TargetRules,
    /// The target's own issuer, if the configuration states it.
    pub(super) own_issuer: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Keyferry's settings and objects, for values that no flag gives.
#[derive(Debug)]
pub(crate) struct KnownHub {
    pub(crate) configuration: Configuration,
    /// The target's status, if the objects are on the hub.
    pub(crate) status: Option<TargetClusterStatus>,
    /// The labels of the hub's namespaces, or why they are unknown.
    pub(crate) namespaces: Result<BTreeMap<Namespace, BTreeMap<String, String>>, UnknownLabels>,
}

/// Why the labels of the hub's namespaces are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownLabels {
    /// The objects are in a configuration file.
    #[error("the hub is not read for objects of a file")]
    OfFile,
    /// The hub's objects are in a file.
    #[error("the hub is not read with -f")]
    OfObjectsFile,
    /// The hub cannot be read.
    #[error(transparent)]
    Hub(#[from] ClientError),
}

impl KnownHub {
    /// Whether the target is no Kubernetes cluster.
    pub(super) fn is_relying_party(&self, name: &str) -> bool {
        let mut targets = self.configuration.policy.targets.iter();
        targets.any(|(known, target)| known.as_str() == name && !target.is_cluster())
    }
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
    let status = known.and_then(|known| known.status.as_ref());
    let mut notes = status.map(warnings).unwrap_or_default();
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
        audience: audience.as_str().to_owned(),
        prefix,
        allow: allowed(
            args,
            known,
            known_target.map(|(_, target)| target),
            &mut notes,
        )?,
        max_lifetime: args
            .max_lifetime
            .or(known_target.map(|(_, target)| target.lifetime.max))
            .unwrap_or(MAX_LIFETIME),
    };
    let own_issuer = known_target
        .and_then(|(_, target)| target.target_issuer.as_ref())
        .map(|issuer| issuer.as_str().to_owned());
    Ok(TrustInputs {
        rules,
        own_issuer,
        notes,
    })
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
        TokenIssuer::Keyferry => {
            let public_url = configuration.server.public_url.as_str();
            Issuer::new(format!("{public_url}/issuers/{}", target.name)).ok()
        }
    });
    known_issuer.ok_or_else(|| {
        CommandError::with_fix(
            "finding the hub's issuer: neither the configuration, the hub's discovery document \
             nor the TargetClusters' statuses say it",
            "give --issuer, or hub.issuer in the configuration",
        )
    })
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
    if allow.is_empty() {
        return Err(CommandError::new(format!(
            "finding the allowed ServiceAccounts: allow of TargetCluster {} names no \
             ServiceAccount; give --allow",
            target.name
        )));
    }
    Ok(allow)
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
