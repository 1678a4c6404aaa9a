//! A Secret of type `kubernetes.io/tls` with a client certificate for the hub's apiserver, as
//! Flux's `certSecretRef` and `curl` read it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::{DeliveredCertificate, Snapshot};

/// The type of the Secret. The apiserver requires `tls.crt` and `tls.key` in it.
pub(super) const SECRET_TYPE: &str = "kubernetes.io/tls";

/// Renders the Secret.
pub(super) fn certificate_secret(
    snapshot: &Snapshot<'_>,
    certificate: Option<&DeliveredCertificate<'_>>,
) -> Value {
    let empty = SecretString::from("");
    let (chain, key) = certificate.map_or(("", &empty), |one| (one.chain, one.key));
    let mut data = json!({
        "tls.crt": STANDARD.encode(chain),
        "tls.key": STANDARD.encode(key.expose_secret()),
    });
    if let Some(pem) = snapshot.ca_pem {
        data["ca.crt"] = json!(STANDARD.encode(pem));
    }
    json!({ "type": SECRET_TYPE, "data": data })
}
