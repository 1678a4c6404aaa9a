//! A Keyferry for one test behind a chaos proxy, with its own tenant on the hub.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::ChaosProxy;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::{
    Access, Answer, Broker, BrokerSpec, BrokerTimes, Target, World, caller_token, make_tenant,
};

/// The ServiceAccount of the tenant.
pub(super) const ACCOUNT: &str = "runner";

/// One call may take five seconds. An exchange whose call fails makes one such call; the rest is
/// for a busy machine. Two calls in a row would take ten.
pub(super) const BOUND: Duration = Duration::from_secs(9);
/// A failure is cached for two seconds at most. The rest is room for a busy machine.
pub(super) const GRANTED_WITHIN: Duration = Duration::from_secs(15);

/// A Keyferry behind a proxy, for a tenant with the same name and its ServiceAccount [`ACCOUNT`].
pub(super) struct Behind {
    pub(super) proxy: ChaosProxy,
    pub(super) broker: Broker,
    pub(super) hub: Arc<ControlPlane>,
    pub(super) tenant: String,
}

impl Behind {
    /// Starts it with the targets as accesses of the same names. All have the first target's
    /// address, and each has its own audience.
    pub(super) async fn start(
        world: &World,
        hub: &Arc<ControlPlane>,
        name: &str,
        max_stale: u64,
        targets: &[&str],
    ) -> Result<Self, TestError> {
        let proxy = ChaosProxy::in_front_of(hub).await?;
        make_tenant(hub, name, &[ACCOUNT]).await?;
        let spec = spec(world, hub, name, max_stale, targets).through(&proxy.url());
        let broker = world.start_broker(hub, spec).await?;
        Ok(Self {
            proxy,
            broker,
            hub: Arc::clone(hub),
            tenant: name.to_owned(),
        })
    }

    /// A caller token that was never presented before.
    pub(super) async fn fresh_caller(&self) -> Result<String, TestError> {
        caller_token(&self.hub, &self.tenant, ACCOUNT).await
    }

    /// The name of an access as callers write it.
    pub(super) fn access(&self, target: &str) -> String {
        format!("{}/{target}", self.tenant)
    }

    /// Exchanges a caller token for a token of an access.
    pub(super) async fn exchange(&self, caller: &str, target: &str) -> Result<Answer, TestError> {
        self.broker.exchange(caller, &self.access(target)).await
    }

    /// The number of TokenRequests for the tenant's ServiceAccount that reached the proxy.
    pub(super) fn token_requests(&self) -> u64 {
        self.proxy.count(&Method::POST, &token_path(ACCOUNT))
    }

    /// The number of TokenReviews that reached the proxy.
    pub(super) fn token_reviews(&self) -> u64 {
        self.proxy.count(&Method::POST, "/tokenreviews")
    }

    /// Repeats the exchange until one is granted.
    pub(super) async fn until_granted(
        &self,
        caller: &str,
        target: &str,
        limit: Duration,
    ) -> Result<Answer, TestError> {
        let end = Instant::now() + limit;
        loop {
            let answer = self.exchange(caller, target).await?;
            if answer.status == 200 {
                return Ok(answer);
            }
            if Instant::now() > end {
                return Err(format!(
                    "not granted within {limit:?}: {} {}",
                    answer.status, answer.body
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The end of a TokenRequest's path.
pub(super) fn token_path(account: &str) -> String {
    format!("/serviceaccounts/{account}/token")
}

/// A Keyferry for one tenant, not yet behind a proxy.
pub(super) fn spec(
    world: &World,
    hub: &Arc<ControlPlane>,
    name: &str,
    max_stale: u64,
    targets: &[&str],
) -> BrokerSpec {
    let spec = BrokerSpec::of_hub(name, hub).with_times(BrokerTimes {
        max_stale,
        max_age: 60,
    });
    targets.iter().fold(spec, |spec, target| {
        let audience = format!("https://{name}-{target}.keyferry.test");
        let target_cluster = Target::of(world.target_a(), &audience)
            .named(target)
            .allowing(name, &[ACCOUNT]);
        spec.with_target(target_cluster)
            .with_access(Access::of(name, target, target, ACCOUNT))
    })
}
