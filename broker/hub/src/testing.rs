//! Fakes that unit tests share: Secrets and objects in memory.

mod objects;
mod own_user;

use std::sync::Arc;

use futures::future::BoxFuture;
use keyferry_api::name::ObjectName;
use keyferry_api::service_account::ServiceAccount;
use parking_lot::Mutex;

use crate::input_components::InputComponents;
use crate::ports::{HubError, SecretData, SecretStore, StoredSecret};
use crate::watch_health::WatchHealth;

pub use self::objects::{Failing, FakeObjects};
pub use self::own_user::{OWN_USER, OwnUser};

/// Creates fleet inputs of targets, each by target, component and YAML.
pub fn input_components(entries: &[(&str, &str, &str)]) -> Arc<InputComponents> {
    let components = InputComponents::default();
    components.note_listed();
    for (target, component, text) in entries {
        let metadata = serde_json::json!({ "name": format!("keyferry-inputs-{target}") });
        let data = serde_json::json!({ (*component): text });
        let object = serde_json::json!({ "metadata": metadata, "data": data });
        if let Ok(config_map) = serde_json::from_value(object) {
            components.set_inputs(&config_map);
        }
    }
    Arc::new(components)
}

/// Creates a ServiceAccount from its namespace and name.
#[allow(clippy::unwrap_used, reason = "tests write good names")]
pub fn account_of(namespace: &str, name: &str) -> ServiceAccount {
    ServiceAccount::from_username(&format!("system:serviceaccount:{namespace}:{name}")).unwrap()
}

/// The Secrets with their versions.
type Shelf = std::collections::BTreeMap<ObjectName, (u64, SecretData)>;

/// Secrets in memory, with the compare-and-swap of the API.
#[derive(Default)]
pub struct MemorySecrets {
    secrets: Mutex<Shelf>,
    away: std::sync::atomic::AtomicBool,
}

impl MemorySecrets {
    /// Sets whether the store is unreachable.
    pub fn be_away(&self, away: bool) {
        self.away.store(away, std::sync::atomic::Ordering::Relaxed);
    }

    fn lock(&self) -> Result<parking_lot::MutexGuard<'_, Shelf>, HubError> {
        if self.away.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(HubError::Unreachable("away".to_owned()));
        }
        Ok(self.secrets.lock())
    }
}

impl SecretStore for MemorySecrets {
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>> {
        Box::pin(async move {
            let found = self.lock()?.get(name).map(|(version, data)| StoredSecret {
                version: version.to_string(),
                data: data.clone(),
            });
            // Lets other tasks write between a read and the write that depends on it.
            tokio::task::yield_now().await;
            Ok(found)
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let mut secrets = self.lock()?;
            if secrets.contains_key(name) {
                return Err(HubError::Conflict("there is one".to_owned()));
            }
            secrets.insert(name.clone(), (1, data.clone()));
            Ok(())
        })
    }

    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            let mut secrets = self.lock()?;
            let (present, kept) = secrets
                .get_mut(name)
                .ok_or_else(|| HubError::NotFound("none".to_owned()))?;
            if present.to_string() != version {
                return Err(HubError::Conflict("another version".to_owned()));
            }
            (*present, *kept) = (*present + 1, data.clone());
            Ok(())
        })
    }
}
