//! Callers, people and controllers that use Keyferry in every way at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use keyferry_integration::http_client::trusting;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{RECONCILER, renew_with_lifetime};
use keyferry_integration::world::{caller_token, exchange_at};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::chaos::stage::{Stage, check_token};
use crate::deliveries::tenant::Tenant;

const TENANT: &str = "long-load";
/// A caller token lives for ten minutes.
const TOKEN_AGE: Duration = Duration::from_secs(300);
/// How long a withdrawal or a grant may take to be noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
const LIFETIMES: [&str; 2] = ["2h", "3h"];

/// One kind of load: its name, the pause between two, and what is done.
type Kind = (
    &'static str,
    Duration,
    fn(Arc<Work>, u64) -> BoxFuture<'static, TestResult>,
);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const KINDS: [Kind; 8] = [
    ("exchanges", millis(25), |work, _| Box::pin(exchange(work))),
    ("exchanges of new callers", millis(1000), |work, _| {
        Box::pin(exchange_anew(work))
    }),
    ("reconnects", millis(500), |work, _| {
        Box::pin(reconnect(work))
    }),
    ("kubeconfigs", millis(100), |work, _| {
        Box::pin(read_kubeconfig(work))
    }),
    ("documents", millis(100), |work, _| {
        Box::pin(read_documents(work))
    }),
    ("denied requests", millis(100), |work, number| {
        Box::pin(be_denied(work, number))
    }),
    ("changed deliveries", millis(2000), |work, number| {
        Box::pin(change_delivery(work, number))
    }),
    ("withdrawals", millis(5000), |work, number| {
        Box::pin(withdraw(work, number))
    }),
];

/// What the load uses.
struct Work {
    stage: Arc<Stage>,
    tenant: Tenant,
    caller: Mutex<(String, Instant)>,
}

/// Running load.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<String>>>,
    running: JoinSet<(&'static str, u64)>,
}

impl Load {
    pub(super) async fn start(stage: &Arc<Stage>) -> Result<Self, TestError> {
        let world = &stage.world;
        let tenant = Tenant::new(world, TENANT, &["HTTP", "KubeConfigSecret"]).await?;
        let http = json!({ "deliveries": [{ "name": "h", "type": "HTTP" }] });
        tenant.put_access_with("http", http.clone()).await?;
        let secret = json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }] });
        tenant.put_access_with("secret", secret).await?;
        tenant.until_ready("http").await?;
        tenant.until_ready("secret").await?;
        let caller = caller_token(&world.hub, TENANT, RECONCILER).await?;
        let work = Arc::new(Work {
            stage: Arc::clone(stage),
            tenant,
            caller: Mutex::new((caller, Instant::now())),
        });
        let (stop, failure) = (Arc::<AtomicBool>::default(), Arc::default());
        let mut running = JoinSet::new();
        for kind in KINDS {
            let (work, stop, failure) = (work.clone(), stop.clone(), Arc::clone(&failure));
            running.spawn(repeat(kind, work, stop, failure));
        }
        Ok(Self {
            stop,
            failure,
            running,
        })
    }

    /// The first failure so far. No kind of load ends by itself.
    pub(super) fn failure(&mut self) -> Option<String> {
        let ended = self.running.try_join_next();
        let failure = self.failure.lock().clone();
        failure.or_else(|| ended.map(|ended| format!("a load ended: {ended:?}")))
    }

    /// Ends it. Returns how many there were of each kind.
    pub(super) async fn stop(mut self) -> Result<BTreeMap<&'static str, u64>, TestError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut counts = BTreeMap::new();
        while let Some(ended) = self.running.join_next().await {
            let (kind, count) = ended?;
            counts.insert(kind, count);
        }
        match self.failure.lock().clone() {
            Some(failure) => Err(failure.into()),
            None => Ok(counts),
        }
    }
}

async fn repeat(
    (name, pause, act): Kind,
    work: Arc<Work>,
    stop: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<String>>>,
) -> (&'static str, u64) {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = act(Arc::clone(&work), count).await {
            failure
                .lock()
                .get_or_insert_with(|| format!("{name}: {error}"));
            break;
        }
        count += 1;
        tokio::time::sleep(pause).await;
    }
    (name, count)
}

impl Work {
    /// The token of a caller that the hub has confirmed, renewed before it ends.
    async fn caller(&self) -> Result<String, TestError> {
        let (caller, since) = self.caller.lock().clone();
        if since.elapsed() < TOKEN_AGE {
            return Ok(caller);
        }
        let renewed = caller_token(&self.stage.world.hub, TENANT, RECONCILER).await?;
        *self.caller.lock() = (renewed.clone(), Instant::now());
        Ok(renewed)
    }

    /// Exchanges with a client; the token must be for the tenant.
    async fn exchange(&self, client: &reqwest::Client, caller: &str) -> TestResult {
        let api = self.stage.world.broker.api_url();
        let answer = exchange_at(client, &api, caller, &format!("{TENANT}/http")).await?;
        check_token(
            &answer.token()?,
            TENANT,
            &format!("https://{TENANT}.keyferry.test"),
        )?;
        Ok(())
    }

    async fn status_of(&self, caller: &str, access: &str) -> Result<u16, TestError> {
        let broker = &self.stage.world.broker;
        Ok(broker
            .exchange(caller, &format!("{TENANT}/{access}"))
            .await?
            .status)
    }
}

async fn exchange(work: Arc<Work>) -> TestResult {
    let caller = work.caller().await?;
    work.exchange(work.stage.world.broker.http(), &caller).await
}

async fn exchange_anew(work: Arc<Work>) -> TestResult {
    let caller = caller_token(&work.stage.world.hub, TENANT, RECONCILER).await?;
    work.exchange(work.stage.world.broker.http(), &caller).await
}

async fn reconnect(work: Arc<Work>) -> TestResult {
    let client = trusting(work.stage.world.ground.ca().cert_pem())?;
    work.exchange(&client, &work.caller().await?).await
}

async fn read_kubeconfig(work: Arc<Work>) -> TestResult {
    let caller = work.caller().await?;
    let broker = &work.stage.world.broker;
    let answer = broker.kubeconfig_of(&caller, TENANT, "http").await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    Ok(())
}

async fn read_documents(work: Arc<Work>) -> TestResult {
    let broker = &work.stage.world.broker;
    let url = format!("{}/openid/v1/jwks", broker.discovery_url());
    assert_eq!(broker.http().get(url).send().await?.status(), 200);
    Ok(())
}

/// For an access that there is not, with a token that is none, and from a client that says nothing.
async fn be_denied(work: Arc<Work>, number: u64) -> TestResult {
    let caller = work.caller().await?;
    let status = match number % 3 {
        0 => work.status_of(&caller, "absent").await?,
        1 => work.status_of("eyJhbGciOiJub25lIn0.e30.", "http").await?,
        _ => {
            let broker = &work.stage.world.broker;
            broker
                .post_form(&[("grant_type", String::new())])
                .await?
                .status
        }
    };
    // A burst of refusals is answered with 429.
    assert!([400, 401, 429].contains(&status), "{status}");
    Ok(())
}

/// Renews the delivered token with another lifetime, and waits for it.
async fn change_delivery(work: Arc<Work>, number: u64) -> TestResult {
    let (hub, tenant) = (&work.stage.world.hub, &work.tenant);
    let path = tenant.access("secret");
    let token_id = |access: &Value| access["status"]["deliveries"][0]["tokenID"].clone();
    let earlier = token_id(&hub.admin().get(&path).await?);
    let lifetime = LIFETIMES[usize::try_from(number % 2)?];
    renew_with_lifetime(hub, TENANT, "secret", "secret-kubeconfig", lifetime).await?;
    let renewed = |access: &Value| token_id(access) != earlier;
    tenant.world.until(&path, "renewed", renewed).await?;
    Ok(())
}

/// Declares an access, gets a token for it, deletes it and waits until it gives no token.
async fn withdraw(work: Arc<Work>, number: u64) -> TestResult {
    let (hub, tenant) = (&work.stage.world.hub, &work.tenant);
    let (name, caller) = (format!("short-{number}"), work.caller().await?);
    let deliveries = json!([{ "name": "h", "type": "HTTP" }]);
    let spec = json!({ "deliveries": deliveries, "deletionPolicy": "Immediate" });
    tenant.put_access_with(&name, spec).await?;
    until_status(&work, &caller, &name, 200).await?;
    hub.admin().delete(&tenant.access(&name)).await?;
    until_status(&work, &caller, &name, 400).await
}

async fn until_status(work: &Work, caller: &str, access: &str, wanted: u16) -> TestResult {
    let begin = Instant::now();
    while work.status_of(caller, access).await? != wanted {
        if begin.elapsed() > NOTICED_WITHIN {
            return Err(format!("{access}: no {wanted} within {NOTICED_WITHIN:?}").into());
        }
        tokio::time::sleep(millis(200)).await;
    }
    Ok(())
}
