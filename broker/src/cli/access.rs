//! `keyferry token` and `keyferry kubeconfig`: through a server, or directly by a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use keyferry_core::audience::Audience;
use keyferry_core::name::{AccessName, Namespace, ObjectName};
use keyferry_core::received_kubeconfig::{self, ReceivedKubeconfig};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::{HubArgs, ui};
use crate::client::caller_token::{self, CallerTokenSource};
use crate::client::direct::Direct;
use crate::client::server::ServerAddress;
use crate::client::{ClientError, UsableToken};

/// Which access, and how to get at it.
#[derive(Args)]
pub(super) struct AccessArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Work without a server, by this configuration file and your own rights on the hub.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Which access, where the client may name it instead.
#[derive(Args)]
pub(super) struct MaybeNamedArgs {
    /// The TargetAccess, as NAME with -n, or as NAMESPACE/NAME [default: clusterName of the cluster's exec extension].
    access: Option<String>,
    /// Its namespace.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
}

/// Which access.
#[derive(Args)]
pub(super) struct NamedArgs {
    /// The TargetAccess, as NAME with -n, or as NAMESPACE/NAME.
    access: String,
    /// Its namespace.
    #[arg(short, long, env = "KEYFERRY_NAMESPACE")]
    namespace: Option<String>,
}

/// Where a server is, and who calls it.
#[derive(Args, Clone)]
pub(super) struct ServerArgs {
    /// The Keyferry server's https URL.
    #[arg(long, env = "KEYFERRY_SERVER", value_name = "URL")]
    pub(super) server: Option<String>,
    /// CA certificates of that server.
    #[arg(long, env = "KEYFERRY_CERTIFICATE_AUTHORITY", value_name = "FILE")]
    pub(super) certificate_authority: Option<PathBuf>,
    /// The caller's own token.
    #[arg(long, env = "KEYFERRY_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Mint the caller's token for this ServiceAccount of the access's namespace, through a hub kubeconfig.
    #[arg(long, env = "KEYFERRY_SERVICE_ACCOUNT", value_name = "NAME")]
    pub(super) service_account: Option<String>,
    /// The audience of such a token [default: keyferry.dev].
    #[arg(long, env = "KEYFERRY_CALLER_AUDIENCE")]
    pub(super) caller_audience: Option<String>,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

#[derive(Args)]
pub(super) struct TokenArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = TokenOutput::Token)]
    output: TokenOutput,
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenOutput {
    /// The token alone.
    Token,
    /// The token and how long it may be used.
    Json,
}

/// The audience of callers' tokens where nothing else is said.
pub(super) const CALLER_AUDIENCE: &str = "keyferry.dev";

/// What the arguments mean.
pub(super) struct Source {
    pub(super) access: AccessName,
    way: Way,
}

enum Way {
    Server(ServerAddress, CallerTokenSource),
    Direct(Direct),
}

/// A mistake in the arguments, and how to mend it.
pub(super) struct UsageError {
    pub(super) problem: String,
    pub(super) hint: &'static str,
}

impl AccessArgs {
    /// Those for a server and a caller's token in a file, or in the projected volume.
    pub(super) fn through(
        access: &AccessName,
        server: String,
        certificate_authority: Option<PathBuf>,
        token_file: Option<PathBuf>,
        hub: HubArgs,
    ) -> AccessArgs {
        AccessArgs {
            named: NamedArgs { access: access.to_string(), namespace: None },
            server: ServerArgs {
                server: Some(server),
                certificate_authority,
                token_file,
                service_account: None,
                caller_audience: None,
                hub,
            },
            config: None,
        }
    }

    pub(super) fn source(&self) -> Result<Source, UsageError> {
        source(self.named.name()?, &self.server, self.config.as_ref())
    }

    /// The access and the flags for a server, for what a server alone can do.
    pub(super) fn through_server(&self) -> Result<(AccessName, &ServerArgs), UsageError> {
        if self.config.is_some() {
            let hint = "the exec plugin asks a server; give --server URL";
            return Err(UsageError { problem: "--config and --exec are both given".to_owned(), hint });
        }
        Ok((self.named.name()?, &self.server))
    }
}

/// The way to one access.
pub(super) fn source(access: AccessName, server: &ServerArgs, config: Option<&PathBuf>) -> Result<Source, UsageError> {
    let way = match (&server.server, config) {
        // A flag beats a variable; two flags are a mistake.
        (Some(url), Some(_)) if std::env::var("KEYFERRY_SERVER").ok().as_ref() != Some(url) => {
            return Err(UsageError {
                problem: "both --server and --config are given".to_owned(),
                hint: "keep --server to ask a server, or --config to mint with your own rights on the hub",
            });
        }
        (_, Some(config)) => Way::Direct(Direct { config: config.clone(), hub: server.hub.access() }),
        (Some(_), None) => {
            let (address, caller) = server.calls()?;
            Way::Server(address, caller)
        }
        (None, None) => {
            return Err(UsageError {
                problem: "no server and no configuration file is named".to_owned(),
                hint: "give --server URL, or --config FILE with a kubeconfig of the hub",
            });
        }
    };
    Ok(Source { access, way })
}

impl ServerArgs {
    /// The server, and the caller's token for it.
    pub(super) fn calls(&self) -> Result<(ServerAddress, CallerTokenSource), UsageError> {
        let url = self.server.clone();
        let url = url.ok_or(UsageError { problem: "no server is named".to_owned(), hint: "give --server URL" })?;
        let address = ServerAddress { url, certificate_authority: self.certificate_authority.clone() };
        let wrong = |what: &str, error: String| UsageError { problem: format!("{what} {error}"), hint: "see keyferry token --help" };
        let audience = self.caller_audience.as_deref().unwrap_or(CALLER_AUDIENCE);
        let audience = Audience::new(audience).map_err(|error| wrong("--caller-audience", error.to_string()))?;
        let service_account = self.service_account.as_deref().map(ObjectName::new).transpose();
        let service_account = service_account.map_err(|error| wrong("--service-account", error.to_string()))?;
        let hub = self.hub.access();
        let caller = CallerTokenSource { token_file: self.token_file.clone(), service_account, audience: Some(audience), hub };
        Ok((address, caller))
    }
}

impl MaybeNamedArgs {
    /// The access, if the arguments name one.
    pub(super) fn name(&self) -> Result<Option<AccessName>, UsageError> {
        self.access.as_deref().map(|access| access_name(access, self.namespace.as_deref())).transpose()
    }
}

impl NamedArgs {
    pub(super) fn name(&self) -> Result<AccessName, UsageError> {
        access_name(&self.access, self.namespace.as_deref())
    }
}

/// NAME with a namespace, or NAMESPACE/NAME.
pub(super) fn access_name(access: &str, namespace: Option<&str>) -> Result<AccessName, UsageError> {
    let wrong = |problem: String| UsageError { problem, hint: "write NAME with -n NAMESPACE, or NAMESPACE/NAME" };
    if let Some(namespace) = namespace.filter(|_| !access.contains('/')) {
        let namespace = Namespace::new(namespace).map_err(|error| wrong(format!("the namespace {error}")))?;
        let name = ObjectName::new(access).map_err(|error| wrong(format!("the access's name {error}")))?;
        return Ok(AccessName { namespace, name });
    }
    if !access.contains('/') {
        return Err(wrong("the access's namespace is missing".to_owned()));
    }
    AccessName::parse(access).map_err(|error| wrong(format!("the access {error}")))
}

impl Source {
    pub(super) async fn kubeconfig(&self) -> Result<SecretString, ClientError> {
        match &self.way {
            Way::Server(server, caller) => {
                let token = caller_token::find(caller, self.access.namespace.as_str()).await?;
                server.kubeconfig(&token, &self.access).await
            }
            Way::Direct(direct) => direct.kubeconfig(&self.access).await,
        }
    }

    /// The kubeconfig, read.
    pub(super) async fn received(&self) -> Result<ReceivedKubeconfig, ClientError> {
        let text = self.kubeconfig().await?;
        Ok(received_kubeconfig::parse(text.expose_secret(), &self.access)?)
    }

    async fn token(&self) -> Result<UsableToken, ClientError> {
        match &self.way {
            Way::Server(server, caller) => {
                let token = caller_token::find(caller, self.access.namespace.as_str()).await?;
                server.token(&token, &self.access).await
            }
            Way::Direct(direct) => direct.token(&self.access).await,
        }
    }
}

pub(super) async fn token(args: TokenArgs) -> ExitCode {
    let source = match args.access.source() {
        Ok(source) => source,
        Err(usage) => return ui::fail(&usage.problem, Some(usage.hint)),
    };
    match source.token().await {
        Ok(token) => match args.output {
            TokenOutput::Token => ui::finish(token.token.expose_secret()),
            TokenOutput::Json => {
                ui::finish(&json!({ "token": token.token.expose_secret(), "expiresInSeconds": token.usable.as_secs() }).to_string())
            }
        },
        Err(error) => ui::fail(&error.to_string(), hint(&error)),
    }
}

/// What to try next.
pub(super) fn hint(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Answer { error, .. } if error == "invalid_target" || error == "access_denied" => {
            Some("the server does not say whether the access exists; ask its admin for the audit record of this request")
        }
        ClientError::Answer { error, .. } if error == "invalid_request" || error == "invalid_token" => {
            Some("the caller's token must be for Keyferry's audience alone (default keyferry.dev), unexpired, and of a live ServiceAccount")
        }
        _ => None,
    }
}
