//! The objects by which a credential reaches its consumer: what they hold, whose they are, and when
//! they are written.
//!
//! All of it is decided here from what was read; writing is somebody else's. An object is rendered
//! from one snapshot of access, target and CA, and every document in it comes from a serialiser.

mod argo_cd;
mod body;
mod cluster_profile;
mod delivered_token;
mod express;
mod flux;
mod form;
mod ownership;
mod place;
mod plan;
mod secret;

use jiff::Timestamp;
use secrecy::SecretString;

use crate::config::{Delivery, DeliveryType, TargetAccess, TargetCluster};
use crate::kubeconfig::KubeconfigError;
use crate::service_account::Uid;

pub use argo_cd::first_name_of as argo_cd_own_name;
pub use body::{ObjectBody, ReadObject};
pub use cluster_profile::status as cluster_profile_status;
pub use delivered_token::DeliveredTokens;
pub use express::{Field, NotExpressible, express};
pub use form::Form;
pub use ownership::{FIELD_MANAGER, Found, Held, found};
pub use place::{ObjectKind, ObjectPlace};
pub use plan::{Step, plan};
pub use secret::cluster_of as cluster_api_cluster;

/// What an object is rendered from.
pub struct Snapshot<'a> {
    /// The access, an object of the hub.
    pub access: &'a TargetAccess,
    /// Its UID, which owns the object.
    pub owner: &'a Uid,
    /// The UID of the ServiceAccount: another account under the same name is somebody else.
    pub account_uid: &'a Uid,
    /// The target.
    pub target: &'a TargetCluster,
    /// The target's CA certificates as PEM; none means the client's own roots.
    pub ca_pem: Option<&'a str>,
}

/// The token of an object that holds one.
pub struct Bearer<'a> {
    /// The token.
    pub token: &'a SecretString,
    /// Its `jti`.
    pub token_id: &'a str,
    /// The `kid` of the key that signed it.
    pub key_id: &'a str,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it is to be written anew.
    pub renew_at: Timestamp,
}

/// The object of a delivery, whole; nothing for a shape that writes none. Without the token that it
/// is to hold it serves to plan.
///
/// # Errors
/// [`KubeconfigError`] only if a serialiser fails.
pub fn render(
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
        DeliveryType::KubeConfigSecret => secret::kubeconfig(snapshot, token)?,
        DeliveryType::ClusterAPISecret => secret::cluster_api(snapshot, &place.name, token)?,
        DeliveryType::ArgoCDSecret => argo_cd::secret(snapshot, delivery, token),
        DeliveryType::ClusterProfile => cluster_profile::object(snapshot),
        DeliveryType::Exec | DeliveryType::HTTP => return Ok(None),
    };
    Ok(Some(body::dress(
        object, &place, snapshot, delivery, bearer,
    )))
}

#[cfg(test)]
mod tests;
