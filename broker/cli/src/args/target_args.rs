//! The flags that say how `doctor`, `whoami` and `can-i` reach a target and get a token for it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_api::config::Overrides;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;
use keyferry_client::doctor::authority_text::certificates;
use keyferry_client::doctor::diagnosis::{Problem, TokenEvidence};
use keyferry_client::doctor::flux::{FluxKind, from_config_map, from_flux};
use keyferry_client::doctor::found_kubeconfig;
use keyferry_client::doctor::plan::{Permission, Plan};
use keyferry_client::doctor::start::{from_access, from_secret, from_target};
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::Code;
use keyferry_platform::config_file;
use keyferry_platform::target_connection::TargetAddress;
use secrecy::ExposeSecret;

use crate::args::access::{ServerArgs, Source, context_namespace, source};
use crate::args::address_args::AddressArgs;
use crate::args::impersonation_args::ImpersonationArgs;
use crate::args::start_arg::{StartArg, StartKind};
use crate::args::{TARGET, by_flag, objects_argument};
use crate::command_error::{CommandError, fix_of_client_error};
use crate::local_file::read_small_file;

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
            plan.token_evidence =
                TokenEvidence::Token(read_small_file(path)?.trim_ascii().to_vec());
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
            plan.problem = Some(match fix_of_client_error(&error) {
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
    let pem = read_small_file(path)?;
    match certificates(&pem) {
        Ok(()) => Ok(pem),
        Err(error) => Err(CommandError::new(format!(
            "reading {}: it {error}",
            path.display()
        ))),
    }
}
