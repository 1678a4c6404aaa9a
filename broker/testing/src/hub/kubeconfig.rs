//! Kubeconfigs for the hub.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::EmbeddedHub;

impl EmbeddedHub {
    /// A kubeconfig with the broker token in it. Holds a secret.
    #[must_use]
    pub fn kubeconfig(&self) -> SecretString {
        self.kubeconfig_for(&self.state.broker_token)
    }

    /// A kubeconfig with the given token in it, such as a developer's. Holds a secret.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &SecretString) -> SecretString {
        let user = json!({"token": token.expose_secret()});
        SecretString::from(document("hub", self.url(), self.ca_pem(), &user))
    }

    /// A kubeconfig that names a file with the token, read again by the client as it changes.
    #[must_use]
    pub fn kubeconfig_with_token_file(&self, path: &str) -> String {
        document(
            "hub",
            self.url(),
            self.ca_pem(),
            &json!({"tokenFile": path}),
        )
    }
}

/// One cluster, one user, one context, all called `name`. JSON, which every YAML reader takes.
pub(crate) fn document(name: &str, server: &str, ca_pem: &str, user: &Value) -> String {
    let cluster = json!({
        "server": server,
        "certificate-authority-data": STANDARD.encode(ca_pem),
    });
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{document:#}\n")
}
