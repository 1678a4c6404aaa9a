//! The kubeconfig that leaves: typed fields in, one document out, no exec stanza and no file paths.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::config::TargetCluster;
use crate::name::AccessName;

/// What a kubeconfig is made of.
pub struct KubeconfigParts<'a> {
    /// The target it leads to.
    pub target: &'a TargetCluster,
    /// The target's CA certificates as PEM; none means the client's own roots.
    pub ca_pem: Option<&'a str>,
    /// The access it was made for; names the context.
    pub access: &'a AccessName,
    /// The bearer token.
    pub token: &'a SecretString,
}

/// The document could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("writing the kubeconfig as YAML")]
pub struct KubeconfigError;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    clusters: [Named<Cluster<'a>>; 1],
    users: [Named<User<'a>>; 1],
    contexts: [Named<Context>; 1],
    current_context: String,
}

#[derive(Serialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    item: T,
}

#[derive(Serialize)]
struct Cluster<'a> {
    cluster: ClusterFields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterFields<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
}

#[derive(Serialize)]
struct User<'a> {
    user: UserFields<'a>,
}

#[derive(Serialize)]
struct UserFields<'a> {
    token: &'a str,
}

#[derive(Serialize)]
struct Context {
    context: ContextFields,
}

#[derive(Serialize)]
struct ContextFields {
    cluster: String,
    user: String,
}

/// Writes a self-contained kubeconfig with an inline CA and an inline token.
///
/// The context is named `<namespace>/<access>@<target>`, so that two of them merge without hiding each other.
///
/// # Errors
/// [`KubeconfigError`] only if the serialiser fails.
pub fn render(parts: &KubeconfigParts<'_>) -> Result<SecretString, KubeconfigError> {
    write(&Connection {
        cluster: parts.target.name.as_str(),
        user: &parts.access.to_string(),
        server: &parts.target.address,
        ca_pem: parts.ca_pem,
        tls_server_name: parts.target.tls_server_name.as_deref(),
        proxy_url: parts.target.proxy_url.as_deref(),
        token: parts.token.expose_secret(),
    })
}

/// One cluster, one user, one context between them.
pub(crate) struct Connection<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) user: &'a str,
    pub(crate) server: &'a str,
    pub(crate) ca_pem: Option<&'a str>,
    pub(crate) tls_server_name: Option<&'a str>,
    pub(crate) proxy_url: Option<&'a str>,
    pub(crate) token: &'a str,
}

pub(crate) fn write(connection: &Connection<'_>) -> Result<SecretString, KubeconfigError> {
    let (cluster, user) = (connection.cluster.to_owned(), connection.user.to_owned());
    let context = format!("{user}@{cluster}");
    let document = Kubeconfig {
        api_version: "v1",
        kind: "Config",
        clusters: [Named {
            name: cluster.clone(),
            item: Cluster {
                cluster: ClusterFields {
                    server: connection.server,
                    certificate_authority_data: connection.ca_pem.map(|pem| STANDARD.encode(pem)),
                    tls_server_name: connection.tls_server_name,
                    proxy_url: connection.proxy_url,
                },
            },
        }],
        users: [Named { name: user.clone(), item: User { user: UserFields { token: connection.token } } }],
        contexts: [Named { name: context.clone(), item: Context { context: ContextFields { cluster, user } } }],
        current_context: context,
    };
    // Every text in quotes and on one line: readers of YAML 1.1 and 1.2 differ in what plain words mean, and in block scalars' ends.
    let options = serde_saphyr::ser_options! { quote_all: true, prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&document, options).map(SecretString::from).map_err(|_| KubeconfigError)
}

#[cfg(test)]
mod tests;
