//! Delivered objects as Keyferry renders them, but without its controller, so that consumers can be
//! tested separately.

use jiff::{Timestamp, ToSpan};
use keyferry_api::config::{self, StoredAccess, StoredObjects, StoredTarget};
use keyferry_api::service_account::Uid;
use keyferry_core::delivery::{
    Bearer, CredentialNote, Snapshot, cluster_profile_status, render_object,
};
use secrecy::SecretString;
use serde_json::Value;

use crate::runner::TestError;

/// The settings for reading the objects. None of them appears in a delivered object.
const SETTINGS: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: CustomResources\nhubName: hub\n\
    publicURL: https://keyferry.example.com\ndiscovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";

/// The input of rendering: the two objects with their metadata, as the hub's API returns them.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<'a> {
    /// The TargetCluster.
    pub target: &'a Value,
    /// The TargetAccess.
    pub access: &'a Value,
    /// The target's CA as PEM.
    pub ca_pem: &'a str,
}

impl Delivered<'_> {
    /// Renders the object of the access's first delivery, with this token and with a status if that
    /// kind of object has them.
    ///
    /// # Errors
    /// Keyferry finds a fault in the objects, or the delivery writes no object.
    pub fn render(&self, token: Option<&str>) -> Result<Value, TestError> {
        let server = config::read(SETTINGS)
            .map_err(|error| format!("the settings of the rendering: {error}"))?
            .server;
        let (name, target) = StoredTarget::read(self.target, &server)
            .ok_or("this is no TargetCluster of the API")?;
        let mut stored = StoredObjects::default();
        stored.targets.insert(name.clone(), target);
        let assembled = stored.assemble(&server.cluster_resource_namespace);
        if let Some(fault) = assembled.targets.get(&name) {
            return Err(format!("TargetCluster {name}: {}", fault.message).into());
        }
        let target = assembled
            .policy
            .targets
            .get(&name)
            .ok_or("the TargetCluster is not in the policy")?;
        let (_, access) =
            StoredAccess::read(self.access).ok_or("this is no TargetAccess of the API")?;
        let access = access
            .read
            .map_err(|mistakes| format!("TargetAccess: {mistakes:?}"))?;
        let owner = access.uid.clone().ok_or("the TargetAccess has no UID")?;
        let delivery = access
            .deliveries
            .first()
            .ok_or("the TargetAccess has no delivery")?;
        let account_uid = Uid::new("the-uid-of-the-account").map_err(|error| format!("{error}"))?;
        let snapshot = Snapshot {
            access: &access,
            owner: &owner,
            account_uid: &account_uid,
            target,
            ca_pem: Some(self.ca_pem),
        };
        let token = token.map(SecretString::from);
        let now = Timestamp::now();
        let bearer = token.as_ref().map(|token| Bearer {
            token,
            note: CredentialNote {
                id: "test",
                key_id: Some("a-key"),
                expires_at: now + 1.hour(),
                renew_at: now + 30.minutes(),
            },
        });
        let body = render_object(&snapshot, delivery, bearer.as_ref())?
            .ok_or("the delivery writes no object")?;
        let mut object = serde_json::to_value(&body)?;
        if object["kind"] == "ClusterProfile" {
            let named = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            object["status"] = cluster_profile_status(&snapshot, &named, "")["status"].take();
        }
        Ok(object)
    }
}
