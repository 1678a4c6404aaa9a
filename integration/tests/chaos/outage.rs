//! The hub's store is slow or dead, or Keyferry cannot reach the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use keyferry_integration::world::on_hub::{RECONCILER, has_condition};
use keyferry_integration::world::{Answer, caller_token};
use parking_lot::Mutex;
use serde_json::json;

use super::stage::{Stage, check_token};
use crate::deliveries::killed::{check_secret, recorded_tokens};
use crate::deliveries::tenant::Tenant;

/// How long a dead store and a silent hub last: longer than one call to the hub may take.
const LASTS: Duration = Duration::from_secs(6);
/// How long a store is slow.
const IS_SLOW: Duration = Duration::from_secs(4);
/// The pulses of a slow store.
const STOPPED: Duration = Duration::from_millis(400);
const RUNNING: Duration = Duration::from_millis(150);
/// One call to the hub may take five seconds. The rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(12);
/// How long the apiserver may need for its store, and Keyferry for the apiserver.
const RECOVERS_WITHIN: Duration = Duration::from_secs(120);
const NEW_CALLERS: usize = 6;

/// What fails.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// etcd stops for [`STOPPED`], again and again.
    SlowStore,
    /// etcd is killed.
    DeadStore,
    /// Keyferry's requests to the hub get no answer.
    SilentHub,
}

/// Callers that Keyferry knows are served throughout. Others get the right token or a refusal. All
/// is delivered afterwards.
pub(super) async fn a_store_or_a_hub_that_fails_gives_no_wrong_answer(
    stage: Arc<Stage>,
) -> TestResult {
    for outage in [Outage::SlowStore, Outage::DeadStore, Outage::SilentHub] {
        outage
            .play(&stage)
            .await
            .map_err(|error| format!("{outage:?}: {error}"))?;
    }
    Ok(())
}

impl Outage {
    async fn play(self, stage: &Stage) -> TestResult {
        let name = format!("outage-{self:?}").to_lowercase();
        let callers = Callers::of(stage, &name).await?;
        let deliveries = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
        let spec = json!({ "deliveries": deliveries, "probe": "Off" });
        callers.tenant.put_access_with("secret", spec).await?;
        self.begin(stage).await?;
        let (answers, pulsed) = tokio::join!(callers.ask_for(self.lasts()), self.pulse(stage));
        self.end(stage).await?;
        pulsed?;
        let answers = answers?;
        let granted = callers.judge(&answers)?;
        callers.until_granted().await?;
        let path = callers.tenant.access("secret");
        let hub = stage.world.hub.admin();
        let access = until_object(hub, &path, "delivered", RECOVERS_WITHIN, |access| {
            has_condition(access, "Ready", "True", "Ready")
        })
        .await?;
        let secret = hub.get(&callers.tenant.secret("secret-kubeconfig")).await?;
        let recorded = recorded_tokens(&stage.world.broker.audit()?);
        check_secret(&callers.tenant, &secret, &access, &recorded).await?;
        assert!(
            !stage.world.broker.log()?.contains("eyJ"),
            "a token in the log"
        );
        eprintln!("{self:?}: {granted:?}");
        Ok(())
    }

    fn lasts(self) -> Duration {
        match self {
            Self::SlowStore => IS_SLOW,
            Self::DeadStore | Self::SilentHub => LASTS,
        }
    }

    async fn begin(self, stage: &Stage) -> TestResult {
        match self {
            Self::SlowStore => {}
            Self::DeadStore => stage.world.ground.etcd().kill().await?,
            Self::SilentHub => {
                stage.proxy.pause();
                stage.proxy.cut_all();
            }
        }
        Ok(())
    }

    async fn pulse(self, stage: &Stage) -> TestResult {
        let end = Instant::now() + self.lasts();
        let etcd = stage.world.ground.etcd();
        while matches!(self, Self::SlowStore) && Instant::now() < end {
            etcd.suspend().await?;
            tokio::time::sleep(STOPPED).await;
            etcd.resume().await?;
            tokio::time::sleep(RUNNING).await;
        }
        Ok(())
    }

    async fn end(self, stage: &Stage) -> TestResult {
        match self {
            Self::SlowStore => {}
            Self::DeadStore => stage.world.ground.etcd().start_again().await?,
            Self::SilentHub => stage.proxy.resume(),
        }
        Ok(())
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    /// A caller that the hub has confirmed, for a token that is cached.
    Confirmed,
    /// A caller about which the hub was never asked.
    New,
    /// A confirmed caller, for a target of which nothing is cached.
    ForNewTarget,
}

/// The callers of one outage.
struct Callers<'s> {
    stage: &'s Stage,
    tenant: Tenant,
    confirmed: String,
    new: Vec<String>,
}

impl<'s> Callers<'s> {
    async fn of(stage: &'s Stage, name: &str) -> Result<Self, TestError> {
        let world = &stage.world;
        let tenant = Tenant::new(world, name, &["HTTP", "KubeConfigSecret"]).await?;
        let mut cold = world.target_spec(1);
        cold["audience"] = json!(format!("https://cold.{name}.keyferry.test"));
        cold["allow"] = json!([{ "namespaces": [name], "serviceAccounts": [RECONCILER], "deliveries": ["HTTP"] }]);
        world.put_target(&format!("{name}-cold"), &cold).await?;
        let http = json!({ "deliveries": [{ "name": "h", "type": "HTTP" }], "probe": "Off" });
        tenant.put_access_with("warm", http.clone()).await?;
        let cold = format!("{name}-cold");
        world.put_access(name, "cold", &cold, &http).await?;
        tenant.until_ready("warm").await?;
        tenant.until_ready("cold").await?;
        let mut new = Vec::new();
        for _ in 0..NEW_CALLERS {
            new.push(caller_token(&world.hub, name, RECONCILER).await?);
        }
        let confirmed = caller_token(&world.hub, name, RECONCILER).await?;
        let warm = format!("{name}/warm");
        world.broker.exchange_in_time(&confirmed, &warm).await?;
        Ok(Self {
            stage,
            tenant,
            confirmed,
            new,
        })
    }

    async fn exchange(&self, token: &str, access: &str) -> Result<Answer, TestError> {
        let broker = &self.stage.world.broker;
        let begin = Instant::now();
        let access = format!("{}/{access}", self.tenant.name);
        let answer = broker.exchange(token, &access).await?;
        let took = begin.elapsed();
        assert!(took < BOUND, "{access} was answered after {took:?}");
        Ok(answer)
    }

    /// The answers to all callers for so long.
    async fn ask_for(&self, time: Duration) -> Result<Vec<(Caller, Answer)>, TestError> {
        let confirmed = async {
            let (end, mut answers) = (Instant::now() + time, Vec::new());
            while Instant::now() < end {
                let answer = self.exchange(&self.confirmed, "warm").await?;
                answers.push((Caller::Confirmed, answer));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok::<_, TestError>(answers)
        };
        let new = join_all(self.new.iter().map(|token| self.exchange(token, "warm")));
        let cold = self.exchange(&self.confirmed, "cold");
        let (confirmed, new, cold) = tokio::join!(confirmed, new, cold);
        let mut answers = confirmed?;
        for answer in new {
            answers.push((Caller::New, answer?));
        }
        answers.push((Caller::ForNewTarget, cold?));
        Ok(answers)
    }

    /// Every answer is a recorded token for the caller, or a refusal that says to try again. Returns
    /// how many of each caller's were granted and refused.
    fn judge(
        &self,
        answers: &[(Caller, Answer)],
    ) -> Result<BTreeMap<Caller, [usize; 2]>, TestError> {
        let recorded = recorded_tokens(&self.stage.world.broker.audit()?);
        let mut counts: BTreeMap<Caller, [usize; 2]> = BTreeMap::new();
        for (caller, answer) in answers {
            let [granted, refused] = counts.entry(*caller).or_default();
            if answer.status != 200 {
                assert_eq!(answer.status, 503, "{caller:?}: {}", answer.body);
                assert!(!answer.body.contains("eyJ"), "{}", answer.body);
                *refused += 1;
                continue;
            }
            *granted += 1;
            let cold = match caller {
                Caller::ForNewTarget => "cold.",
                Caller::Confirmed | Caller::New => "",
            };
            let name = &self.tenant.name;
            let audience = format!("https://{cold}{name}.keyferry.test");
            let id = check_token(&answer.token()?, name, &audience)?;
            assert!(
                recorded.contains(&id),
                "{caller:?}: a token without a record"
            );
        }
        let refused = counts.get(&Caller::Confirmed).map(|[_, refused]| *refused);
        assert_eq!(refused, Some(0), "a confirmed caller was refused");
        Ok(counts)
    }

    /// Waits until all of them are granted.
    async fn until_granted(&self) -> TestResult {
        let new = Mutex::new(String::new());
        until("the hub mints", RECOVERS_WITHIN, || async {
            let token = caller_token(&self.stage.world.hub, &self.tenant.name, RECONCILER).await;
            let token = token.unwrap_or_default();
            let is_minted = !token.is_empty();
            *new.lock() = token;
            Ok(is_minted)
        })
        .await?;
        let new = new.into_inner();
        for (token, access) in [(&self.confirmed, "cold"), (&new, "warm")] {
            until(access, RECOVERS_WITHIN, || async {
                Ok(self.exchange(token, access).await?.status == 200)
            })
            .await?;
        }
        Ok(())
    }
}
