//! Writes kubeconfigs from typed fields.
//!
//! A kubeconfig that a server sends has no exec stanza and no file paths. The two forms that have
//! one are written by a command on the machine where they will be used.

use keyferry_api::config::TargetCluster;
use keyferry_api::json_schema::schema_of;
use keyferry_api::name::{AccessName, ObjectName};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;

use crate::public_cluster::PublicCluster;

/// The parts of a kubeconfig with a token.
pub struct KubeconfigParts<'a> {
    /// The target that the kubeconfig is for.
    pub target: &'a TargetCluster,
    /// The target's CA certificates as PEM; `None` means the client's own roots.
    pub ca_pem: Option<&'a str>,
    /// The access that the kubeconfig is made for, which names the context.
    pub access: &'a AccessName,
    /// The bearer token.
    pub token: &'a SecretString,
}

/// No kubeconfig could be written.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The document could not be written as YAML.
    #[error("writing the kubeconfig as YAML")]
    Yaml,
    /// The target has `kind: Audience`.
    #[error(
        "writing a kubeconfig for TargetCluster {0}: it is no cluster and has no address; fix: \
         request the token alone, as keyferry token does"
    )]
    NoCluster(ObjectName),
}

/// The exec stanza of a kubeconfig: how a client calls the exec plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecStanza {
    api_version: &'static str,
    command: String,
    args: Vec<String>,
    env: Vec<EnvVar>,
    install_hint: &'static str,
    interactive_mode: &'static str,
    provide_cluster_info: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct EnvVar {
    name: String,
    value: String,
}

impl ExecStanza {
    /// Makes a stanza for `client.authentication.k8s.io/v1` that gives the plugin the cluster and
    /// never prompts the user.
    pub fn new(command: String, args: Vec<String>, env: Vec<(String, String)>) -> Self {
        Self {
            api_version: "client.authentication.k8s.io/v1",
            command,
            args,
            env: env
                .into_iter()
                .map(|(name, value)| EnvVar { name, value })
                .collect(),
            install_hint: "keyferry is not on the PATH; install it, or write its full path as \
                command",
            interactive_mode: "Never",
            provide_cluster_info: true,
        }
    }
}

/// A kubeconfig of one cluster, one user and the context that joins them.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig<'a, U> {
    /// Always v1.
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    /// Always Config.
    kind: &'static str,
    /// The target.
    clusters: [Named<Cluster<'a>>; 1],
    /// The user at the target.
    users: [Named<User<U>>; 1],
    /// The context <namespace>/<access>@<target>.
    contexts: [Named<Context>; 1],
    /// The name of the context.
    current_context: String,
}

#[derive(Serialize, JsonSchema)]
struct Named<T> {
    /// Its name in the list.
    name: String,
    #[serde(flatten)]
    item: T,
}

#[derive(Serialize, JsonSchema)]
struct Cluster<'a> {
    /// Where the target is.
    cluster: ClusterFields<'a>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ClusterFields<'a> {
    /// The apiserver's https URL.
    server: &'a str,
    /// No server sends a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    certificate_authority: Option<&'static str>,
    /// CA certificates: base64 of PEM. Without them, the client's own roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    /// The name in the apiserver's certificate, where it is not the server's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<&'a str>,
    /// The proxy to connect through: http, https or socks5.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct User<U> {
    /// The credential.
    user: U,
}

#[derive(Serialize, JsonSchema)]
struct TokenUser<'a> {
    /// The token for the target.
    token: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenFileUser {
    token_file: &'static str,
}

#[derive(Serialize)]
struct ExecUser<'a> {
    exec: &'a ExecStanza,
}

#[derive(Serialize, JsonSchema)]
struct Context {
    /// Which user at which cluster.
    context: ContextFields,
}

#[derive(Serialize, JsonSchema)]
struct ContextFields {
    /// The name of the cluster.
    cluster: String,
    /// The name of the user.
    user: String,
}

/// The schema of what [`render_kubeconfig`] writes.
pub fn kubeconfig_schema() -> Value {
    schema_of::<Kubeconfig<'_, TokenUser<'_>>>()
}

/// Writes a self-contained kubeconfig with an inline CA and an inline token.
///
/// The context is named `<namespace>/<access>@<target>`, so that two such kubeconfigs merge without
/// hiding each other.
///
/// # Errors
/// [`KubeconfigError`]: the target is not a cluster, or the serialiser fails.
pub fn render_kubeconfig(parts: &KubeconfigParts<'_>) -> Result<SecretString, KubeconfigError> {
    if !parts.target.is_cluster() {
        return Err(KubeconfigError::NoCluster(parts.target.name.clone()));
    }
    with_token(
        &PublicCluster::of_target(parts.target, parts.ca_pem),
        parts.access,
        parts.token,
    )
}

/// As [`render_kubeconfig`], but from connection data instead of a TargetCluster.
///
/// # Errors
/// As [`render_kubeconfig`].
pub fn with_token(
    cluster: &PublicCluster,
    access: &AccessName,
    token: &SecretString,
) -> Result<SecretString, KubeconfigError> {
    write_kubeconfig(
        cluster,
        cluster.certificate_authority_data.clone(),
        None,
        access,
        TokenUser {
            token: token.expose_secret(),
        },
    )
    .map(Into::into)
}

/// Writes a kubeconfig whose user is the exec plugin. It contains no secret.
///
/// # Errors
/// As [`render_kubeconfig`].
pub fn with_exec(
    cluster: &PublicCluster,
    access: &AccessName,
    stanza: &ExecStanza,
) -> Result<String, KubeconfigError> {
    write_kubeconfig(
        cluster,
        cluster.certificate_authority_data.clone(),
        None,
        access,
        ExecUser { exec: stanza },
    )
}

/// Writes a kubeconfig that names the files `token` and `ca.crt` beside it. It contains no secret.
///
/// # Errors
/// As [`render_kubeconfig`].
pub fn with_files(cluster: &PublicCluster, access: &AccessName) -> Result<String, KubeconfigError> {
    let ca_file = cluster
        .certificate_authority_data
        .as_ref()
        .map(|_| "./ca.crt");
    write_kubeconfig(
        cluster,
        None,
        ca_file,
        access,
        TokenFileUser {
            token_file: "./token",
        },
    )
}

/// Writes one cluster, one user and the context that joins them.
fn write_kubeconfig(
    connection: &PublicCluster,
    ca_data: Option<String>,
    ca_file: Option<&'static str>,
    access: &AccessName,
    credential: impl Serialize,
) -> Result<String, KubeconfigError> {
    let (cluster, user) = (connection.name.to_string(), access.to_string());
    let context = format!("{user}@{cluster}");
    let document = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: [Named {
            name: cluster.clone(),
            item: Cluster {
                cluster: ClusterFields {
                    server: &connection.server,
                    certificate_authority: ca_file,
                    certificate_authority_data: ca_data,
                    tls_server_name: connection.tls_server_name.as_deref(),
                    proxy_url: connection.proxy_url.as_deref(),
                },
            },
        }],
        users: [Named {
            name: user.clone(),
            item: User { user: credential },
        }],
        contexts: [Named {
            name: context.clone(),
            item: Context {
                context: ContextFields { cluster, user },
            },
        }],
        current_context: context,
    };
    // Quotes every string and keeps it on one line. Readers of YAML 1.1 and 1.2 differ on what
    // plain words mean and on where block scalars end.
    let options = serde_saphyr::ser_options! { quote_all: true, prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&document, options).map_err(|_| KubeconfigError::Yaml)
}

#[cfg(test)]
mod tests;
