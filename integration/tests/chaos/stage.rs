//! A hub whose Keyferry reaches it through a proxy, and that can be killed at any of its requests.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, KillMoment, KillSwitch, Rule, RuleId};
use keyferry_integration::keyferry_process::KeyferryProcess;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER};
use keyferry_integration::world::{Broker, BrokerSpec, Ground, claims};
use parking_lot::Mutex;
use serde_json::json;

use crate::deliveries::lease::free;

/// Objects on the hub, as the first server has them.
const LINES: &str = "objects: CustomResources\nmanagedIssuers:\n  enabled: true\n";
const DEAD_WITHIN: Duration = Duration::from_secs(10);

/// Both sides of a request at which a process can be killed.
pub(super) const MOMENTS: [KillMoment; 2] = [KillMoment::BeforeRequest, KillMoment::BeforeAnswer];

/// A hub with its Keyferry behind a proxy, and two targets.
pub(super) struct Stage {
    pub(super) world: Arc<OnHub>,
    /// Between the server and the hub.
    pub(super) proxy: ChaosProxy,
    /// The server that replaced the first one.
    replacement: Mutex<Option<KeyferryProcess>>,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Stage {
    /// Starts everything.
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let started: Arc<Mutex<Option<ChaosProxy>>> = Arc::default();
        let kept = Arc::clone(&started);
        // The shortest max-age that a configuration may have, because keys wait for it.
        let world = OnHub::build_behind(ground, 30, |hub| async move {
            let proxy = ChaosProxy::in_front_of(&hub).await?;
            let url = proxy.url();
            *kept.lock() = Some(proxy);
            Ok(url)
        })
        .await?;
        let proxy = started.lock().take().ok_or("the proxy did not start")?;
        Ok(Self {
            world: Arc::new(world),
            proxy,
            replacement: Mutex::default(),
        })
    }

    /// Lets the proxy kill the server at the request that the rule selects, which is made of this
    /// fault.
    pub(super) fn kill_at(
        &self,
        moment: KillMoment,
        rule: impl FnOnce(Fault) -> Rule,
    ) -> Result<(KillSwitch, RuleId), TestError> {
        let switch = KillSwitch::of(self.server_id()?, moment);
        let rule = rule(Fault::Kill(switch.clone())).times(1);
        Ok((switch, self.proxy.add(rule)))
    }

    /// The process ID of the server.
    pub(super) fn server_id(&self) -> Result<u32, TestError> {
        let replacement = self.replacement.lock();
        let server = replacement
            .as_ref()
            .unwrap_or_else(|| self.world.broker.process());
        Ok(server.id().ok_or("no server runs")?)
    }

    /// Runs a flow. If the server is killed meanwhile, runs `check` before the next server starts,
    /// which has to finish the flow. Returns the request at which it was killed.
    pub(super) async fn survive(
        &self,
        (switch, rule): (KillSwitch, RuleId),
        flow: impl Future<Output = TestResult>,
        check: impl Future<Output = TestResult>,
    ) -> Result<Option<String>, TestError> {
        let mut flow = Box::pin(flow);
        let ended = tokio::select! {
            ended = &mut flow => Some(ended),
            () = until_killed(&switch) => None,
        };
        self.proxy.remove(rule);
        let request = switch.request().map(str::to_owned);
        if request.is_some() {
            self.until_dead().await?;
            check.await?;
            self.start_next_server().await?;
        }
        let ended = match ended {
            Some(ended) => ended,
            None => flow.await,
        };
        let at = request.as_deref().unwrap_or("no request");
        ended.map_err(|error| format!("killed at {at}: {error}"))?;
        Ok(request)
    }

    async fn until_dead(&self) -> TestResult {
        let id = self.server_id()?;
        until("the killed server is gone", DEAD_WITHIN, || async move {
            Ok(has_exited(id))
        })
        .await
    }

    /// Frees the Lease and starts a server in place of the one that was killed.
    pub(super) async fn start_next_server(&self) -> TestResult {
        free(&self.world).await?;
        let binary = self.world.ground.binary();
        let process = self.world.broker.started_again(binary).await?;
        *self.replacement.lock() = Some(process);
        Ok(())
    }

    /// Starts a further replica that reaches the hub directly. The change of its spec comes last.
    pub(super) async fn start_replica(
        &self,
        name: &str,
        change: impl FnOnce(BrokerSpec) -> BrokerSpec,
    ) -> Result<Broker, TestError> {
        let world = &self.world;
        let spec = BrokerSpec::of_hub(name, &world.hub).with_server_lines(LINES);
        world.ground.start_installed(&world.hub, change(spec)).await
    }
}

/// Checks that a token is for the reconciler of this namespace, for this audience alone, and has not
/// expired. Returns its ID.
pub(super) fn check_token(
    token: &str,
    namespace: &str,
    audience: &str,
) -> Result<String, TestError> {
    let claims = claims(token)?;
    let subject = format!("system:serviceaccount:{namespace}:{RECONCILER}");
    assert_eq!(claims["sub"], subject.as_str());
    assert_eq!(claims["aud"], json!([audience]));
    let expires = claims["exp"].as_i64().ok_or("no exp")?;
    assert!(
        expires > Timestamp::now().as_second(),
        "expired at {expires}"
    );
    Ok(claims["jti"].as_str().ok_or("no jti")?.to_owned())
}

async fn until_killed(switch: &KillSwitch) {
    while switch.request().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a child has exited, also if nobody has waited for it (state `Z` of proc(5)).
fn has_exited(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('Z'))
}
