//! Requests for client certificates of the hub's apiserver: which certificate a grant allows, how
//! the request is written as a CertificateSigningRequest, and how its progress is read.

mod approval;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::foreign_text;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::service_account::ServiceAccount;
use keyferry_keys::client_certificate::CertificateRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::authorise::{Grant, Pair};

pub use approval::{ListedRequest, NotApproved, RequestSubject, check_approval};

/// The signer of client certificates that the hub's apiserver accepts.
pub const SIGNER_NAME: &str = "kubernetes.io/kube-apiserver-client";
/// The usages of such a certificate: no other is requested or accepted.
pub const KEY_USAGES: [&str; 2] = ["client auth", "digital signature"];
/// The API path of the CertificateSigningRequest collection.
pub const COLLECTION_PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

const ACCESS_ANNOTATION: &str = "keyferry.dev/access";
const DELIVERY_ANNOTATION: &str = "keyferry.dev/delivery";
/// Labels by which Keyferry finds the latest requests of a namespace without listing all others.
const NAMESPACE_LABEL: &str = "keyferry.dev/namespace";
const HOUR_LABEL: &str = "keyferry.dev/requested-in-hour";
/// The time over which requests are counted.
pub const COUNTING_WINDOW: Duration = Duration::from_secs(3600);

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

/// The API path that lists the requests that were made for a namespace in this hour and the last.
pub fn latest_requests_path(namespace: &Namespace, now: Timestamp) -> String {
    let hour = hour_of(now);
    let last = hour.saturating_sub(1);
    // The selector, percent-encoded: no name of a namespace needs that.
    format!(
        "{COLLECTION_PATH}?labelSelector=keyferry.dev%2Fnamespace%3D{namespace}%2C\
         keyferry.dev%2Frequested-in-hour%20in%20%28{last}%2C{hour}%29"
    )
}

/// What the count of requests needs of a CertificateSigningRequest. Whoever may create requests
/// decides how long the rest is, so it is skipped while a list is parsed.
#[derive(Debug, Deserialize)]
pub struct CountedRequest {
    metadata: CountedMetadata,
    spec: CountedSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedMetadata {
    creation_timestamp: Option<String>,
    annotations: Option<CountedAnnotations>,
}

#[derive(Debug, Deserialize)]
struct CountedAnnotations {
    #[serde(rename = "keyferry.dev/access")]
    access: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedSpec {
    signer_name: Option<String>,
    username: Option<String>,
}

impl CountedRequest {
    /// When it was created, if `requester` created it for this namespace within
    /// [`COUNTING_WINDOW`].
    ///
    /// Everyone who may create requests can write Keyferry's labels and annotations. Only the
    /// apiserver writes `spec.username`, so such requests do not use up a tenant's limit.
    pub fn counted_time(
        &self,
        requester: &str,
        namespace: &Namespace,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let spec = &self.spec;
        if spec.username.as_deref() != Some(requester)
            || spec.signer_name.as_deref() != Some(SIGNER_NAME)
        {
            return None;
        }
        let annotations = self.metadata.annotations.as_ref()?;
        let access = AccessName::parse(annotations.access.as_deref()?).ok()?;
        let created = self.metadata.creation_timestamp.as_deref()?.parse().ok()?;
        (access.namespace == *namespace && is_counted(created, now)).then_some(created)
    }
}

/// Whether a request that was made then still counts.
pub fn is_counted(made: Timestamp, now: Timestamp) -> bool {
    // A time in the future is a clock that was set back, and counts.
    Duration::try_from(now.duration_since(made)).map_or(true, |age| age < COUNTING_WINDOW)
}

fn hour_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(3600)
}

/// Renders the CertificateSigningRequest. It contains no secret.
pub fn request_object(
    request: &CertificateRequest,
    access: &AccessName,
    delivery: &ObjectName,
    now: Timestamp,
) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": name_of(request),
            "labels": {
                "app.kubernetes.io/managed-by": "keyferry",
                NAMESPACE_LABEL: access.namespace.as_str(),
                HOUR_LABEL: hour_of(now).to_string(),
            },
            // For the approver, which reads policy for this access itself.
            "annotations": { ACCESS_ANNOTATION: access.to_string(), DELIVERY_ANNOTATION: delivery.as_str() },
        },
        "spec": {
            "request": STANDARD.encode(request.pem()),
            "signerName": SIGNER_NAME,
            "expirationSeconds": request.lifetime().as_secs(),
            "usages": KEY_USAGES,
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
pub fn request_progress(object: &Value, request: &CertificateRequest) -> RequestProgress {
    let spec = &object["spec"];
    // Another user may have deleted the object and created one with its name. The issued
    // certificate is checked in any case.
    if spec["request"] != STANDARD.encode(request.pem()) || spec["signerName"] != SIGNER_NAME {
        return RequestProgress::Foreign;
    }
    if let Some(text) = condition_text(object, "Denied") {
        return RequestProgress::Denied(text);
    }
    if let Some(text) = condition_text(object, "Failed") {
        return RequestProgress::Failed(text);
    }
    let issued = object
        .pointer("/status/certificate")
        .and_then(Value::as_str);
    match issued.filter(|text| !text.is_empty()) {
        // Bytes that cannot be decoded are refused later, by the check of the certificate.
        Some(text) => RequestProgress::Issued(STANDARD.decode(text).unwrap_or_default()),
        None if condition_text(object, "Approved").is_some() => RequestProgress::Approved,
        None => RequestProgress::Pending,
    }
}

/// The reason and message of a condition, if the object has it.
fn condition_text(object: &Value, kind: &str) -> Option<String> {
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
