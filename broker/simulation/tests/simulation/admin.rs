//! An administrator's own access to the Secrets, which no failure of a replica's network touches.

use std::sync::Arc;

use futures::future::BoxFuture;
use keyferry_api::name::ObjectName;
use keyferry_hub::ports::{HubError, SecretData, SecretStore, StoredSecret};

use crate::world::World;

/// The Secrets, as `keyferry revoke` reads and writes them.
pub(crate) struct AdminSecrets(pub(crate) Arc<World>);

impl SecretStore for AdminSecrets {
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>> {
        self.0.secrets.get(name)
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        self.0.secrets.create(name, data)
    }

    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        self.0.secrets.replace(name, version, data)
    }
}
