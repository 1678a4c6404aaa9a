//! The ConfigMap of Flux's `provider: generic` (kustomize.toolkit.fluxcd.io
//! `spec.kubeConfig.configMapRef`). The ConfigMap holds no token: Flux
//! requests its own.

use serde_json::{Value, json};

use super::Snapshot;

/// Renders its data. Flux reads an address without a port as port 443; the port is written
/// explicitly, as Flux itself prints it.
pub(super) fn config_map(snapshot: &Snapshot<'_>) -> Value {
    let target = snapshot.target;
    let mut data = json!({
        "provider": "generic",
        "address": with_port(&target.address),
        "audiences": target.audience.as_str(),
        "serviceAccountName": snapshot.access.service_account.as_str(),
    });
    if let Some(pem) = snapshot.ca_pem {
        data["ca.crt"] = json!(pem);
    }
    // With this label Flux applies a changed address or CA at once instead of at its next interval.
    json!({ "labels": { "reconcile.fluxcd.io/watch": "Enabled" }, "data": data })
}

fn with_port(address: &str) -> String {
    let authority = address.trim_start_matches("https://");
    let after_host = authority
        .rfind(']')
        .map_or(authority, |end| authority.get(end..).unwrap_or_default());
    if after_host.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:443")
    }
}
