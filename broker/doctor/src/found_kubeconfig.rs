//! Reads a kubeconfig from an untrusted source as a controller would: it never follows a path and
//! never runs a command.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret, SecretString};

use crate::TargetAddress;

/// The target and token of a kubeconfig.
pub struct FoundKubeconfig {
    /// The target's address.
    pub target: TargetAddress,
    /// The token for the target.
    pub token: SecretString,
}

/// Why a kubeconfig cannot be used. No content of the kubeconfig is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoundKubeconfigError {
    /// The text does not parse.
    #[error("it is not a kubeconfig")]
    Malformed,
    /// No context is current.
    #[error("it has no current-context")]
    NoCurrentContext,
    /// The current context is not in the list.
    #[error("its current-context is not there")]
    ContextMissing,
    /// The context's cluster is not in the list.
    #[error("its context names no cluster that is there")]
    ClusterMissing,
    /// The context's user is not in the list.
    #[error("its context names no user that is there")]
    UserMissing,
    /// The credential would come from a command.
    #[error(
        "its user is a command or an auth-provider, which controllers refuse; an inline token is \
         wanted"
    )]
    Command,
    /// The token or the CA certificates are in a file.
    #[error("it names files, which controllers refuse; inline data is wanted")]
    Files,
    /// The server's certificate would not be verified.
    #[error(
        "it has insecure-skip-tls-verify, which Flux drops; certificate-authority-data is wanted"
    )]
    Insecure,
    /// The user has a client certificate.
    #[error("it has a client certificate, which takes precedence over any token")]
    ClientCertificate,
    /// The user has no token.
    #[error("its user has no inline token")]
    NoToken,
    /// The cluster has no address.
    #[error("its cluster has no server")]
    NoServer,
    /// The CA certificates are not base64.
    #[error("its certificate-authority-data is not base64")]
    AuthorityNotBase64,
}

/// Reads the current context of a kubeconfig.
///
/// # Errors
/// [`FoundKubeconfigError`].
pub fn read(text: &str) -> Result<FoundKubeconfig, FoundKubeconfigError> {
    let all = Kubeconfig::from_yaml(text).map_err(|_| FoundKubeconfigError::Malformed)?;
    let current = all
        .current_context
        .as_deref()
        .ok_or(FoundKubeconfigError::NoCurrentContext)?;
    let context = all
        .contexts
        .iter()
        .find(|named| named.name == current)
        .and_then(|named| named.context.as_ref());
    let context = context.ok_or(FoundKubeconfigError::ContextMissing)?;
    let cluster = all
        .clusters
        .iter()
        .find(|named| named.name == context.cluster)
        .and_then(|named| named.cluster.as_ref());
    let cluster = cluster.ok_or(FoundKubeconfigError::ClusterMissing)?;
    let user = context.user.as_deref().unwrap_or_default();
    let user = all
        .auth_infos
        .iter()
        .find(|named| named.name == user)
        .and_then(|named| named.auth_info.as_ref());
    let user = user.ok_or(FoundKubeconfigError::UserMissing)?;
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(FoundKubeconfigError::Command);
    }
    if user.token_file.is_some() || cluster.certificate_authority.is_some() {
        return Err(FoundKubeconfigError::Files);
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(FoundKubeconfigError::Insecure);
    }
    if user.client_certificate_data.is_some() || user.client_certificate.is_some() {
        return Err(FoundKubeconfigError::ClientCertificate);
    }
    let token = user.token.clone().ok_or(FoundKubeconfigError::NoToken)?;
    let token = SecretString::from(token.expose_secret().trim().to_owned());
    let pem = cluster
        .certificate_authority_data
        .as_deref()
        .map(|data| STANDARD.decode(data))
        .transpose();
    Ok(FoundKubeconfig {
        target: TargetAddress {
            url: cluster
                .server
                .clone()
                .ok_or(FoundKubeconfigError::NoServer)?,
            ca_pem: pem.map_err(|_| FoundKubeconfigError::AuthorityNotBase64)?,
            tls_server_name: cluster.tls_server_name.clone(),
            proxy_url: cluster.proxy_url.clone(),
        },
        token,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use secrecy::ExposeSecret;

    use super::read;

    fn text(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://t:6443'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn what_controllers_refuse_is_refused() {
        let found = read(&text(", tls-server-name: n", "token: abc")).unwrap();
        assert_eq!(
            (found.target.url.as_str(), found.token.expose_secret()),
            ("https://t:6443", "abc")
        );
        assert_eq!(found.target.tls_server_name.as_deref(), Some("n"));
        let cases = [
            ("", "tokenFile: /x"),
            ("", "exec: {command: x}"),
            ("", ""),
            (", insecure-skip-tls-verify: true", "token: abc"),
            (", certificate-authority: /x", "token: abc"),
            ("", "token: abc, client-certificate-data: eA=="),
        ];
        for (cluster, user) in cases {
            let wrong = read(&text(cluster, user))
                .err()
                .unwrap_or_else(|| unreachable!("{cluster} {user} is read"));
            assert!(!wrong.to_string().contains("abc"), "{wrong}");
        }
        assert!(read("{").is_err());
    }
}
