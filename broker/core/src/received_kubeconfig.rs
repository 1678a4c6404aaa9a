//! Reads a kubeconfig from a server as hostile input, because kubectl runs the commands in a
//! kubeconfig.
//!
//! Only the form that [`crate::kubeconfig`] writes is accepted. The result is written again from
//! the parsed fields.

use keyferry_api::name::{AccessName, ObjectName};
use keyferry_keys::jwt::UnverifiedJwt;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::kubeconfig;
use crate::public_cluster::PublicCluster;

/// Maximum size of a received kubeconfig in bytes.
pub const MAX_KUBECONFIG_BYTES: usize = 512 * 1024;

/// Why a received kubeconfig is not used. No part of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceivedError {
    /// Larger than [`MAX_KUBECONFIG_BYTES`], or not YAML of the expected form: one cluster, one
    /// user, one context, no further members.
    #[error("the server's kubeconfig is not of the form that Keyferry writes")]
    Form,
    /// The kubeconfig is for another access.
    #[error("the server's kubeconfig is for another access")]
    OtherAccess,
    /// The cluster's address, server name, proxy or CA certificates cannot be used.
    #[error("the server's kubeconfig leads to no usable address")]
    Cluster,
    /// The token is not a JWT.
    #[error("the server's kubeconfig holds no token")]
    Token,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    clusters: [NamedCluster; 1],
    users: [NamedUser; 1],
    contexts: [NamedContext; 1],
    current_context: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    token: SecretString,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    cluster: String,
    user: String,
}

/// The contents of a received kubeconfig.
#[derive(Debug)]
pub struct ReceivedKubeconfig {
    /// The connection data of the target.
    pub cluster: PublicCluster,
    /// The token for the target.
    pub token: SecretString,
}

/// Reads a received kubeconfig for `access` and writes it again from its fields.
///
/// # Errors
/// [`ReceivedError`].
pub fn rewrite_kubeconfig(text: &str, access: &AccessName) -> Result<SecretString, ReceivedError> {
    let ReceivedKubeconfig { cluster, token } = parse_kubeconfig(text, access)?;
    kubeconfig::with_token(&cluster, access, &token).map_err(|_| ReceivedError::Form)
}

/// Reads a received kubeconfig for `access`.
///
/// # Errors
/// [`ReceivedError`].
pub fn parse_kubeconfig(
    text: &str,
    access: &AccessName,
) -> Result<ReceivedKubeconfig, ReceivedError> {
    if text.len() > MAX_KUBECONFIG_BYTES {
        return Err(ReceivedError::Form);
    }
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_events: 200, max_aliases: 0, max_anchors: 0 } };
    let document: Document =
        serde_saphyr::from_str_with_options(text, options).map_err(|_| ReceivedError::Form)?;
    let Document {
        api_version,
        kind,
        clusters: [cluster],
        users: [user],
        contexts: [context],
        current_context,
    } = document;
    let joined = context.context.cluster == cluster.name
        && context.context.user == user.name
        && context.name == current_context;
    if api_version != "v1" || kind != "Config" || !joined {
        return Err(ReceivedError::Form);
    }
    let name = ObjectName::new(cluster.name).map_err(|_| ReceivedError::Form)?;
    if user.name != access.to_string() {
        return Err(ReceivedError::OtherAccess);
    }
    UnverifiedJwt::parse(user.user.token.expose_secret()).map_err(|_| ReceivedError::Token)?;
    let Cluster {
        server,
        certificate_authority_data,
        tls_server_name,
        proxy_url,
    } = cluster.cluster;
    let cluster = PublicCluster {
        name,
        server,
        certificate_authority_data,
        tls_server_name,
        proxy_url,
    };
    Ok(ReceivedKubeconfig {
        cluster: cluster
            .check_received()
            .map_err(|_| ReceivedError::Cluster)?,
        token: user.user.token,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use keyferry_api::name::{AccessName, ObjectName};
    use keyferry_keys::jwt::SigningAlgorithm;
    use keyferry_keys::testing::{claims, key};
    use proptest::prelude::*;
    use secrecy::ExposeSecret;

    use super::{MAX_KUBECONFIG_BYTES, ReceivedError, rewrite_kubeconfig};
    use crate::kubeconfig;
    use crate::public_cluster::PublicCluster;

    fn access() -> AccessName {
        AccessName::parse("tenant-a/prod").unwrap()
    }

    fn good() -> String {
        let token = key(SigningAlgorithm::Es256).token(&claims());
        let cluster = PublicCluster {
            name: ObjectName::new("prod").unwrap(),
            server: "https://prod.example.com:6443/path".to_owned(),
            certificate_authority_data: Some(
                STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            ),
            tls_server_name: Some("kubernetes".to_owned()),
            proxy_url: Some("socks5://proxy:1080".to_owned()),
        };
        kubeconfig::with_token(&cluster, &access(), &token.into())
            .unwrap()
            .expose_secret()
            .to_owned()
    }

    #[test]
    fn what_keyferry_writes_comes_back_as_it_was() {
        let text = good();
        assert_eq!(
            rewrite_kubeconfig(&text, &access())
                .unwrap()
                .expose_secret(),
            text
        );
    }

    #[test]
    fn what_kubectl_would_run_or_read_is_refused() {
        let text = good();
        let user = text.find("token:").unwrap();
        for stanza in [
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [x]}",
            "auth-provider: {name: x}",
            "tokenFile: /etc/shadow",
            "client-certificate: /x",
            "username: x",
            "as: system:admin",
        ] {
            let mut hostile = text.clone();
            hostile.insert_str(user, &format!("{stanza}\n      "));
            assert_eq!(
                rewrite_kubeconfig(&hostile, &access()).unwrap_err(),
                ReceivedError::Form,
                "{stanza}"
            );
        }
        let server = text.find("server:").unwrap();
        for stanza in [
            "insecure-skip-tls-verify: true",
            "certificate-authority: /etc/shadow",
            "extensions: []",
        ] {
            let mut hostile = text.clone();
            hostile.insert_str(server, &format!("{stanza}\n      "));
            assert_eq!(
                rewrite_kubeconfig(&hostile, &access()).unwrap_err(),
                ReceivedError::Form,
                "{stanza}"
            );
        }
    }

    #[test]
    fn another_access_another_address_or_no_token_is_refused() {
        let text = good();
        assert_eq!(
            rewrite_kubeconfig(&text, &AccessName::parse("tenant-a/other").unwrap()).unwrap_err(),
            ReceivedError::OtherAccess
        );
        for (from, to, error) in [
            ("https://prod", "http://prod", ReceivedError::Cluster),
            (
                "https://prod",
                "https://user:word@prod",
                ReceivedError::Cluster,
            ),
            ("socks5://proxy", "file:///proxy", ReceivedError::Cluster),
            ("'Config'", "'List'", ReceivedError::Form),
            ("apiVersion: 'v1'", "apiVersion: 'v2'", ReceivedError::Form),
            ("cluster: 'prod'", "cluster: 'other'", ReceivedError::Form),
            (
                "user: 'tenant-a/prod'",
                "user: 'tenant-b/prod'",
                ReceivedError::Form,
            ),
            (
                "current-context: 'tenant-a/prod@prod'",
                "current-context: 'tenant-a/prod@other'",
                ReceivedError::Form,
            ),
        ] {
            assert!(text.contains(from), "{from}");
            assert_eq!(
                rewrite_kubeconfig(&text.replace(from, to), &access()).unwrap_err(),
                error,
                "{from} -> {to}"
            );
        }
        let start = text.find("eyJ").unwrap();
        let end = start + text.get(start..).unwrap().find('\'').unwrap();
        let mut hostile = text.clone();
        hostile.replace_range(start..end, "[2Jspoof");
        assert_eq!(
            rewrite_kubeconfig(&hostile, &access()).unwrap_err(),
            ReceivedError::Token
        );
    }

    #[test]
    fn a_kubeconfig_over_the_limit_is_not_read() {
        let of_length = |length| {
            let mut text = good();
            text.extend(std::iter::repeat_n('\n', length - text.len()));
            rewrite_kubeconfig(&text, &access()).map(|_| ())
        };
        for length in [500_000, MAX_KUBECONFIG_BYTES] {
            assert!(of_length(length).is_ok(), "{length}");
        }
        assert_eq!(
            of_length(MAX_KUBECONFIG_BYTES + 1),
            Err(ReceivedError::Form)
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,400}") {
            let _ = rewrite_kubeconfig(&text, &access());
        }
    }
}
