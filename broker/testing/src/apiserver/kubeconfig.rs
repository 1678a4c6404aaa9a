//! Kubeconfigs for an embedded server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::EmbeddedApiserver;

impl<P> EmbeddedApiserver<P> {
    /// A kubeconfig with the given token in it, such as a developer's. Holds a secret.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &SecretString) -> SecretString {
        let user = json!({"token": token.expose_secret()});
        SecretString::from(self.kubeconfig_with(&user))
    }

    /// A kubeconfig that names a file with the token, read again by the client as it changes.
    #[must_use]
    pub fn kubeconfig_with_token_file(&self, path: &str) -> String {
        self.kubeconfig_with(&json!({"tokenFile": path}))
    }

    /// One cluster, one user, one context, all of the server's name. JSON, which every YAML reader
    /// takes.
    fn kubeconfig_with(&self, user: &Value) -> String {
        let name = self.name;
        let cluster = json!({
            "server": self.url(),
            "certificate-authority-data": STANDARD.encode(self.ca_pem()),
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
}
