//! The claims of a ServiceAccount token, in the form of kube-apiserver.

use aws_lc_rs::rand;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::policy::HubPolicy;
use crate::{EmbeddedError, locked};

/// The pod that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodBinding {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
}

/// The content of a token to sign.
pub(super) struct TokenSpec<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) audiences: &'a [String],
    /// The lifetime in seconds.
    pub(super) seconds: i64,
    pub(super) pod: Option<&'a PodBinding>,
}

/// Signs a bound token with the hub's current key.
pub(super) fn sign(hub: &HubPolicy, spec: &TokenSpec<'_>) -> Result<String, EmbeddedError> {
    let signer = locked(&hub.keys).signer();
    signer.sign(&bound(hub, spec, hub.now())?)
}

/// Signs a legacy token as in Secrets: no audience, no expiry.
pub(super) fn sign_legacy(
    hub: &HubPolicy,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<String, EmbeddedError> {
    let claims = json!({
        "iss": LEGACY_ISSUER,
        "sub": subject(namespace, name),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": format!("{name}-token"),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    let signer = locked(&hub.keys).signer();
    signer.sign(&claims)
}

/// `iss` of tokens from Secrets, whatever the hub's issuer.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// `sub` of a ServiceAccount, which is also its user name.
pub(super) fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns when a token signed at `now` for `seconds` expires.
pub(super) fn expiry(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

/// A random UUID of version 4.
pub(super) fn random_uuid() -> Result<String, EmbeddedError> {
    let mut bytes = [0_u8; 16];
    rand::fill(&mut bytes)?;
    let bits = u128::from_be_bytes(bytes);
    let bits = (bits & !(0xf << 76)) | (0x4 << 76);
    let bits = (bits & !(0x3 << 62)) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

fn bound(hub: &HubPolicy, spec: &TokenSpec<'_>, now: Timestamp) -> Result<Value, EmbeddedError> {
    let mut kubernetes = json!({
        "namespace": spec.namespace,
        "serviceaccount": {"name": spec.name, "uid": spec.uid},
    });
    if let (Some(pod), Some(fields)) = (spec.pod, kubernetes.as_object_mut()) {
        fields.insert("pod".to_owned(), json!({"name": pod.name, "uid": pod.uid}));
    }
    Ok(json!({
        "aud": spec.audiences,
        "exp": expiry(now, spec.seconds).as_second(),
        "iat": now.as_second(),
        "iss": hub.issuer,
        "jti": random_uuid()?,
        "kubernetes.io": kubernetes,
        "nbf": now.as_second(),
        "sub": subject(spec.namespace, spec.name),
    }))
}
