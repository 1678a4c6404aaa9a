//! The flags that name an access, a server and the caller. Gets a token or a kubeconfig through the
//! server, or directly by a configuration file or the hub's objects, which may be in a file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_api::audience::Audience;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_client::caller_token::{self, CallerProof, CallerTokenSource};
use keyferry_client::ci_token::{CiTokenSource, describe_claims};
use keyferry_client::client_certificate::ClientCertificateFiles;
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::direct::Direct;
use keyferry_client::server::ServerAddress;
use keyferry_client::{ClientError, UsableToken};
use keyferry_core::received_kubeconfig::{self, ReceivedKubeconfig};
use keyferry_hub::client::HubAccess;
use secrecy::{ExposeSecret, SecretString};

use crate::args::names::{access_name, lacks_namespace};
use crate::args::{HubArgs, SERVER, by_flag, objects_argument, only_access};
use crate::command_error::CommandError;
use crate::ui;

/// Which access, and how to get at it.
#[derive(Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    named: AccessNameArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Keyferry's configuration file.
    ///
    /// Work without a server, by this file and your own rights on the hub. Without a server and
    /// without this file, the objects of the hub decide.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses as `kubectl get targetclusters,targetaccesses -A
    /// -o yaml` prints them. They decide without a server, and the hub mints with your own rights.
    /// Tokens go to the addresses of this file.
    #[arg(short, long, visible_alias = "objects", value_name = "PATH")]
    filename: Option<PathBuf>,
}

/// Which access.
#[derive(Args)]
pub(crate) struct AccessNameArgs {
    /// The TargetAccess, as NAME with -n, or as NAMESPACE/NAME [default: the namespace's only one]
    ///
    /// A name without a namespace is one of the namespace of the hub's context.
    access: Option<String>,
    /// Namespace on the hub [default: that of the hub's context]
    ///
    /// The namespace of the access.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// Where a server is, and who calls it.
#[derive(Args, Clone)]
pub(crate) struct ServerArgs {
    /// The Keyferry server's https URL.
    #[arg(long, env = "KEYFERRY_SERVER", value_name = "URL", help_heading = SERVER)]
    pub(crate) server: Option<String>,
    /// CA certificates of the Keyferry server [default: the system's]
    #[arg(long, env = "KEYFERRY_CERTIFICATE_AUTHORITY", value_name = "FILE", help_heading = SERVER)]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// The caller's own token, for the Keyferry server.
    #[arg(long, env = "KEYFERRY_TOKEN_FILE", value_name = "FILE", help_heading = SERVER)]
    pub(crate) token_file: Option<PathBuf>,
    /// The caller's own token is the id-token of this job of GitHub Actions.
    ///
    /// The job needs permissions: id-token: write.
    #[arg(long, help_heading = SERVER, conflicts_with_all = ["token_file", "token_env"], hide_short_help = true)]
    pub(crate) github_oidc: bool,
    /// The caller's own token is in this environment variable.
    ///
    /// GitLab's id_tokens write it there.
    #[arg(long, value_name = "NAME", help_heading = SERVER, conflicts_with = "token_file", hide_short_help = true)]
    pub(crate) token_env: Option<String>,
    /// A ServiceAccount of the hub.
    ///
    /// Mint the caller's token for it, in the access's namespace, through a hub kubeconfig.
    #[arg(long, env = "KEYFERRY_SERVICE_ACCOUNT", value_name = "NAME", help_heading = SERVER, hide_short_help = true)]
    pub(crate) service_account: Option<String>,
    /// The audience of the caller's token [default: keyferry.dev]
    ///
    /// It is callerAudience of the server.
    #[arg(long, env = "KEYFERRY_CALLER_AUDIENCE", value_name = "TEXT", help_heading = SERVER, hide_short_help = true)]
    pub(crate) caller_audience: Option<String>,
    /// The caller's client certificate instead of a token, as PEM.
    ///
    /// Its own certificate first, then those of intermediate CAs.
    #[arg(long, env = "KEYFERRY_CLIENT_CERTIFICATE", value_name = "FILE", help_heading = SERVER, hide_short_help = true)]
    pub(crate) client_certificate: Option<PathBuf>,
    /// The private key of --client-certificate, as PEM without a password.
    #[arg(long, env = "KEYFERRY_CLIENT_KEY", value_name = "FILE", help_heading = SERVER, hide_short_help = true)]
    pub(crate) client_key: Option<PathBuf>,
    /// Your own file with the server, its CA and your token's file [default: keyferry/client.yaml
    /// of $XDG_CONFIG_HOME, then /etc]
    ///
    /// The command credential reads only the files in ~/.config/keyferry and /etc/keyferry.
    #[arg(long, env = "KEYFERRY_CLIENT_CONFIG", value_name = "FILE", help_heading = SERVER, hide_short_help = true)]
    pub(crate) client_config: Option<PathBuf>,
    #[command(flatten)]
    /// Where the hub is.
    pub(crate) hub: HubArgs,
}

/// The default audience of callers' tokens.
pub(crate) const CALLER_AUDIENCE: &str = "keyferry.dev";

/// The access that the arguments name, and how to get its token.
pub(crate) struct Source {
    /// The access.
    pub(crate) access: AccessName,
    route: ExchangeRoute,
}

enum ExchangeRoute {
    Server(ServerAddress, CallerTokenSource),
    Direct(Direct),
}

impl AccessArgs {
    /// Returns the access that the arguments name, or the only one of the namespace, and how to get
    /// its token.
    ///
    /// # Errors
    /// Flags contradict each other, a file cannot be read, or no single access is found.
    pub(crate) async fn source(&self) -> Result<Source, CommandError> {
        let direct = self.direct()?;
        let route = route(&self.server, direct.clone())?;
        let hub = self.server.hub.access();
        let access = match self.named.name_on(&hub).await? {
            Some(access) => access,
            None => {
                // Where a server is asked, it is the hub that lists the accesses.
                let objects = direct.as_ref().unwrap_or(&ConfigurationSource::Hub);
                let namespace = self.named.namespace.as_deref();
                only_access::find(namespace, objects, &hub).await?
            }
        };
        let source = Source { access, route };
        source.note_hub_alone();
        Ok(source)
    }

    /// Returns where the objects are, if a flag names a file.
    fn direct(&self) -> Result<Option<ConfigurationSource>, CommandError> {
        if self.config.is_none() && self.filename.is_none() {
            return Ok(None);
        }
        objects_argument::source(self.config.as_ref(), self.filename.as_deref()).map(Some)
    }

    /// Returns the client file that a flag names.
    pub(crate) fn client_config(&self) -> Option<&Path> {
        self.server.client_config.as_deref()
    }

    /// Returns the access and the server flags, for operations that need a server.
    pub(crate) async fn through_server(&self) -> Result<(AccessName, &ServerArgs), CommandError> {
        let files = [
            (self.config.is_some(), "--config"),
            (self.filename.is_some(), "-f"),
        ];
        if let Some((_, flag)) = files.iter().find(|(given, _)| *given) {
            return Err(CommandError::with_fix(
                format!("{flag} and --exec are both given"),
                "the exec plugin asks a server; give --server URL",
            ));
        }
        let named = self.named.name_on(&self.server.hub.access()).await?;
        let access = named.ok_or_else(|| {
            CommandError::with_fix(
                "no access is named",
                "write NAMESPACE/NAME after kubeconfig",
            )
        })?;
        Ok((access, &self.server))
    }
}

/// Chooses how to reach one access.
pub(crate) fn source(
    access: AccessName,
    server: &ServerArgs,
    config: Option<&PathBuf>,
) -> Result<Source, CommandError> {
    let route = route(server, config.cloned().map(ConfigurationSource::File))?;
    Ok(Source { access, route })
}

/// Chooses how to reach an access: by a file, else by a server from the flags or from the user's own
/// file, else by the objects of the hub.
fn route(
    server: &ServerArgs,
    file: Option<ConfigurationSource>,
) -> Result<ExchangeRoute, CommandError> {
    if let Some(source) = file {
        if by_flag(server.server.as_deref().map(OsStr::new), "KEYFERRY_SERVER") {
            let flag = match source {
                ConfigurationSource::Objects(_) => "-f",
                ConfigurationSource::File(_) | ConfigurationSource::Hub => "--config",
            };
            return Err(CommandError::with_fix(
                format!("both --server and {flag} are given"),
                "keep --server to ask a server, or the file to mint with your own rights on the \
                 hub",
            ));
        }
        let hub = server.hub.access();
        return Ok(ExchangeRoute::Direct(Direct { source, hub }));
    }
    Ok(match server.reach()? {
        Some(reach) => ExchangeRoute::Server(reach.server, reach.caller),
        None if server.names_a_caller() => {
            return Err(CommandError::with_fix(
                "flags or variables for a Keyferry server are given, and no server",
                "give --server URL; or leave them out, to mint with your own rights on the hub",
            ));
        }
        None => ExchangeRoute::Direct(Direct {
            source: ConfigurationSource::Hub,
            hub: server.hub.access(),
        }),
    })
}

impl ServerArgs {
    /// Whether a flag or its variable only has a meaning for a server.
    fn names_a_caller(&self) -> bool {
        self.token_file.is_some()
            || self.ci().is_some()
            || self.service_account.is_some()
            || self.certificate_authority.is_some()
            || self.caller_audience.is_some()
            || self.client_certificate.is_some()
            || self.client_key.is_some()
    }

    /// Returns the files of the caller's certificate, if the flags name them.
    fn client_certificate(&self) -> Result<Option<ClientCertificateFiles>, CommandError> {
        let (certificate, key) = match (&self.client_certificate, &self.client_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            _ => {
                return Err(CommandError::with_fix(
                    "only one of --client-certificate and --client-key is given",
                    "give both",
                ));
            }
        };
        let names_a_token = self.token_file.is_some() || self.ci().is_some();
        if names_a_token || self.service_account.is_some() {
            return Err(CommandError::with_fix(
                "a client certificate and a caller token are both given",
                "the server refuses a caller with two proofs; keep --client-certificate, or the \
                 flag of the token",
            ));
        }
        Ok(Some(ClientCertificateFiles { certificate, key }))
    }

    /// Returns where the id-token of a CI job is, if a flag says so.
    pub(crate) fn ci(&self) -> Option<CiTokenSource> {
        if self.github_oidc {
            return Some(CiTokenSource::GithubOidc { host: None });
        }
        self.token_env.clone().map(CiTokenSource::Variable)
    }

    /// Returns the server that the flags name, and the source of the caller's token for it.
    pub(crate) fn calls(&self) -> Result<Option<(ServerAddress, CallerTokenSource)>, CommandError> {
        let Some(url) = self.server.clone() else {
            return Ok(None);
        };
        let address = ServerAddress {
            url,
            certificate_authority: self.certificate_authority.clone(),
        };
        let wrong = |what: &str, error: &dyn std::fmt::Display| {
            CommandError::with_fix(format!("{what} {error}"), "see keyferry token --help")
        };
        let audience = self.caller_audience.as_deref().unwrap_or(CALLER_AUDIENCE);
        let audience =
            Audience::new(audience).map_err(|error| wrong("--caller-audience", &error))?;
        let service_account = self
            .service_account
            .as_deref()
            .map(ObjectName::new)
            .transpose();
        let service_account =
            service_account.map_err(|error| wrong("--service-account", &error))?;
        let hub = self.hub.access();
        let caller = CallerTokenSource {
            token_file: self.token_file.clone(),
            ci: self.ci(),
            service_account,
            audience: Some(audience),
            hub,
            client_certificate: self.client_certificate()?,
        };
        Ok(Some((address, caller)))
    }
}

impl AccessNameArgs {
    /// Returns the access, if the arguments name one.
    pub(crate) fn name(&self) -> Result<Option<AccessName>, CommandError> {
        self.access
            .as_deref()
            .map(|access| access_name(access, self.namespace.as_deref()))
            .transpose()
    }

    /// As [`Self::name`], for a command that has a hub: a name without a namespace is one of the
    /// namespace of the hub's context, as in kubectl.
    pub(crate) async fn name_on(
        &self,
        hub: &HubAccess,
    ) -> Result<Option<AccessName>, CommandError> {
        let Some(access) = self.access.as_deref() else {
            return Ok(None);
        };
        let mut namespace = self.namespace.clone();
        if namespace.is_none() && lacks_namespace(access) {
            namespace = context_namespace(hub).await;
        }
        access_name(access, namespace.as_deref()).map(Some)
    }
}

/// Returns the namespace of the hub's context; `None` without a kubeconfig that can be used.
pub(crate) async fn context_namespace(hub: &HubAccess) -> Option<String> {
    let config = hub.config().await.ok()?;
    Some(config.default_namespace)
}

impl Source {
    /// Tells the user that no server is asked, if none is named.
    pub(crate) fn note_hub_alone(&self) {
        if self.is_hub_alone() {
            ui::note(
                "no server is named: the hub's objects decide, and a token is minted with your \
                 own rights on the hub",
            );
        }
    }

    /// Whether neither a server nor a configuration file is named, so that the objects of the hub
    /// decide.
    pub(crate) fn is_hub_alone(&self) -> bool {
        matches!(&self.route, ExchangeRoute::Direct(direct) if direct.source == ConfigurationSource::Hub)
    }

    /// Returns the server to ask, if there is one.
    pub(crate) fn server(&self) -> Option<&str> {
        match &self.route {
            ExchangeRoute::Server(server, _) => Some(&server.url),
            ExchangeRoute::Direct(_) => None,
        }
    }

    /// Fetches the kubeconfig from the server, or makes it with the user's rights on the hub.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) async fn kubeconfig(&self) -> Result<SecretString, ClientError> {
        match &self.route {
            ExchangeRoute::Server(server, caller) => {
                server.check()?;
                let proof =
                    caller_token::find_caller_proof(caller, self.access.namespace.as_str()).await?;
                let answered = server.fetch_kubeconfig(&proof, &self.access).await;
                answered.inspect_err(|error| note_job(error, caller, &proof))
            }
            ExchangeRoute::Direct(direct) => direct.mint_kubeconfig(&self.access).await,
        }
    }

    /// Fetches and parses the kubeconfig.
    pub(crate) async fn received(&self) -> Result<ReceivedKubeconfig, ClientError> {
        let text = self.kubeconfig().await?;
        Ok(received_kubeconfig::parse_kubeconfig(
            text.expose_secret(),
            &self.access,
        )?)
    }

    /// Fetches a token from the server, or mints it with the user's rights on the hub.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) async fn token(&self) -> Result<UsableToken, ClientError> {
        match &self.route {
            ExchangeRoute::Server(server, caller) => {
                server.check()?;
                let proof =
                    caller_token::find_caller_proof(caller, self.access.namespace.as_str()).await?;
                let answered = server.exchange_for_token(&proof, &self.access).await;
                answered.inspect_err(|error| note_job(error, caller, &proof))
            }
            ExchangeRoute::Direct(direct) => direct.mint_token(&self.access).await,
        }
    }
}

/// Tells a refused CI job what its id-token says. Only the server's audit record says which claim
/// differs, because the answer is the same for every cause.
fn note_job(error: &ClientError, caller: &CallerTokenSource, proof: &CallerProof) {
    let refused =
        matches!(error, ClientError::Answer { status, .. } if (400..500).contains(status));
    let (true, Some(_), CallerProof::Token(token)) = (refused, &caller.ci, proof) else {
        return;
    };
    if let Some(claims) = describe_claims(token) {
        ui::note(&format!(
            "the id-token of this job has {claims}; the rules of the server's externalIssuers must \
             admit exactly these"
        ));
    }
}
