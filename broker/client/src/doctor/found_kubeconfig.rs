//! Reads a kubeconfig from an untrusted source as a controller would: it never follows a path and
//! never runs a command.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_core::import::join_base64_lines;
use keyferry_platform::target_connection::TargetAddress;
use kube::config::{AuthInfo, Kubeconfig};
use secrecy::{ExposeSecret, SecretString};

use crate::doctor::authority_text::{AuthorityTextError, certificates};

/// The target and the credential of a kubeconfig.
pub struct FoundKubeconfig {
    /// The target's address.
    pub target: TargetAddress,
    /// The credential for the target, or why a controller does not take it.
    pub credential: Result<FoundCredential, CredentialError>,
}

/// A credential that a controller takes.
pub enum FoundCredential {
    /// An inline token.
    Token(SecretString),
    /// A client certificate, such as that of Cluster API. An apiserver looks at no token beside it.
    ClientCertificate,
    /// A user name and a password.
    Password,
}

impl FoundCredential {
    /// Describes a credential that doctor cannot check; `None` for a token.
    pub(crate) fn unchecked(&self) -> Option<&'static str> {
        match self {
            Self::Token(_) => None,
            Self::ClientCertificate => {
                Some("authenticates with a client certificate; there is no token to check")
            }
            Self::Password => {
                Some("authenticates with a user name and a password; there is no token to check")
            }
        }
    }
}

/// Why a kubeconfig cannot be used. No credential of the kubeconfig is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoundKubeconfigError {
    /// The text does not parse.
    #[error("it is not a kubeconfig")]
    Malformed,
    /// No context is current.
    #[error("it has no current-context; its contexts: {0}")]
    NoCurrentContext(String),
    /// The current context is not in the list.
    #[error("its current-context {0:?} is not there")]
    ContextMissing(String),
    /// The context's cluster is not in the list.
    #[error("its context names the cluster {0:?}, which is not there")]
    ClusterMissing(String),
    /// The context's user is not in the list.
    #[error("its context names the user {0:?}, which is not there")]
    UserMissing(String),
    /// The CA certificates are in a file.
    #[error("its certificate-authority names a file, which controllers do not read")]
    AuthorityFile,
    /// The server's certificate would not be verified.
    #[error("it has insecure-skip-tls-verify, which Flux drops")]
    Insecure,
    /// The cluster has no address.
    #[error("its cluster has no server")]
    NoServer,
    /// The CA certificates cannot be used.
    #[error("its certificate-authority-data {0}")]
    Authority(#[from] AuthorityTextError),
}

/// Why a controller does not take the credential of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The credential would come from a command.
    #[error("its user runs a command, which Flux refuses without --insecure-kubeconfig-exec")]
    Command,
    /// The credential would come from a plugin that client-go no longer has.
    #[error("its user has an auth-provider, which client-go no longer has")]
    AuthProvider,
    /// The token is in a file.
    #[error("its user names a token file, which controllers do not read")]
    TokenFile,
    /// The client certificate is in a file.
    #[error("its user names certificate files, which controllers do not read")]
    CertificateFile,
    /// There is no credential.
    #[error("its user has no token and no client certificate")]
    Nothing,
}

impl FoundKubeconfigError {
    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Malformed => {
                "write a kubeconfig as kubectl config view --raw --minify prints it, once in base64"
            }
            Self::NoCurrentContext(_) | Self::ContextMissing(_) => {
                "set current-context to one of its contexts; a controller has no other choice"
            }
            Self::ClusterMissing(_) | Self::UserMissing(_) => {
                "correct the names in its context, or add the missing entry"
            }
            Self::AuthorityFile => {
                "write the certificates themselves: certificate-authority-data, PEM in base64"
            }
            Self::Insecure => {
                "remove insecure-skip-tls-verify and write certificate-authority-data"
            }
            Self::NoServer => "write the target's https URL into server of its cluster",
            Self::Authority(_) => {
                "write certificate-authority-data as the PEM text of the CA, once in base64"
            }
        }
    }
}

impl CredentialError {
    /// What to do about it.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Command => {
                "write an inline token in the place of exec; a TargetAccess with a \
                 KubeConfigSecret renews one"
            }
            Self::AuthProvider => "write an inline token in the place of auth-provider",
            Self::TokenFile => "write the token itself: token in the place of tokenFile",
            Self::CertificateFile => {
                "write the data themselves: client-certificate-data and client-key-data"
            }
            Self::Nothing => "write an inline token into its user",
        }
    }
}

/// Reads the current context of a kubeconfig.
///
/// # Errors
/// [`FoundKubeconfigError`].
pub fn read(text: &str) -> Result<FoundKubeconfig, FoundKubeconfigError> {
    let all = Kubeconfig::from_yaml(text).map_err(|_| FoundKubeconfigError::Malformed)?;
    let current = all.current_context.clone().unwrap_or_default();
    if current.is_empty() {
        let names: Vec<&str> = all
            .contexts
            .iter()
            .take(10)
            .map(|named| named.name.as_str())
            .collect();
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(FoundKubeconfigError::NoCurrentContext(names));
    }
    let context = all
        .contexts
        .iter()
        .find(|named| named.name == current)
        .and_then(|named| named.context.as_ref());
    let context = context.ok_or(FoundKubeconfigError::ContextMissing(current))?;
    let cluster = all
        .clusters
        .iter()
        .find(|named| named.name == context.cluster)
        .and_then(|named| named.cluster.as_ref());
    let cluster =
        cluster.ok_or_else(|| FoundKubeconfigError::ClusterMissing(context.cluster.clone()))?;
    let user = context.user.clone().unwrap_or_default();
    let found = all
        .auth_infos
        .iter()
        .find(|named| named.name == user)
        .and_then(|named| named.auth_info.as_ref());
    let user = found.ok_or(FoundKubeconfigError::UserMissing(user))?;
    if cluster.certificate_authority.is_some() && cluster.certificate_authority_data.is_none() {
        return Err(FoundKubeconfigError::AuthorityFile);
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(FoundKubeconfigError::Insecure);
    }
    let pem = cluster
        .certificate_authority_data
        .as_deref()
        .filter(|data| !data.is_empty())
        .map(authority)
        .transpose()?;
    let url = cluster.server.clone().unwrap_or_default();
    if url.is_empty() {
        return Err(FoundKubeconfigError::NoServer);
    }
    Ok(FoundKubeconfig {
        target: TargetAddress {
            url,
            ca_pem: pem,
            tls_server_name: cluster.tls_server_name.clone(),
            proxy_url: cluster.proxy_url.clone(),
        },
        credential: credential(user),
    })
}

/// Decodes CA certificates. Base64 may be wrapped, as `base64` without `-w0` prints it.
fn authority(data: &str) -> Result<Vec<u8>, AuthorityTextError> {
    let decoded = STANDARD
        .decode(join_base64_lines(data))
        .map_err(|_| AuthorityTextError::NotBase64)?;
    certificates(&decoded)?;
    Ok(decoded)
}

/// Chooses as client-go and an apiserver do: a client certificate goes before any token.
fn credential(user: &AuthInfo) -> Result<FoundCredential, CredentialError> {
    if user.client_certificate_data.is_some() {
        return Ok(FoundCredential::ClientCertificate);
    }
    if user.client_certificate.is_some() {
        return Err(CredentialError::CertificateFile);
    }
    let token = user
        .token
        .as_ref()
        .map(|token| token.expose_secret().trim());
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        return Ok(FoundCredential::Token(SecretString::from(token.to_owned())));
    }
    match user {
        _ if user.exec.is_some() => Err(CredentialError::Command),
        _ if user.auth_provider.is_some() => Err(CredentialError::AuthProvider),
        _ if user.token_file.is_some() => Err(CredentialError::TokenFile),
        _ if user.username.is_some() && user.password.is_some() => Ok(FoundCredential::Password),
        _ => Err(CredentialError::Nothing),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use keyferry_testing::Authority;
    use secrecy::ExposeSecret;

    use super::{CredentialError, FoundCredential, FoundKubeconfigError, read};

    fn text(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://t:6443'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn an_inline_token_is_taken() {
        let found = read(&text(", tls-server-name: n", "token: abc")).unwrap();
        assert_eq!(found.target.url, "https://t:6443");
        assert_eq!(found.target.tls_server_name.as_deref(), Some("n"));
        let Ok(FoundCredential::Token(token)) = found.credential else {
            panic!("there is a token")
        };
        assert_eq!(token.expose_secret(), "abc");
    }

    /// Every Secret of Cluster API has one.
    #[test]
    fn a_client_certificate_is_a_credential_that_is_not_checked() {
        let both = "token: abc, client-certificate-data: eA==, client-key-data: eA==";
        for user in ["client-certificate-data: eA==, client-key-data: eA==", both] {
            let found = read(&text("", user)).unwrap();
            let Ok(credential @ FoundCredential::ClientCertificate) = found.credential else {
                panic!("{user}")
            };
            assert!(
                credential
                    .unchecked()
                    .unwrap()
                    .contains("no token to check")
            );
        }
        let found = read(&text("", "username: u, password: abc")).unwrap();
        assert!(matches!(found.credential, Ok(FoundCredential::Password)));
    }

    #[test]
    fn each_credential_that_controllers_refuse_has_its_text_and_its_fix() {
        let cases = [
            ("tokenFile: /x", CredentialError::TokenFile),
            ("exec: {command: abc}", CredentialError::Command),
            ("auth-provider: {name: x}", CredentialError::AuthProvider),
            ("client-certificate: /x", CredentialError::CertificateFile),
            ("", CredentialError::Nothing),
        ];
        let mut texts = BTreeSet::new();
        for (user, expected) in cases {
            let found = read(&text("", user)).unwrap();
            let error = found.credential.err().unwrap();
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("abc"), "{error}");
            assert!(texts.insert(error.to_string()) && texts.insert(error.fix().to_owned()));
        }
    }

    #[test]
    fn each_kubeconfig_that_cannot_be_used_has_its_text() {
        let pem = Authority::new("t").unwrap().ca_pem().to_owned();
        let twice = STANDARD.encode(STANDARD.encode(&pem));
        let cluster = |member: &str| text(&format!(", {member}"), "token: abc");
        let cases = [
            "{".to_owned(),
            cluster("insecure-skip-tls-verify: true"),
            cluster("certificate-authority: /x"),
            cluster("certificate-authority-data: '%'"),
            cluster("certificate-authority-data: eA=="),
            cluster(&format!("certificate-authority-data: {twice}")),
            text("", "token: abc").replace("current-context: a", "current-context: b"),
            text("", "token: abc").replace("current-context: a\n", ""),
            text("", "token: abc").replace("cluster: c,", "cluster: d,"),
            text("", "token: abc").replace("user: u}", "user: v}"),
            text("", "token: abc").replace("https://t:6443", ""),
        ];
        let mut texts = BTreeSet::new();
        for kubeconfig in &cases {
            let error = read(kubeconfig).err().unwrap();
            assert!(!error.to_string().contains("abc"), "{error}");
            assert!(!error.fix().is_empty());
            assert!(texts.insert(error.to_string()), "{error}");
        }
        let missing = read(&cases[7]).err().unwrap();
        assert_eq!(
            missing,
            FoundKubeconfigError::NoCurrentContext("a".to_owned())
        );
    }

    #[test]
    fn wrapped_base64_is_read_as_kubectl_reads_it() {
        let data = STANDARD.encode(Authority::new("t").unwrap().ca_pem());
        let (first, rest) = data.split_at(40);
        let wrapped = format!(", certificate-authority-data: '{first}\n\n    {rest}'");
        let found = read(&text(&wrapped, "token: abc")).unwrap();
        assert!(found.target.ca_pem.unwrap().starts_with(b"-----BEGIN"));
    }
}
