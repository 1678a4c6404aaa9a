//! The flags with which `doctor`, `whoami` and `can-i` find a target and a token for it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_api::config::Overrides;
use keyferry_api::name::{AccessName, NameError, Namespace, ObjectName};
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;
use keyferry_client::doctor::authority_text::certificates;
use keyferry_client::doctor::diagnosis::{Problem, TokenEvidence};
use keyferry_client::doctor::flux::{FluxKind, from_config_map, from_flux};
use keyferry_client::doctor::found_kubeconfig;
use keyferry_client::doctor::plan::{Permission, Plan};
use keyferry_client::doctor::resource_attributes::ResourceAttributes;
use keyferry_client::doctor::start::{from_access, from_secret, from_target};
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::Code;
use keyferry_platform::target_connection::TargetAddress;
use keyferry_platform::{config_file, regular_file};
use secrecy::ExposeSecret;

use crate::args::access::{ServerArgs, Source, context_namespace, fix, source};
use crate::args::address_args::AddressArgs;
use crate::args::impersonation_args::ImpersonationArgs;
use crate::args::names::{is_access_kind, with_slash};
use crate::args::{TARGET, by_flag, objects_argument};
use crate::command_error::CommandError;

/// The largest file that is read: a token, a CA bundle or a configuration is smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What to start from: `KIND/NAME` or `KIND/NAMESPACE/NAME`, or an access as `NAME` or
/// `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartArg {
    kind: StartKind,
    /// The namespace, if it is part of the text.
    namespace: Option<Namespace>,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartKind {
    Access,
    Target,
    Secret,
    ConfigMap,
    Kustomization,
    HelmRelease,
}

/// Why a text does not name what to start from.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// It has too many parts.
    #[error(
        "write the name of a TargetAccess, as NAME or NAMESPACE/NAME, or targetaccess/NAME, \
         targetcluster/NAME, secret/NAME, configmap/NAME, kustomization/NAME or helmrelease/NAME"
    )]
    Form,
    /// The namespace is not valid.
    #[error("the namespace {0}")]
    Namespace(NameError),
    /// The name is not valid.
    #[error("the name {0}")]
    Name(#[from] NameError),
}

impl FromStr for StartArg {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        let text = with_slash(text);
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts.as_slice() {
            [name] => (StartKind::Access, None, *name),
            [first, name] => match StartKind::named(first) {
                Some(kind) => (kind, None, *name),
                None => (StartKind::Access, Some(*first), *name),
            },
            [kind, namespace, name] => {
                let kind = StartKind::named(kind).ok_or(StartError::Form)?;
                (kind, Some(*namespace), *name)
            }
            _ => return Err(StartError::Form),
        };
        ObjectName::new(name)?;
        Ok(Self {
            kind,
            namespace: namespace
                .map(Namespace::new)
                .transpose()
                .map_err(StartError::Namespace)?,
            name: name.to_owned(),
        })
    }
}

impl StartKind {
    /// Reads a kind as kubectl does: singular, plural or short name, in any case, and with or
    /// without the group.
    fn named(word: &str) -> Option<Self> {
        if is_access_kind(word) {
            return Some(Self::Access);
        }
        let lower = word.to_ascii_lowercase();
        Some(match lower.split('.').next().unwrap_or_default() {
            "target" | "targetcluster" | "targetclusters" | "tgt" => Self::Target,
            "secret" | "secrets" => Self::Secret,
            "configmap" | "configmaps" | "cm" => Self::ConfigMap,
            "kustomization" | "kustomizations" | "ks" => Self::Kustomization,
            "helmrelease" | "helmreleases" | "hr" => Self::HelmRelease,
            _ => return None,
        })
    }
}

// What `doctor` and `whoami` start from. Not a doc comment, which clap would print.
/// The flags that say which object or target to start from.
#[derive(Args)]
pub(crate) struct StartArgs {
    /// What to start from: a TargetAccess as NAME or NAMESPACE/NAME, or KIND/NAME [default: the
    /// flags alone]
    ///
    /// KIND is targetaccess, targetcluster, secret, configmap, kustomization or helmrelease, or a
    /// short name of these.
    #[arg(value_name = "KIND/NAME")]
    start: Option<StartArg>,
    /// Namespace on the hub [default: that of the hub's context]
    ///
    /// The namespace of the starting object.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses as `kubectl get targetclusters,targetaccesses -A
    /// -o yaml` prints them, instead of the hub's own or --config.
    #[arg(short, long, visible_alias = "objects", value_name = "PATH")]
    filename: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

impl StartArgs {
    /// Builds the plan of what to ask.
    pub(crate) async fn plan(&self) -> Result<Plan, CommandError> {
        let (start, namespace) = (self.start.as_ref(), self.namespace.as_deref());
        self.target
            .plan(start, namespace, self.filename.as_deref())
            .await
    }
}

/// The flags that say how to reach the target and get its token.
#[derive(Args)]
pub(crate) struct TargetArgs {
    /// The key of the Secret [default: value, else value.yaml]
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    secret_key: Option<String>,
    /// Keyferry's configuration file.
    ///
    /// It contains the access.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The hub's issuer, which is the iss of its tokens.
    ///
    /// The target trusts it.
    #[arg(long, value_name = "URL", help_heading = TARGET, hide_short_help = true)]
    issuer: Option<String>,
    /// The target's audience.
    ///
    /// The one that it accepts.
    #[arg(long, value_name = "TEXT", help_heading = TARGET, hide_short_help = true)]
    audience: Option<String>,
    /// Where the target reads the issuer's discovery document [default: where the starting object
    /// says, or below the issuer]
    #[arg(long, value_name = "URL", help_heading = TARGET, hide_short_help = true)]
    discovery_url: Option<String>,
    /// CA certificates of the server of the discovery document [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = TARGET, hide_short_help = true)]
    discovery_ca: Option<PathBuf>,
    /// The target's address.
    #[arg(long, alias = "target", value_name = "URL", help_heading = TARGET)]
    target_address: Option<String>,
    /// CA certificates of the target.
    #[arg(long, value_name = "FILE", help_heading = TARGET, hide_short_help = true)]
    target_certificate_authority: Option<PathBuf>,
    /// The name in the target's certificate, if it differs from the address.
    #[arg(long, value_name = "NAME", help_heading = TARGET, hide_short_help = true)]
    tls_server_name: Option<String>,
    /// An issuer of the target's own ServiceAccount tokens (may be repeated)
    ///
    /// It is --service-account-issuer of the target's apiserver.
    #[arg(long = "own-issuer", value_name = "URL", help_heading = TARGET, hide_short_help = true)]
    target_issuer: Vec<String>,
    /// The token for the target.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    target_token_file: Option<PathBuf>,
    /// The hub's name [default: the one of --config]
    ///
    /// Every user name at the target must begin with it and a colon.
    #[arg(long, value_name = "NAME", help_heading = TARGET, hide_short_help = true)]
    hub_name: Option<String>,
    /// Also send tokens to a target that a tenant names and that is not a listed TargetCluster.
    ///
    /// A tenant's Secret or ConfigMap names it.
    #[arg(long, help_heading = TARGET, hide_short_help = true)]
    allow_unlisted_target: bool,
    #[command(flatten)]
    addresses: AddressArgs,
    #[command(flatten)]
    impersonation: ImpersonationArgs,
    /// Which server an access's kubeconfig is fetched from, in the place of --config, and as whom.
    #[command(flatten)]
    server: ServerArgs,
}

impl TargetArgs {
    /// Builds the plan of what to ask. Flags override the start. `objects` is a file with objects
    /// of the hub.
    pub(crate) async fn plan(
        &self,
        start: Option<&StartArg>,
        namespace: Option<&str>,
        objects: Option<&Path>,
    ) -> Result<Plan, CommandError> {
        self.check_server_flags(start, objects)?;
        let objects = objects_argument::source(self.config(), objects)?;
        if start.is_none() && by_flag(namespace.map(OsStr::new), "KEYFERRY_NAMESPACE") {
            return Err(CommandError::with_fix(
                "-n is the namespace on the hub of what is started from, and nothing is",
                "name it as KIND/NAME, or give --target-namespace for a namespace at the target",
            ));
        }
        let mut plan = match start {
            Some(start) => self.started(start, namespace, &objects).await?,
            None => Plan::named("flags"),
        };
        let hub = self.server.hub.access();
        plan.guard = self.addresses.guard(hub.clone());
        plan.own_documents = self.own_documents(&hub).await;
        self.override_issuer(&mut plan)?;
        self.override_target(&mut plan)?;
        if let Some(path) = &self.target_token_file {
            plan.token_evidence = TokenEvidence::Token(file(path)?.trim_ascii().to_vec());
            plan.to_issue = None;
        }
        plan.impersonate = self.impersonation.user()?.or(plan.impersonate);
        let permission = Permission {
            unlisted_target: self.allow_unlisted_target,
            audience: self.audience.is_some(),
        };
        Ok(plan.admit(&objects, &hub, permission).await)
    }

    /// Takes the flags about the issuer, its documents and its tokens.
    fn override_issuer(&self, plan: &mut Plan) -> Result<(), CommandError> {
        plan.issuer_stated = self.issuer.is_some();
        plan.issuer = self.issuer.clone().or(plan.issuer.take());
        let stated_name = self.hub_name.clone().or(plan.hub_name.take());
        plan.hub_name = stated_name.or_else(|| self.configured_hub_name());
        if let Some(audience) = &self.audience {
            plan.audiences = vec![audience.clone()];
            if let Some(order) = &mut plan.to_issue {
                order.audience = Audience::new(audience.as_str())
                    .map_err(|error| CommandError::new(format!("the audience {error}")))?;
            }
        }
        plan.discovery_url = self.discovery_url.clone().or(plan.discovery_url.take());
        if let Some(path) = &self.discovery_ca {
            plan.discovery_ca = Some(authority_file(path)?);
        }
        plan.own_issuers.extend(self.target_issuer.iter().cloned());
        Ok(())
    }

    fn configured_hub_name(&self) -> Option<String> {
        let path = self.config.as_deref()?;
        let configuration = config_file::read_config_file(path, Overrides::of_a_reader());
        Some(configuration.ok()?.server.hub_name)
    }

    /// Takes the flags about the target's address and CA.
    fn override_target(&self, plan: &mut Plan) -> Result<(), CommandError> {
        if let Some(url) = &self.target_address {
            // Replaces the whole target: a CA or proxy that a tenant wrote must not apply to the
            // user's own address.
            let known = plan.target.take().filter(|_| !plan.target_is_tenants);
            plan.target = Some(TargetAddress {
                url: url.clone(),
                ca_pem: known.and_then(|target| target.ca_pem),
                tls_server_name: self.tls_server_name.clone(),
                proxy_url: None,
            });
            plan.target_is_tenants = false;
            plan.guard = plan.guard.clone().with_own(url);
        }
        if let (Some(target), Some(path)) = (&mut plan.target, &self.target_certificate_authority) {
            target.ca_pem = Some(authority_file(path)?);
        }
        Ok(())
    }

    /// Returns the URLs of documents that the user names, by flags or by the hub's kubeconfig.
    async fn own_documents(&self, hub: &HubAccess) -> Vec<String> {
        let flags = [&self.issuer, &self.discovery_url].into_iter().flatten();
        let hub = hub.config().await.ok();
        flags
            .cloned()
            .chain(hub.map(|config| config.cluster_url.to_string()))
            .collect()
    }

    async fn started(
        &self,
        start: &StartArg,
        namespace: Option<&str>,
        objects: &ConfigurationSource,
    ) -> Result<Plan, CommandError> {
        let hub = self.server.hub.access();
        if start.kind == StartKind::Target {
            return Ok(from_target(&start.name, objects, &hub).await);
        }
        let namespace = match (&start.namespace, namespace) {
            (Some(named), _) => named.clone(),
            (None, Some(flag)) => checked_namespace(flag)?,
            (None, None) => {
                let of_context = context_namespace(&hub).await.ok_or_else(|| {
                    CommandError::with_fix(
                        "the namespace of what is started from is missing",
                        "give -n NAMESPACE",
                    )
                })?;
                checked_namespace(&of_context)?
            }
        };
        Ok(match start.kind {
            StartKind::Target => Plan::named("flags"),
            StartKind::ConfigMap => from_config_map(&hub, &namespace, &start.name).await,
            StartKind::Access => self.access(namespace, &start.name, objects).await?,
            StartKind::Secret => {
                from_secret(&hub, &namespace, &start.name, self.secret_key.as_deref()).await
            }
            StartKind::Kustomization => {
                from_flux(&hub, FluxKind::Kustomization, &namespace, &start.name).await
            }
            StartKind::HelmRelease => {
                from_flux(&hub, FluxKind::HelmRelease, &namespace, &start.name).await
            }
        })
    }

    async fn access(
        &self,
        namespace: Namespace,
        name: &str,
        objects: &ConfigurationSource,
    ) -> Result<Plan, CommandError> {
        let name = ObjectName::new(name)
            .map_err(|error| CommandError::new(format!("the access's name {error}")))?;
        let access = AccessName { namespace, name };
        let direct = Direct {
            source: objects.clone(),
            hub: self.server.hub.access(),
        };
        if matches!(objects, ConfigurationSource::Objects(_)) {
            return Ok(from_access(&access, &direct).await);
        }
        let source = source(access.clone(), &self.server, self.config())?;
        source.note_hub_alone();
        if let Some(url) = source.server() {
            return Ok(from_server(&source, format!("access/{access} at {url}")).await);
        }
        Ok(from_access(&access, &direct).await)
    }

    /// Returns the configuration file, unless a flag names a server and only an environment
    /// variable names the file.
    fn config(&self) -> Option<&PathBuf> {
        let server = by_flag(
            self.server.server.as_deref().map(OsStr::new),
            "KEYFERRY_SERVER",
        );
        let file = by_flag(
            self.config.as_deref().map(Path::as_os_str),
            "KEYFERRY_CONFIG",
        );
        self.config.as_ref().filter(|_| file || !server)
    }

    /// Refuses caller flags if no server is asked: the user then meant the flags of the target.
    fn check_server_flags(
        &self,
        start: Option<&StartArg>,
        objects: Option<&Path>,
    ) -> Result<(), CommandError> {
        let is_access = start.is_some_and(|start| start.kind == StartKind::Access);
        if is_access && self.config().is_none() && objects.is_none() {
            return Ok(());
        }
        let path = |path: &Option<PathBuf>, variable| {
            by_flag(path.as_deref().map(Path::as_os_str), variable)
        };
        let flags = [
            (
                "--server",
                by_flag(
                    self.server.server.as_deref().map(OsStr::new),
                    "KEYFERRY_SERVER",
                ),
            ),
            (
                "--token-file",
                path(&self.server.token_file, "KEYFERRY_TOKEN_FILE"),
            ),
            (
                "--certificate-authority",
                path(
                    &self.server.certificate_authority,
                    "KEYFERRY_CERTIFICATE_AUTHORITY",
                ),
            ),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(CommandError::with_fix(
                format!(
                    "{flag} is for a Keyferry server, and only access/NAME without a file is \
                     fetched from one"
                ),
                "the target's own flags are --target-token-file and --target-certificate-authority",
            )),
        }
    }
}

/// Builds a plan from the kubeconfig that a server answers. Its refusal is the result of a hop, and
/// the other hops are reported beside it.
async fn from_server(source: &Source, start: String) -> Plan {
    let mut plan = Plan::named(start);
    match source.kubeconfig().await {
        Ok(kubeconfig) => match found_kubeconfig::read(kubeconfig.expose_secret()) {
            Ok(found) => plan.take(found),
            Err(error) => {
                let detail = format!("the server's kubeconfig: {error}");
                plan.problem = Some(Problem::new(Code::KubeconfigUnusable, detail));
            }
        },
        Err(error) => {
            let problem = Problem::new(Code::StartUnread, error.to_string());
            plan.problem = Some(match fix(&error) {
                Some(fix) => problem.with_fix(fix),
                None => problem,
            });
        }
    }
    plan
}

fn checked_namespace(text: &str) -> Result<Namespace, CommandError> {
    Namespace::new(text).map_err(|error| CommandError::new(format!("the namespace {error}")))
}

/// Reads a file with CA certificates.
fn authority_file(path: &Path) -> Result<Vec<u8>, CommandError> {
    let pem = file(path)?;
    match certificates(&pem) {
        Ok(()) => Ok(pem),
        Err(error) => Err(CommandError::new(format!(
            "reading {}: it {error}",
            path.display()
        ))),
    }
}

/// Reads a file, at most 1 MiB.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, CommandError> {
    regular_file::read_regular_file(path, MAX_FILE_BYTES)
        .map_err(|error| CommandError::new(format!("reading {}: {error}", path.display())))
}

/// Parses `VERB/RESOURCE[.GROUP]` into the attributes of a review.
pub(crate) fn need(
    text: &str,
    namespace: Option<&str>,
) -> Result<ResourceAttributes, CommandError> {
    let (verb, resource) = text
        .split_once('/')
        .ok_or_else(|| CommandError::new(format!("reading {text:?}: write VERB/RESOURCE")))?;
    Ok(attributes(verb, resource, namespace))
}

/// Parses the attributes of a review as `kubectl auth can-i` does:
/// `RESOURCE[.GROUP][/SUBRESOURCE]`.
pub(crate) fn attributes(
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    ResourceAttributes {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        group: group.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{StartArg, StartKind, attributes, need};

    #[test]
    fn a_start_is_a_kind_and_a_name() {
        for good in [
            "access/a",
            "secret/b",
            "ks/c",
            "helmrelease/d",
            "targetaccess/a",
            "tga/a",
            "targetclusters/a",
            "tgt/a",
            "cm/a",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for good in [
            "TargetAccess/a",
            "targetaccesses.keyferry.dev/a",
            "configmap/a",
            "HelmRelease/d",
        ] {
            assert!(good.parse::<StartArg>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "secret/",
            "/a",
            "secret/a/b/c",
            "pod/a/b",
            "secret/A b",
            "A/b",
        ] {
            assert!(bad.parse::<StartArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_access_is_named_as_in_every_command() {
        let parsed = |text: &str| text.parse::<StartArg>().unwrap();
        let named = |text: &str| {
            let start = parsed(text);
            let namespace = start.namespace.map(|namespace| namespace.to_string());
            (start.kind, namespace, start.name)
        };
        let prod = |namespace: Option<&str>| {
            let namespace = namespace.map(str::to_owned);
            (StartKind::Access, namespace, "prod".to_owned())
        };
        assert_eq!(named("prod"), prod(None));
        assert_eq!(named("targetaccess/prod"), prod(None));
        for text in [
            "tenant-a/prod",
            "tenant-a:prod",
            "targetaccess/tenant-a/prod",
            "tga/tenant-a/prod",
        ] {
            assert_eq!(named(text), prod(Some("tenant-a")), "{text}");
        }
        let secret = named("secret/tenant-a/prod");
        assert_eq!(
            (secret.0, secret.1.as_deref()),
            (StartKind::Secret, Some("tenant-a"))
        );
    }

    #[test]
    fn resources_are_read_as_kubectl_does() {
        let scale = attributes("patch", "deployments.apps/scale", Some("n"));
        assert_eq!(
            (scale.resource.as_str(), scale.group.as_str()),
            ("deployments", "apps")
        );
        assert_eq!(
            (scale.subresource.as_str(), scale.namespace.as_str()),
            ("scale", "n")
        );
        assert_eq!(need("get/pods", None).unwrap().verb, "get");
        assert!(need("get", None).is_err());
    }
}
