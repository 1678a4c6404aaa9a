//! A tenant for one test, with a TargetCluster that it may use in some shapes.

use std::sync::Arc;

use keyferry_integration::runner::TestError;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path, tenant_with_minter};
use serde_json::{Value, json};

/// The shapes that store a token, and those that do not.
pub(crate) const EVERY_SHAPE: [&str; 7] = [
    "HTTP",
    "Exec",
    "FluxConfigMap",
    "KubeConfigSecret",
    "ClusterAPISecret",
    "ArgoCDSecret",
    "ClusterProfile",
];

/// A tenant whose namespace and TargetCluster have the same name.
pub(crate) struct Tenant {
    pub(crate) world: Arc<OnHub>,
    pub(crate) name: String,
}

impl Tenant {
    /// Creates a namespace in which Keyferry may mint, and a target that the tenant may use in
    /// these shapes.
    pub(crate) async fn new(
        world: &Arc<OnHub>,
        name: &str,
        shapes: &[&str],
    ) -> Result<Self, TestError> {
        tenant_with_minter(&world.hub, name, &[RECONCILER]).await?;
        let tenant = Self {
            world: Arc::clone(world),
            name: name.to_owned(),
        };
        tenant.put_target(shapes, &json!({})).await?;
        Ok(tenant)
    }

    /// Writes the target with further fields of its spec.
    pub(crate) async fn put_target(
        &self,
        shapes: &[&str],
        further: &Value,
    ) -> Result<(), TestError> {
        let mut spec = self.world.target_spec(0);
        spec["audience"] = json!(format!("https://{}.keyferry.test", self.name));
        if !shapes.is_empty() {
            spec["allow"] = json!([{ "namespaces": [self.name], "serviceAccounts": [RECONCILER], "deliveries": shapes }]);
        }
        for (field, value) in further.as_object().into_iter().flatten() {
            match (value.is_null(), spec.as_object_mut()) {
                (true, Some(spec)) => drop(spec.remove(field)),
                _ => spec[field] = value.clone(),
            }
        }
        self.world.put_target(&self.name, &spec).await
    }

    /// Writes an access with these deliveries.
    pub(crate) async fn put_access(&self, name: &str, deliveries: Value) -> Result<(), TestError> {
        self.put_access_with(name, json!({ "deliveries": deliveries }))
            .await
    }

    /// Writes an access with further fields of its spec.
    pub(crate) async fn put_access_with(
        &self,
        name: &str,
        further: Value,
    ) -> Result<(), TestError> {
        self.world
            .put_access(&self.name, name, &self.name, &further)
            .await
    }

    /// Waits for a condition of the access.
    pub(crate) async fn until(
        &self,
        access: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<Value, TestError> {
        self.world
            .until_access(&self.name, access, kind, status, reason)
            .await
    }

    /// Waits until the access is ready.
    pub(crate) async fn until_ready(&self, access: &str) -> Result<Value, TestError> {
        self.until(access, "Ready", "True", "Ready").await
    }

    /// The API path of a Secret of the tenant.
    pub(crate) fn secret(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/secrets/{name}", self.name)
    }

    /// The API path of the tenant's Secrets.
    pub(crate) fn secrets(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.name)
    }

    /// The API path of an access of the tenant.
    pub(crate) fn access(&self, name: &str) -> String {
        access_path(&self.name, name)
    }

    /// The number of tokens that Keyferry wrote into objects of the tenant, by its audit log.
    pub(crate) fn written(&self) -> Result<usize, TestError> {
        let prefix = format!("{}/", self.name);
        let of_tenant = |record: &&Value| {
            record["route"] == "delivery"
                && record["tokenId"].is_string()
                && record["access"]
                    .as_str()
                    .is_some_and(|access| access.starts_with(&prefix))
        };
        Ok(self.world.broker.audit()?.iter().filter(of_tenant).count())
    }
}
