//! The leader is killed at a request of a delivery, from the first write to the last. The next leader
//! finishes what it began.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keyferry_integration::chaos_proxy::{KillMoment, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::{has_condition, renew_with_lifetime};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::deliveries::killed::{check_secret, recorded_tokens, whole};
use crate::deliveries::tenant::Tenant;

/// How long a new leader may take for one step on a busy machine.
const STEP_LIMIT: Duration = Duration::from_secs(100);

/// The first three writes after which the leader knows less than the hub: the token is minted, the
/// Secret is written, the token in it is replaced. The test on request has all requests.
pub(super) async fn killed_at_a_write_of_a_delivery_the_next_leader_finishes(
    stage: Arc<Stage>,
) -> TestResult {
    let tenant = Tenant::new(&stage.world, "killed-writes", &["HTTP", "KubeConfigSecret"]).await?;
    let writes = [
        (Method::POST, "/serviceaccounts/reconciler/token"),
        (Method::POST, "/secrets"),
        (Method::PUT, "/secrets/"),
    ];
    for (number, (method, path)) in writes.into_iter().enumerate() {
        let path = format!("/namespaces/{}{path}", tenant.name);
        let armed = stage.kill_at(KillMoment::BeforeAnswer, |fault| {
            Rule::on(method.clone(), &path, fault)
        })?;
        let access = Access::new(&tenant, format!("a{number}"), number);
        let request = stage
            .survive(armed, access.live(), access.check_halfway())
            .await?;
        assert!(request.is_some(), "no {method} {path}");
    }
    nothing_is_left(&tenant).await
}

/// Checks that every Secret has gone with its access, and that none came back.
pub(super) async fn nothing_is_left(tenant: &Tenant) -> TestResult {
    let left = whole(tenant).await?;
    assert_eq!(left, 0, "Secrets without an access");
    Ok(())
}

/// An access that is created, renewed, taken back and deleted.
pub(super) struct Access<'t> {
    tenant: &'t Tenant,
    name: String,
    /// Those of its tokens. No other access has them, so that none of its tokens is cached.
    lifetimes: [String; 2],
}

impl<'t> Access<'t> {
    /// The number is one that no other access of the tenant has.
    pub(super) fn new(tenant: &'t Tenant, name: String, number: usize) -> Self {
        let lifetimes = [61, 301].map(|minutes| format!("{}m", minutes + number));
        Self {
            tenant,
            name,
            lifetimes,
        }
    }

    /// Its whole life. Each step waits until a leader has finished it.
    pub(super) async fn live(&self) -> TestResult {
        let (tenant, name) = (self.tenant, &*self.name);
        let hub = &tenant.world.hub;
        let [first_life, next_life] = &self.lifetimes;
        let deliveries =
            json!([{ "name": "s", "type": "KubeConfigSecret", "tokenLifetime": first_life }]);
        let spec = json!({ "deliveries": deliveries, "probe": "Off" });
        tenant.put_access_with(name, spec).await?;
        let first = self.until_delivered("").await?;

        let secret = self.secret_name();
        renew_with_lifetime(hub, &tenant.name, name, &secret, next_life).await?;
        self.until_delivered(&first).await?;

        let without = json!({ "spec": { "deliveries": [{ "name": "h", "type": "HTTP" }] } });
        hub.admin().patch(&tenant.access(name), &without).await?;
        tenant.world.until_gone(&tenant.secret(&secret)).await?;
        self.until_settled(|_| true).await?;

        let at_once = json!({ "spec": { "deletionPolicy": "Immediate" } });
        hub.admin().patch(&tenant.access(name), &at_once).await?;
        hub.admin().delete(&tenant.access(name)).await?;
        tenant.world.until_gone(&tenant.access(name)).await
    }

    /// What holds while no leader runs: there is no Secret, or a whole one.
    pub(super) async fn check_halfway(&self) -> TestResult {
        assert!(whole(self.tenant).await? <= 1, "more than one Secret");
        Ok(())
    }

    /// Waits until the access reports a token other than the earlier one, and checks its Secret.
    /// Returns the token's ID.
    async fn until_delivered(&self, earlier: &str) -> Result<String, TestError> {
        let (tenant, hub) = (self.tenant, &self.tenant.world.hub);
        let access = self
            .until_settled(|access| {
                let id = &access["status"]["deliveries"][0]["tokenID"];
                id.is_string() && id != earlier
            })
            .await?;
        let secret = hub.admin().get(&tenant.secret(&self.secret_name())).await?;
        let recorded = recorded_tokens(&tenant.world.broker.audit()?);
        check_secret(tenant, &secret, &access, &recorded).await?;
        assert_eq!(whole(tenant).await?, 1, "one Secret of one access");
        let id = access["status"]["deliveries"][0]["tokenID"].as_str();
        Ok(id.unwrap_or_default().to_owned())
    }

    /// Waits until the status is about the current spec and ready, and satisfies the check.
    async fn until_settled(&self, is: impl Fn(&Value) -> bool) -> Result<Value, TestError> {
        let path = self.tenant.access(&self.name);
        let hub = self.tenant.world.hub.admin();
        until_object(hub, &path, "finished", STEP_LIMIT, |access| {
            access["status"]["observedGeneration"] == access["metadata"]["generation"]
                && has_condition(access, "Ready", "True", "Ready")
                && is(access)
        })
        .await
    }

    fn secret_name(&self) -> String {
        format!("{}-kubeconfig", self.name)
    }
}
