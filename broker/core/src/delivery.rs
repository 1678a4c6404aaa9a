//! The objects that carry a credential to its consumer: their content, their ownership, and when
//! they are written.
//!
//! The decisions are made here from what was read; the writes happen elsewhere. An object is
//! rendered from one snapshot of access, target and CA, and every document in it comes from a
//! serialiser.

mod argo_cd;
mod body;
mod client_certificate;
mod cluster_profile;
mod delivered_token;
mod express;
mod flux;
mod flux_credential;
mod flux_object;
mod form;
mod ownership;
mod place;
mod plan;
mod secret;

use jiff::Timestamp;
use keyferry_api::config::{Delivery, DeliveryType, TargetAccess, TargetCluster};
use keyferry_api::service_account::Uid;
use secrecy::SecretString;

use crate::kubeconfig::KubeconfigError;

pub use argo_cd::first_name_of as argo_cd_own_name;
pub use body::{ObjectBody, ReadObject};
pub use cluster_profile::profile_status as cluster_profile_status;
pub use delivered_token::DeliveredTokens;
pub use express::{Field, NotExpressible, check_expressible};
pub use flux_credential::OtherFluxCredential;
pub use flux_object::FluxObject;
pub use form::Form;
pub use ownership::{DeliveredObject, FIELD_MANAGER, OwnedObject, classify_object};
pub use place::{ObjectKind, ObjectPlace};
pub use plan::{Step, plan_step};
pub use secret::cluster_of as cluster_api_cluster;

/// The inputs from which an object is rendered.
pub struct Snapshot<'a> {
    /// The access, which is an object of the hub.
    pub access: &'a TargetAccess,
    /// The access's UID, which owns the object.
    pub owner: &'a Uid,
    /// The UID of the ServiceAccount: a recreated account of the same name is a different one.
    pub account_uid: &'a Uid,
    /// The target.
    pub target: &'a TargetCluster,
    /// The target's CA certificates as PEM; none means the client's own roots.
    pub ca_pem: Option<&'a str>,
}

/// The token to write into an object.
pub struct Bearer<'a> {
    /// The token.
    pub token: &'a SecretString,
    /// What the annotations say of it: its `jti`, and the `kid` of the key that signed it.
    pub note: CredentialNote<'a>,
}

/// The certificate to write into an object, with its key.
pub struct DeliveredCertificate<'a> {
    /// The certificate as PEM.
    pub chain: &'a str,
    /// Its private key as PEM.
    pub key: &'a SecretString,
    /// What the annotations say of it: its serial number.
    pub note: CredentialNote<'a>,
}

/// What an object's annotations say of the credential in it.
#[derive(Clone, Copy, Debug)]
pub struct CredentialNote<'a> {
    /// What identifies the credential.
    pub id: &'a str,
    /// The key that signed it, if that is a key of the hub.
    pub key_id: Option<&'a str>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it is due for renewal.
    pub renew_at: Timestamp,
}

/// Renders the object of a `ClientCertificateSecret`. Without its certificate, the result serves
/// only to plan. `None` for a delivery of another type.
pub fn render_certificate(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    certificate: Option<&DeliveredCertificate<'_>>,
) -> Option<ObjectBody> {
    let place = ObjectPlace::of(snapshot.access, delivery)?;
    if !delivery.holds_certificate() {
        return None;
    }
    let object = client_certificate::certificate_secret(snapshot, certificate);
    Some(body::add_metadata(
        object,
        &place,
        snapshot,
        delivery,
        certificate.map(|one| &one.note),
    ))
}

/// Renders the object of a delivery; `None` for a type that writes no object. Without its token,
/// the result serves only to plan.
///
/// # Errors
/// [`KubeconfigError`] only if a serialiser fails.
pub fn render_object(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    bearer: Option<&Bearer<'_>>,
) -> Result<Option<ObjectBody>, KubeconfigError> {
    let Some(place) = ObjectPlace::of(snapshot.access, delivery) else {
        return Ok(None);
    };
    let token = bearer.map(|bearer| bearer.token);
    let object = match delivery.delivery_type {
        DeliveryType::FluxConfigMap => flux::config_map(snapshot),
        DeliveryType::KubeConfigSecret => secret::kubeconfig_secret(snapshot, token)?,
        DeliveryType::ClusterAPISecret => secret::cluster_api(snapshot, &place.name, token)?,
        DeliveryType::ArgoCDSecret => argo_cd::argo_cd_secret(snapshot, delivery, token),
        DeliveryType::ClusterProfile => cluster_profile::profile_object(snapshot),
        DeliveryType::ClientCertificateSecret => {
            return Ok(render_certificate(snapshot, delivery, None));
        }
        DeliveryType::Exec | DeliveryType::HTTP => return Ok(None),
    };
    Ok(Some(body::add_metadata(
        object,
        &place,
        snapshot,
        delivery,
        bearer.map(|bearer| &bearer.note),
    )))
}

#[cfg(test)]
mod tests;
