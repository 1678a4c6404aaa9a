//! An access that changes while its token is being minted, for the caller that started the mint and
//! for those that wait for it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Access, Answer, Broker, Target, caller_token, claims};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stage::{NOT_GRANTED, Stage, owner_and_deployer, reason, two_targets};

/// A Keyferry behind a proxy, six concurrent callers of one key, and a mint that is blocked until
/// the test releases it.
struct SlowMint {
    proxy: ChaosProxy,
    let_go: watch::Sender<bool>,
    broker: Arc<Broker>,
    callers: Vec<JoinHandle<Result<Answer, TestError>>>,
}

impl SlowMint {
    const PATH: &str = "/serviceaccounts/owner/token";

    async fn begin(stage: &Stage, namespace: &str) -> Result<Self, TestError> {
        let hub = stage.hub();
        owner_and_deployer(hub, namespace).await?;
        let proxy = ChaosProxy::in_front_of(hub).await?;
        let spec = two_targets(stage, namespace, hub, namespace).through(&proxy.url());
        let broker = Arc::new(stage.start_broker(hub, spec).await?);
        let (let_go, held) = watch::channel(false);
        proxy.add(Rule::on(Method::POST, Self::PATH, Fault::Hold(held)));
        let mut tokens = vec![
            caller_token(hub, namespace, "deployer").await?,
            caller_token(hub, namespace, "deployer").await?,
        ];
        for _ in 0..4 {
            tokens.push(caller_token(hub, namespace, "owner").await?);
        }
        let mut callers = Vec::new();
        for token in tokens {
            let (broker, access) = (Arc::clone(&broker), format!("{namespace}/held"));
            callers.push(tokio::spawn(async move {
                broker.exchange(&token, &access).await
            }));
        }
        until("the mint is under way", Duration::from_secs(10), || async {
            Ok(proxy.count(&Method::POST, Self::PATH) == 1)
        })
        .await?;
        Ok(Self {
            proxy,
            let_go,
            broker,
            callers,
        })
    }

    /// Changes the configuration now, before the mint has returned.
    async fn change(&self, change: impl FnOnce(&mut Vec<Target>, &mut Vec<Access>)) -> TestResult {
        tokio::select! {
            changed = self.broker.reconfigure(change) => changed?,
            ended = self.hang_up_again_and_again() => ended?,
        }
        assert!(
            self.callers.iter().all(|caller| !caller.is_finished()),
            "the mint was not under way any more"
        );
        Ok(())
    }

    /// Sends SIGHUP repeatedly, so that Keyferry reads the file now instead of within five seconds.
    /// A signal before the file is written does nothing.
    async fn hang_up_again_and_again(&self) -> TestResult {
        loop {
            self.broker.process().hang_up().await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn answers(&mut self) -> Result<Vec<Answer>, TestError> {
        self.let_go.send_replace(true);
        let mut answers = Vec::new();
        for caller in self.callers.drain(..) {
            answers.push(caller.await??);
        }
        Ok(answers)
    }
}

pub(crate) async fn an_access_is_removed_while_its_token_is_minted(
    stage: Arc<Stage>,
) -> TestResult {
    let mut slow = SlowMint::begin(&stage, "slow-removed").await?;
    slow.change(|_, accesses| accesses.retain(|access| access.name != "held"))
        .await?;
    let answers = slow.answers().await?;
    assert_eq!(answers.len(), 6);
    for answer in &answers {
        assert_eq!((answer.status, answer.body.as_str()), (400, NOT_GRANTED));
        assert_eq!(reason(&slow.broker, answer)?, "TargetNotGranted");
    }
    assert_eq!(
        slow.proxy.count(&Method::POST, SlowMint::PATH),
        1,
        "they all waited for the one mint"
    );
    Ok(())
}

pub(crate) async fn an_access_is_moved_while_its_token_is_minted(stage: Arc<Stage>) -> TestResult {
    let mut slow = SlowMint::begin(&stage, "slow-moved").await?;
    let move_it = |access: &mut Access| "fresh".clone_into(&mut access.target);
    slow.change(|_, accesses| {
        accesses
            .iter_mut()
            .filter(|access| access.name == "held")
            .for_each(move_it)
    })
    .await?;
    for answer in slow.answers().await? {
        assert_eq!(
            answer.status,
            200,
            "{}: {}",
            slow.broker.audit_of(&answer.request_id)?,
            answer.body
        );
        assert_eq!(
            claims(&answer.token()?)?["aud"],
            json!(["https://fresh.slow-moved.test"]),
            "for the target of now"
        );
        assert_eq!(slow.broker.audit_of(&answer.request_id)?["target"], "fresh");
    }
    assert_eq!(slow.proxy.count(&Method::POST, SlowMint::PATH), 2);
    Ok(())
}
