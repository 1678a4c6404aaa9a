//! The settings of a control plane.

use crate::parts::Minor;
use crate::pki::{SigningKey, SigningKeyKind};

/// The settings of a control plane to start.
#[derive(Debug, Clone)]
pub struct ControlPlaneSpec {
    /// Its name: used for its folder, its etcd prefix, and the DNS name `<name>.keyferry.test` in
    /// its certificate.
    pub name: String,
    /// The control plane whose data it also serves, as another apiserver of the same cluster.
    /// `None` gives it its own data.
    pub replica_of: Option<String>,
    /// The Kubernetes version.
    pub minor: Minor,
    /// `--service-account-issuer`. The first one signs; all are accepted. https URLs are served as
    /// discovery documents.
    pub issuers: Vec<String>,
    /// `--service-account-jwks-uri`; `None` keeps kube-apiserver's default.
    pub jwks_uri: Option<String>,
    /// `--api-audiences`; when empty, kube-apiserver uses the issuers.
    pub api_audiences: Vec<String>,
    /// An AuthenticationConfiguration (YAML or JSON); `None` starts it without that flag.
    pub authentication_config: Option<String>,
    /// The kind of the signing key.
    pub signing_key: SigningKeyKind,
    /// Further names and IP addresses in its serving certificate.
    pub further_names: Vec<String>,
    /// Further flags, such as `--v=4`.
    pub extra_args: Vec<String>,
    /// Whether a kube-controller-manager runs. Without it there are no `default` ServiceAccounts,
    /// no `kube-root-ca.crt` and no garbage collection, and a deleted namespace stays terminating.
    pub controller_manager: bool,
    /// Whether every request is written to an audit log at level Metadata.
    pub audit_log: bool,
}

impl ControlPlaneSpec {
    /// The newest minor, RSA 2048, one issuer `https://<name>.keyferry.test`, nothing else.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replica_of: None,
            minor: Minor::newest(),
            issuers: vec![format!("https://{name}.keyferry.test")],
            jwks_uri: None,
            api_audiences: Vec::new(),
            authentication_config: None,
            signing_key: SigningKeyKind::Rsa2048,
            further_names: Vec::new(),
            extra_args: Vec::new(),
            controller_manager: false,
            audit_log: false,
        }
    }
}

/// The issuers and keys of ServiceAccount tokens, from one start to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSigning {
    /// The issuers. The first one signs; all are accepted.
    pub issuers: Vec<String>,
    /// The key that signs.
    pub signing_key: SigningKey,
    /// Keys that are published and accepted beside it: the old key after a rotation, or the next
    /// key before one.
    pub further_keys: Vec<SigningKey>,
}
