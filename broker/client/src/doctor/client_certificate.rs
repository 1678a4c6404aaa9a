//! The credential of an access to the hub itself: a client certificate in a Secret, and no token.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::config::{DeliveryType, TargetAccess};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::client_certificate::user_of;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use keyferry_keys::client_certificate::common_name_of;
use keyferry_kube_authn::Code;
use serde::Deserialize;

use crate::doctor::diagnosis::Problem;
use crate::doctor::plan::problem;

const EXPIRES_AT: &str = "keyferry.dev/expires-at";

/// What is read of the Secret: its private key is not.
#[derive(Default, Deserialize)]
struct DeliveredSecret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(rename = "tls.crt")]
    certificate: Option<String>,
}

/// Reads the certificate of an access with the user's own rights. `Ok` describes one that is valid,
/// as a warning, because a diagnosis of tokens ends there.
pub(crate) async fn read(
    client: &HubClient,
    access: &TargetAccess,
    now: Timestamp,
) -> Result<Problem, Problem> {
    let is_certificate = |kind| kind == DeliveryType::ClientCertificateSecret;
    let mut deliveries = access.deliveries.iter();
    let delivery = deliveries.find(|one| is_certificate(one.delivery_type));
    let Some(secret) = delivery.and_then(|one| one.object_name.as_ref()) else {
        return Err(problem(
            Reason::TargetNotGranted,
            "the target is the hub itself, which gives no tokens, and the access has no \
             ClientCertificateSecret",
        ));
    };
    let namespace = &access.name.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
    let read = match client.get_object::<DeliveredSecret>(&path, "Secret").await {
        Ok(read) => Some(read),
        Err(HubError::NotFound(_)) => None,
        Err(error) => {
            let detail = format!("secret/{secret}: {error}");
            return Err(problem(Code::StartUnread, detail));
        }
    };
    let user = user_of(&ServiceAccount {
        namespace: namespace.clone(),
        name: access.service_account.clone(),
    });
    judge(secret.as_str(), read.as_ref(), &user, now)
}

fn judge(
    secret: &str,
    read: Option<&DeliveredSecret>,
    user: &str,
    now: Timestamp,
) -> Result<Problem, Problem> {
    let Some(read) = read else {
        let detail = format!(
            "secret/{secret} does not exist; Keyferry writes it once its request is approved: see \
             the condition Ready of the access"
        );
        return Err(problem(Reason::CertificatePending, detail));
    };
    let pem = read.data.certificate.as_ref();
    let pem = pem.and_then(|text| STANDARD.decode(text).ok());
    match pem.and_then(|pem| common_name_of(&pem)) {
        Some(name) if name == user => {}
        Some(_) => {
            let detail = format!("the certificate in secret/{secret} is not for {user}");
            return Err(problem(Reason::CertificateMismatch, detail));
        }
        None => {
            let detail = format!("secret/{secret} has no certificate that can be read");
            return Err(problem(Reason::CertificateMismatch, detail));
        }
    }
    let ends = read.metadata.annotations.get(EXPIRES_AT);
    let ends = ends.and_then(|text| text.parse::<Timestamp>().ok());
    match ends {
        Some(ends) if ends <= now => {
            let detail = format!("the certificate in secret/{secret} expired at {ends}");
            Err(problem(Reason::CertificateFailed, detail))
        }
        Some(ends) => Ok(problem(
            Code::CertificateOfTheHub,
            format!("secret/{secret} has a client certificate of {user}, valid until {ends}"),
        )),
        None => Ok(problem(
            Code::CertificateOfTheHub,
            format!("secret/{secret} has a client certificate of {user}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;
    use crate::doctor::diagnosis::Cause;

    const USER: &str = "keyferry:tenant-a:reader";

    fn secret(user: &str, ends: &str) -> DeliveredSecret {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        DeliveredSecret {
            metadata: Metadata {
                annotations: BTreeMap::from([(EXPIRES_AT.to_owned(), ends.to_owned())]),
            },
            data: Data {
                certificate: Some(STANDARD.encode(pem.pem())),
            },
        }
    }

    fn judged(read: Option<&DeliveredSecret>) -> (bool, Cause) {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        match judge("charts-client-tls", read, USER, now) {
            Ok(found) => (true, found.cause),
            Err(found) => (false, found.cause),
        }
    }

    #[test]
    fn each_state_of_the_certificate_has_its_reason() {
        let pending = Reason::CertificatePending.into();
        assert_eq!(judged(None), (false, pending));
        let (later, before) = ("2026-01-01T13:00:00Z", "2026-01-01T11:00:00Z");
        let valid = Code::CertificateOfTheHub.into();
        assert_eq!(judged(Some(&secret(USER, later))), (true, valid));
        let expired = Reason::CertificateFailed.into();
        assert_eq!(judged(Some(&secret(USER, before))), (false, expired));
        let mismatch: Cause = Reason::CertificateMismatch.into();
        let others = secret("keyferry:tenant-b:reader", later);
        assert_eq!(judged(Some(&others)), (false, mismatch));
        let empty = DeliveredSecret::default();
        assert_eq!(judged(Some(&empty)), (false, mismatch));
    }
}
