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
mod snapshot;

use keyferry_api::config::{Delivery, DeliveryType};

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
pub use snapshot::{Bearer, CredentialNote, DeliveredCertificate, Snapshot};

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
        DeliveryType::KubeConfigSecret => secret::kubeconfig_secret(snapshot, delivery, token)?,
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
