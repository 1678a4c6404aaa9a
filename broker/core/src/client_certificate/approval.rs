//! Decides whether a request may be approved without a user. The approver reads policy and the live
//! objects of the hub itself, and does not trust the requester about them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::{CertificateApproval, DeliveryType, Policy};
use keyferry_api::lifetime;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_keys::client_certificate::{ReceivedCertificateRequest, UnexpectedRequest};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{KEY_USAGES, SIGNER_NAME, user_of};
use crate::authorise::{self, HubView};

/// The delivery that a request names. It is only a claim until [`check_approval`] has compared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSubject {
    /// The access.
    pub access: AccessName,
    /// The name of the delivery in its list.
    pub delivery: ObjectName,
}

impl RequestSubject {
    /// Reads it from a CertificateSigningRequest that `requester` created for the signer and that
    /// is not decided yet; `None` for all others, about which the approver does not decide.
    pub fn of(object: &Value, requester: &str) -> Option<Self> {
        let listed = ListedRequest::deserialize(object).ok()?;
        listed.into_pending(requester).map(|(_, subject)| subject)
    }
}

/// A CertificateSigningRequest of a list, reduced to what says whether the approver decides on it.
/// Users of the hub can create requests of up to 1 MiB, and the rest is skipped while the list is
/// parsed.
#[derive(Debug, Deserialize)]
pub struct ListedRequest {
    metadata: ListedMetadata,
    spec: ListedSpec,
    status: Option<ListedStatus>,
}

#[derive(Debug, Deserialize)]
struct ListedMetadata {
    name: Option<String>,
    annotations: Option<SubjectAnnotations>,
}

#[derive(Debug, Deserialize)]
struct SubjectAnnotations {
    #[serde(rename = "keyferry.dev/access")]
    access: Option<String>,
    #[serde(rename = "keyferry.dev/delivery")]
    delivery: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedSpec {
    signer_name: Option<String>,
    username: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ListedStatus {
    conditions: Option<Vec<IgnoredAny>>,
}

impl ListedRequest {
    /// Its name and the delivery that it names, if `requester` created it for the signer and it is
    /// not decided yet.
    pub fn into_pending(self, requester: &str) -> Option<(String, RequestSubject)> {
        let spec = &self.spec;
        if spec.signer_name.as_deref() != Some(SIGNER_NAME)
            || spec.username.as_deref() != Some(requester)
        {
            return None;
        }
        let conditions = self.status.and_then(|status| status.conditions);
        if conditions.is_some_and(|conditions| !conditions.is_empty()) {
            return None;
        }
        let annotations = self.metadata.annotations?;
        let subject = RequestSubject {
            access: AccessName::parse(&annotations.access?).ok()?,
            delivery: ObjectName::new(annotations.delivery?).ok()?,
        };
        Some((self.metadata.name?, subject))
    }
}

/// Why a request stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// Policy does not grant the delivery, or does not grant it now.
    #[error("policy does not grant this delivery to the access")]
    NotGranted,
    /// The target or the access is suspended.
    #[error("the TargetCluster or the TargetAccess is suspended")]
    Suspended,
    /// The target's certificates are approved by a user.
    #[error("the TargetCluster has clientCertificates.approval: Manual")]
    Manual,
    /// The request is not as Keyferry makes them.
    #[error("{0}")]
    UnexpectedRequest(#[from] UnexpectedRequest),
    /// It is for another user.
    #[error("it is for another user than {0}")]
    OtherUser(String),
    /// Its usages are not exactly the two.
    #[error("its usages are not exactly client auth and digital signature")]
    Usages,
    /// Its lifetime is missing, too short or longer than the target allows.
    #[error("its expirationSeconds is not between 600 and {0}")]
    Lifetime(u64),
}

/// Decides on a request for the delivery that it names.
///
/// # Errors
/// [`NotApproved`] says why a user has to decide.
pub fn check_approval(
    object: &Value,
    subject: &RequestSubject,
    policy: &Policy,
    hub: &dyn HubView,
) -> Result<(), NotApproved> {
    let pair = authorise::delivery_pair(policy, hub, &subject.access, &subject.delivery)
        .map_err(|_| NotApproved::NotGranted)?;
    let (target, access) = (
        policy.targets.get(pair.target()),
        policy.accesses.get(&subject.access),
    );
    let (Some(target), Some(access)) = (target, access) else {
        return Err(NotApproved::NotGranted);
    };
    let named = access.delivery(&subject.delivery);
    if named.is_none_or(|named| named.delivery_type != DeliveryType::ClientCertificateSecret) {
        return Err(NotApproved::NotGranted);
    }
    let rules = target.client_certificates.ok_or(NotApproved::NotGranted)?;
    if target.suspend || access.suspend {
        return Err(NotApproved::Suspended);
    }
    if rules.approval != CertificateApproval::Automatic {
        return Err(NotApproved::Manual);
    }
    let spec = &object["spec"];
    let pem = spec["request"]
        .as_str()
        .and_then(|text| STANDARD.decode(text).ok());
    let request = ReceivedCertificateRequest::read(&pem.unwrap_or_default())?;
    let user = user_of(&pair.service_account().account);
    if request.common_name() != user {
        return Err(NotApproved::OtherUser(user));
    }
    check_usages(&spec["usages"])?;
    check_lifetime(&spec["expirationSeconds"], rules.max_lifetime)
}

fn check_usages(usages: &Value) -> Result<(), NotApproved> {
    let mut listed: Vec<&str> = usages
        .as_array()
        .into_iter()
        .flatten()
        .map(|usage| usage.as_str().unwrap_or_default())
        .collect();
    listed.sort_unstable();
    if listed == KEY_USAGES {
        Ok(())
    } else {
        Err(NotApproved::Usages)
    }
}

fn check_lifetime(seconds: &Value, max: Duration) -> Result<(), NotApproved> {
    let within = |seconds: u64| (lifetime::MIN.as_secs()..=max.as_secs()).contains(&seconds);
    if seconds.as_u64().is_some_and(within) {
        Ok(())
    } else {
        Err(NotApproved::Lifetime(max.as_secs()))
    }
}
