//! Requests for client certificates of the hub's apiserver: which certificate a grant allows, how
//! the request is written as a CertificateSigningRequest, and how its progress is read.

mod approval;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_keys::client_certificate::CertificateRequest;
use serde_json::{Value, json};

use crate::authorise::{Grant, Pair};

pub use approval::{NotApproved, RequestSubject, approve};

/// The signer of client certificates that the hub's apiserver accepts.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The usages of such a certificate: no other is requested or accepted.
pub const USAGES: [&str; 2] = ["client auth", "digital signature"];
/// The API path of the CertificateSigningRequest collection.
pub const COLLECTION: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

const ACCESS: &str = "keyferry.dev/access";
const DELIVERY: &str = "keyferry.dev/delivery";

/// The user as which the hub's apiserver authenticates a ServiceAccount's certificate. It is never
/// the ServiceAccount's own user name, so that roles of the ServiceAccount do not apply to a
/// certificate that cannot be revoked.
pub fn user_of(account: &ServiceAccount) -> String {
    format!("keyferry:{}:{}", account.namespace, account.name)
}

/// The certificate that one grant allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    user: String,
    lifetime: Duration,
    target: ObjectName,
}

impl WantedCertificate {
    /// Returns the certificate for the ServiceAccount of a grant.
    pub fn of(grant: &Grant) -> Self {
        let pair = grant.pair();
        Self {
            user: user_of(&pair.service_account().account),
            lifetime: pair.lifetime(),
            target: pair.target().clone(),
        }
    }

    /// The user that it is for.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The lifetime to request.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Whether it is what this pair allows.
    pub fn is_of(&self, pair: &Pair) -> bool {
        self.user == user_of(&pair.service_account().account)
            && self.lifetime == pair.lifetime()
            && self.target == *pair.target()
    }
}

/// The name of the CertificateSigningRequest: unique, because each request has a key of its own.
pub fn name_of(request: &CertificateRequest) -> String {
    format!("keyferry-{}", request.fingerprint())
}

/// Renders the CertificateSigningRequest. It contains no secret.
pub fn object(request: &CertificateRequest, access: &AccessName, delivery: &ObjectName) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": name_of(request),
            "labels": { "app.kubernetes.io/managed-by": "keyferry" },
            // For the approver, which reads policy for this access itself.
            "annotations": { ACCESS: access.to_string(), DELIVERY: delivery.as_str() },
        },
        "spec": {
            "request": STANDARD.encode(request.pem()),
            "signerName": SIGNER,
            "expirationSeconds": request.lifetime().as_secs(),
            "usages": USAGES,
        },
    })
}

/// How far the hub has got with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestProgress {
    /// It waits for its approval.
    Pending,
    /// It is approved, and waits for the signer.
    Approved,
    /// It was denied; the text is from the hub.
    Denied(String),
    /// The signer refused it; the text is from the hub.
    Failed(String),
    /// The certificate as PEM, unchecked.
    Issued(Vec<u8>),
    /// The object is not the one that was created.
    Foreign,
}

/// Reads the progress of a request from its CertificateSigningRequest.
pub fn progress(object: &Value, request: &CertificateRequest) -> RequestProgress {
    let spec = &object["spec"];
    // Another user may have deleted the object and created one with its name. The issued
    // certificate is checked in any case.
    if spec["request"] != STANDARD.encode(request.pem()) || spec["signerName"] != SIGNER {
        return RequestProgress::Foreign;
    }
    if let Some(text) = condition(object, "Denied") {
        return RequestProgress::Denied(text);
    }
    if let Some(text) = condition(object, "Failed") {
        return RequestProgress::Failed(text);
    }
    let issued = object
        .pointer("/status/certificate")
        .and_then(Value::as_str);
    match issued.filter(|text| !text.is_empty()) {
        // Bytes that cannot be decoded are refused later, by the check of the certificate.
        Some(text) => RequestProgress::Issued(STANDARD.decode(text).unwrap_or_default()),
        None if condition(object, "Approved").is_some() => RequestProgress::Approved,
        None => RequestProgress::Pending,
    }
}

/// The reason and message of a condition, if the object has it.
fn condition(object: &Value, kind: &str) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|one| one["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    let text = match (text("reason"), text("message")) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    Some(foreign_text::one_line(&text, 256))
}

#[cfg(test)]
mod tests;
