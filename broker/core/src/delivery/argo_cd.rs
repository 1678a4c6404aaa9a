//! Argo CD's cluster Secret, with the plugin that fetches a token or, if the access requests it,
//! with a token.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::Delivery;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::Snapshot;

/// Renders its fields: `name`, `server`, `project` and `config`, a JSON text.
pub(super) fn argo_cd_secret(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    token: Option<&SecretString>,
) -> Value {
    let target = snapshot.target;
    let mut tls = json!({ "insecure": false });
    if let Some(pem) = snapshot.ca_pem {
        tls["caData"] = json!(STANDARD.encode(pem));
    }
    if let Some(name) = &target.tls_server_name {
        tls["serverName"] = json!(name);
    }
    let mut config = json!({ "tlsClientConfig": tls });
    if let Some(proxy) = &target.proxy_url {
        config["proxyUrl"] = json!(proxy);
    }
    match token {
        Some(token) => config["bearerToken"] = json!(token.expose_secret()),
        // Argo CD before 3.5 passes the plugin no cluster information, so the access is in the
        // arguments.
        None => {
            config["execProviderConfig"] = json!({
                "command": "keyferry",
                "args": ["credential", snapshot.access.name.to_string()],
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "installHint": "copy the keyferry binary into the image of Argo CD's controller \
                    and server",
            });
        }
    }
    let project = delivery
        .argo_cd
        .as_ref()
        .map(|argo_cd| argo_cd.project.as_str())
        .unwrap_or_default();
    let encode = |text: &str| STANDARD.encode(text);
    let config = Zeroizing::new(config.to_string());
    json!({
        "type": "Opaque",
        "labels": { "argocd.argoproj.io/secret-type": "cluster" },
        "data": {
            "name": encode(target.name.as_str()), "server": encode(&target.address), "project": encode(project), "config": encode(&config),
        },
    })
}

/// The name that `argocd cluster add` gives the Secret of a server. Of two Secrets for one server,
/// Argo CD uses either.
pub fn first_name_of(server: &str) -> Option<String> {
    let host = url::Url::parse(server)
        .ok()?
        .host_str()?
        .to_ascii_lowercase();
    let hash = server.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    Some(format!("cluster-{host}-{hash}"))
}
