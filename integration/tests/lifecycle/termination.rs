//! Tests SIGTERM.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::http_client::{plain_client, trusting};
use keyferry_integration::process::Signal;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait;
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, TENANT, Target, World, caller_token,
};
use tokio::sync::watch;

/// `terminationGracePeriodSeconds` of a Pod is 30 s, so nothing here may take longer than this.
const ALL_IN: Duration = Duration::from_secs(20);

/// Keyferry becomes unready first, waits for the mint in progress, and exits with success. A second
/// SIGTERM does not shorten this.
pub(super) async fn answers_what_was_accepted(world: Arc<World>) -> TestResult {
    let proxy = ChaosProxy::in_front_of(world.hub()).await?;
    let spec = BrokerSpec::of_hub("leaving", world.hub())
        .through(&proxy.url())
        .with_target(
            Target::of(world.target_a(), "https://leaving.keyferry.test")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let (let_go, held) = watch::channel(false);
    proxy.add(Rule::on(
        Method::POST,
        "/serviceaccounts/reconciler/token",
        Fault::Hold(held),
    ));

    let exchange = async {
        Ok::<_, TestError>((
            broker.exchange(&caller, "tenant-a/a").await?,
            Instant::now(),
        ))
    };
    let leave = async {
        until("the mint is under way", || {
            proxy.count(&Method::POST, "/serviceaccounts/reconciler/token") > 0
        })
        .await?;
        assert_eq!(ready(&broker).await?, 200);
        let asked = Instant::now();
        broker.process().signal(Signal::Terminate).await?;
        while ready(&broker).await? == 200 {
            assert!(
                asked.elapsed() < Duration::from_secs(4),
                "still ready four seconds after SIGTERM"
            );
        }
        let not_ready = Instant::now();
        broker.process().signal(Signal::Terminate).await?;
        // A new connection, not an existing one.
        let ca = std::fs::read_to_string(broker.ca_path())?;
        assert!(
            trusting(&ca)?.get(broker.api_url()).send().await.is_err(),
            "new connections are taken"
        );
        // The mint was in progress all this time.
        let_go.send_replace(true);
        Ok::<_, TestError>((asked, not_ready))
    };
    let ((answer, answered), (asked, not_ready)) = tokio::try_join!(exchange, leave)?;
    assert_eq!(
        answer.status, 200,
        "the accepted request is answered: {}",
        answer.body
    );
    assert!(!answer.token()?.is_empty());
    assert!(
        not_ready < answered,
        "readiness went before the request ended"
    );
    assert_eq!(broker.audit_of(&answer.request_id)?["decision"], "granted");
    ended_well(broker, asked).await
}

/// SIGTERM arrives before Keyferry has ever been ready.
pub(super) async fn ends_a_start(world: Arc<World>) -> TestResult {
    let proxy = ChaosProxy::in_front_of(world.hub()).await?;
    let unwell = Fault::Status {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        headers: Vec::new(),
        body: Vec::new(),
    };
    proxy.add(Rule::on_any("", unwell));
    let spec = BrokerSpec::of_hub("waiting", world.hub())
        .through(&proxy.url())
        .not_ready_yet();
    let broker = world.start_broker(world.hub(), spec).await?;
    assert_eq!(ready(&broker).await?, 503);
    let asked = Instant::now();
    broker.process().signal(Signal::Terminate).await?;
    ended_well(broker, asked).await
}

async fn ended_well(broker: Broker, asked: Instant) -> TestResult {
    let mut process = broker.into_process();
    loop {
        if let Some(status) = process.exit_status() {
            eprintln!("ended {:.1} s after SIGTERM", asked.elapsed().as_secs_f32());
            assert_eq!(status.code(), Some(0), "{}", process.logs_tail(5));
            return Ok(());
        }
        assert!(
            asked.elapsed() < ALL_IN,
            "still there {ALL_IN:?} after SIGTERM"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ready(broker: &Broker) -> Result<u16, TestError> {
    Ok(plain_client()?
        .get(format!("{}/readyz", broker.health_url()))
        .send()
        .await?
        .status()
        .as_u16())
}

async fn until(what: &str, holds: impl Fn() -> bool) -> TestResult {
    let limit = Duration::from_secs(10);
    wait::until(what, limit, || std::future::ready(Ok(holds()))).await
}
