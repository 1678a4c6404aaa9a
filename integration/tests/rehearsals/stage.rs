//! The accesses and clients of a scenario, and a Keyferry that may be away.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_integration::keyferry_process::KeyferryProcess;
use keyferry_integration::process::Signal;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::Ground;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, audience};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::consumers::{Client, Way};
use super::prediction::MAX_AGE;
use crate::rotation::on_hub::TARGET_TENANTS;

/// How long callers call before the event. Keyferry has then confirmed them within 10 s.
const WARM_UP: Duration = Duration::from_secs(12);

/// A hub with its Keyferry and two targets, for one scenario after the other.
pub(super) struct Stage {
    pub(super) world: Arc<OnHub>,
    /// The server, if it is not the first one.
    later_server: Mutex<Option<KeyferryProcess>>,
    /// The CA that each target's certificate comes from.
    authorities: Mutex<[String; 2]>,
    accesses_per_tenant: usize,
    /// ServiceAccounts of the accesses of which nobody asked before.
    new_accounts: Mutex<Vec<String>>,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Stage {
    /// Starts everything, with so many accesses a tenant.
    pub(super) async fn start(accesses_per_tenant: usize) -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground, accesses_per_tenant)
            .await
            .map_err(NotStarted::failed)
    }

    async fn build(ground: Ground, accesses_per_tenant: usize) -> Result<Self, TestError> {
        let world = OnHub::build_with(ground, MAX_AGE).await?;
        let authorities = [0, 1].map(|index| world.targets[index].ca_pem().to_owned());
        let stage = Self {
            world: Arc::new(world),
            later_server: Mutex::new(None),
            authorities: Mutex::new(authorities),
            accesses_per_tenant,
            new_accounts: Mutex::new(Vec::new()),
        };
        for (index, (_, tenant)) in TARGET_TENANTS.into_iter().enumerate() {
            stage.put_target(index).await?;
            for number in 0..accesses_per_tenant {
                let deliveries = json!({ "deliveries": [
                    { "name": "secret", "type": "KubeConfigSecret", "tokenLifetime": "10m" },
                    { "name": "flux", "type": "FluxConfigMap" },
                    { "name": "http", "type": "HTTP" },
                ] });
                stage
                    .put_access(tenant, &access_name(number), index, &deliveries)
                    .await?;
            }
        }
        Ok(stage)
    }

    /// The TargetCluster of a target, with the CA that its certificate comes from.
    pub(super) fn target_spec(&self, index: usize) -> Value {
        let (_, tenant) = TARGET_TENANTS[index];
        let mut spec = self.world.target_spec(index);
        let mut accounts = self.new_accounts.lock().clone();
        accounts.push(RECONCILER.to_owned());
        spec["caBundle"] = self.authorities.lock()[index].clone().into();
        spec["allow"] = json!([{
            "namespaces": [tenant], "serviceAccounts": accounts,
            "deliveries": ["KubeConfigSecret", "FluxConfigMap", "HTTP"],
        }]);
        spec
    }

    /// The CA that a target's certificate comes from.
    pub(super) fn authority(&self, index: usize) -> String {
        self.authorities.lock()[index].clone()
    }

    /// Remembers another CA of a target.
    pub(super) fn set_authority(&self, index: usize, ca_pem: &str) {
        ca_pem.clone_into(&mut self.authorities.lock()[index]);
    }

    pub(super) async fn put_target(&self, index: usize) -> TestResult {
        let (target, _) = TARGET_TENANTS[index];
        self.world
            .put_target(target, &self.target_spec(index))
            .await
    }

    async fn put_access(
        &self,
        tenant: &str,
        name: &str,
        target: usize,
        deliveries: &Value,
    ) -> TestResult {
        let (target, _) = TARGET_TENANTS[target];
        self.world
            .put_access(tenant, name, target, deliveries)
            .await?;
        self.world
            .until_access(tenant, name, "Ready", "True", "Ready")
            .await?;
        Ok(())
    }

    /// Declares an access of each tenant of which nobody asked before, and for whose ServiceAccount
    /// no token exists.
    pub(super) async fn declare_new_accesses(&self, name: &str) -> TestResult {
        self.new_accounts.lock().push(name.to_owned());
        for (index, (_, tenant)) in TARGET_TENANTS.into_iter().enumerate() {
            self.world.hub.create_service_account(tenant, name).await?;
            self.put_target(index).await?;
            let on_request = json!({
                "serviceAccountName": name,
                "deliveries": [{ "name": "http", "type": "HTTP" }],
            });
            self.put_access(tenant, name, index, &on_request).await?;
        }
        Ok(())
    }

    /// Gives Keyferry a new token of its own, as a kubelet does: an earlier scenario may have taken the
    /// key of the last one from the hub.
    pub(super) async fn renew_own_token(&self) -> TestResult {
        Ok(self.world.broker.kubeconfig().rewrite_token(3600).await?)
    }

    /// Waits until each access is ready.
    pub(super) async fn until_ready(&self) -> TestResult {
        for (_, tenant) in TARGET_TENANTS {
            for number in 0..self.accesses_per_tenant {
                self.world
                    .until_access(tenant, &access_name(number), "Ready", "True", "Ready")
                    .await?;
            }
        }
        Ok(())
    }

    /// Clients of these ways for each access; one of each tenant for `new_access`.
    pub(super) fn clients(&self, ways: &[Way], new_access: Option<&str>) -> Vec<Client> {
        let mut clients = Vec::new();
        for (target, tenant) in TARGET_TENANTS {
            let client = |way, access: String, account: &str| Client {
                way,
                tenant,
                access,
                account: account.to_owned(),
                target,
            };
            for number in 0..self.accesses_per_tenant {
                let of_one = |way: &Way| client(*way, access_name(number), RECONCILER);
                clients.extend(ways.iter().map(of_one));
            }
            clients.extend(
                new_access.map(|access| client(Way::AsksForNewAccess, access.to_owned(), access)),
            );
        }
        clients
    }

    /// A token that the hub mints for a target.
    pub(super) async fn mint(&self, tenant: &str, target: &str) -> Result<String, TestError> {
        let minted = self
            .world
            .hub
            .token_request(tenant, RECONCILER, &[&audience(target)], 600)
            .await?;
        Ok(minted.token)
    }

    /// When an event begins that is rehearsed now.
    pub(super) fn planned_begin() -> Timestamp {
        let at = Timestamp::now() + WARM_UP;
        // The flag's time has whole seconds.
        Timestamp::from_second(at.as_second() + 1).unwrap_or(at)
    }

    /// Ends Keyferry without warning.
    pub(super) async fn kill_keyferry(&self) -> TestResult {
        let later = self.later_server.lock().take();
        match later {
            Some(process) => process.kill().await?,
            None => self.world.broker.process().signal(Signal::Kill).await?,
        }
        Ok(())
    }

    /// Starts a Keyferry in place of the one that was killed.
    pub(super) async fn start_keyferry(&self) -> TestResult {
        let process = self
            .world
            .broker
            .started_again(self.world.ground.binary())
            .await?;
        *self.later_server.lock() = Some(process);
        Ok(())
    }
}

fn access_name(number: usize) -> String {
    format!("apps-{number}")
}

/// Waits for a moment of the wall clock.
pub(super) async fn sleep_until(at: Timestamp) {
    let left = at.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}
