//! Writes kubeconfig files as JSON, which is valid YAML.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The credential of a kubeconfig's user.
#[derive(Debug, Clone)]
pub enum Credential<'a> {
    /// Files with a client certificate and its key.
    ClientCertificate {
        /// PEM file of the certificate.
        cert: &'a Path,
        /// PEM file of the key.
        key: &'a Path,
    },
    /// A file with a bearer token, which clients re-read about once a minute.
    TokenFile(&'a Path),
    /// No credential.
    Anonymous,
}

/// Writes a kubeconfig with one context, and returns its path.
pub fn write_kubeconfig(
    path: PathBuf,
    server: &str,
    ca_pem: &str,
    credential: &Credential<'_>,
) -> std::io::Result<PathBuf> {
    let user = match credential {
        Credential::ClientCertificate { cert, key } => {
            json!({ "client-certificate": cert, "client-key": key })
        }
        Credential::TokenFile(file) => json!({ "tokenFile": file }),
        Credential::Anonymous => json!({}),
    };
    std::fs::write(&path, document(server, ca_pem, &user).to_string())?;
    Ok(path)
}

fn document(server: &str, ca_pem: &str, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "clusters": [{
            "name": "cluster",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca_pem) },
        }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "default", "context": { "cluster": "cluster", "user": "user" } }],
    })
}
