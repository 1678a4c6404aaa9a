//! Two rotations under load: first in the worst order, then in the right order but with an old key
//! dropped too early.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::TokenSigning;
use keyferry_integration::pki::{SigningKey, SigningKeyKind};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::Ground;
use tokio::task::JoinSet;

use super::load::{Tally, disturb, work};
use super::stage::{Judge, Stage, TENANT, audience, hub_kids, kid};

/// The ServiceAccounts that are used one after the other, so that some are always without an
/// earlier token.
const NEWCOMERS: usize = 8;
/// The time from listing a key until it is published, including the next reading.
const UNTIL_PUBLISHED: Duration = Duration::from_secs(75);

/// When the hub lists the key of the second rotation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Soaks {
    /// Once the first rotation has ended.
    InTurn,
    /// At the moment when the first rotation begins, so that the activation delays of both keys
    /// overlap.
    Together,
}

pub(super) async fn rotate(ground: Arc<Ground>, max_age: u64, soaks: Soaks) -> TestResult {
    let name = format!("load-{max_age}");
    let activation_delay = Duration::from_secs(30 + max_age + 30);
    let accounts: Vec<String> = std::iter::once("reconciler".to_owned())
        .chain((0..NEWCOMERS).map(|number| format!("newcomer-{number}")))
        .collect();
    let stage = Arc::new(Stage::start(&ground, &name, max_age, &accounts, |spec| spec).await?);
    let first = hub_kids(&stage.hub).await?.remove(0);
    stage
        .until_published(&[&first], Duration::from_secs(10))
        .await?;

    let (tally, mut running) = (Arc::new(Tally::default()), JoinSet::new());
    let mut newcomers = accounts.iter();
    let mut next = |running: &mut JoinSet<TestResult>| {
        if let Some(account) = newcomers.next() {
            running.spawn(work(
                Arc::clone(&stage),
                account.clone(),
                Arc::clone(&tally),
            ));
        }
    };
    let issuer = format!("https://{}.keyferry.test", stage.hub.name());
    running.spawn(disturb(
        Arc::clone(&stage),
        issuer,
        vec![audience(&name, 0), audience(&name, 1)],
    ));
    next(&mut running);
    until_taken(&tally, &first, 20, &mut running).await?;

    let keys = Keys::create(&stage).await?;
    // The hub signs with a key that has never been published.
    let together = soaks == Soaks::Together;
    let beside = if together {
        vec![&keys.first, &keys.third]
    } else {
        vec![&keys.first]
    };
    // Take the time before the restart: the hub answers TokenRequests before it reports ready, and
    // Keyferry's request may be the first.
    let signed = Instant::now();
    keys.sign(&stage, &keys.second, &beside).await?;
    let second = kid(&stage
        .hub
        .token_request(TENANT, "reconciler", &[&audience(&name, 0)], 600)
        .await?
        .token)?;
    assert_ne!(second, first);
    // Makes a target whose keys have grown old re-read them before the new one is published. A
    // refusal now proves nothing.
    refused_at_once(&stage, &name, &second).await?;
    next(&mut running);
    let listed = hub_kids(&stage.hub).await?;
    assert_eq!(listed.len(), if together { 3 } else { 2 }, "{listed:?}");
    let waited = until_listed(&stage, &second).await?;
    let ungated = ungated(&stage, &name, &second, Duration::from_secs(max_age));
    let (ungated, third_published) = if together {
        let from = Instant::now();
        let all: Vec<&str> = listed.iter().map(String::as_str).collect();
        let (ungated, waited) =
            tokio::try_join!(ungated, stage.until_published(&all, UNTIL_PUBLISHED))?;
        (ungated, Some(from + waited))
    } else {
        assert_eq!(stage.published_kids().await?, listed);
        (ungated.await?, None)
    };
    next(&mut running);
    assert_eq!(
        tally.taken(&second),
        0,
        "a token of the new key left before it was active"
    );
    if together {
        keys.drop_first(&stage).await?;
    }
    until_taken(&tally, &second, 20, &mut running).await?;
    let active_after = signed.elapsed();
    assert!(
        active_after >= activation_delay,
        "tokens of the new key left {active_after:?} after the hub first signed with it"
    );
    eprintln!(
        "max-age {max_age}: published {waited:?} after the hub was back, used after \
         {active_after:?}; tokens from the hub itself, used at once: {ungated} of them refused"
    );
    if max_age > 30 {
        assert!(
            ungated > 0,
            "without the gate nothing was refused either: this run can show nothing"
        );
    }

    // The right order: the key is published, becomes active, and only then signs. The first key is
    // dropped at once, far too early.
    if !together {
        keys.drop_first(&stage).await?;
    }
    let third = hub_kids(&stage.hub)
        .await?
        .into_iter()
        .find(|kid| *kid != second)
        .ok_or("the hub lists no third key")?;
    stage
        .until_published(&[&first, &second, &third], UNTIL_PUBLISHED)
        .await?;
    next(&mut running);
    let active_from =
        third_published.unwrap_or_else(Instant::now) + activation_delay + Duration::from_secs(5);
    watch(
        &mut running,
        active_from.saturating_duration_since(Instant::now()),
    )
    .await?;
    let before = tally.awaiting_activation();
    keys.sign(&stage, &keys.third, &[&keys.second]).await?;
    next(&mut running);
    until_taken(&tally, &third, 20, &mut running).await?;
    assert_eq!(
        tally.awaiting_activation(),
        before,
        "a key that was published long ago had to wait"
    );

    running.shutdown().await;
    let counts = tally.take();
    eprintln!("max-age {max_age}: {counts:?}");
    assert_eq!(
        counts.refused,
        Vec::<String>::new(),
        "tokens that Keyferry issued were refused"
    );
    assert!(
        counts
            .told_to_wait
            .keys()
            .any(|reason| reason.contains("KeySettling")),
        "nobody ever had to wait: {counts:?}"
    );
    Ok(())
}

/// The hub's keys, in the order in which they sign.
struct Keys {
    issuers: Vec<String>,
    first: SigningKey,
    second: SigningKey,
    third: SigningKey,
}

impl Keys {
    async fn create(stage: &Stage) -> Result<Self, TestError> {
        let TokenSigning {
            issuers,
            signing_key: first,
            ..
        } = stage.hub.signing().await;
        let fresh = |name| stage.hub.create_signing_key(SigningKeyKind::Rsa2048, name);
        Ok(Self {
            issuers,
            first,
            second: fresh("second")?,
            third: fresh("third")?,
        })
    }

    /// Makes the hub sign with one of the keys, and list others beside it.
    async fn sign(&self, stage: &Stage, by: &SigningKey, beside: &[&SigningKey]) -> TestResult {
        let further_keys = beside.iter().map(|key| (*key).clone()).collect();
        stage
            .hub
            .set_signing(TokenSigning {
                issuers: self.issuers.clone(),
                signing_key: by.clone(),
                further_keys,
            })
            .await;
        stage.hub.restart().await?;
        Ok(())
    }

    /// Keeps the second key signing, with the third one listed beside it.
    async fn drop_first(&self, stage: &Stage) -> TestResult {
        self.sign(stage, &self.second, &[&self.third]).await?;
        // The kubelet does this in time. A hub that drops a key invalidates every token that it
        // signed.
        stage.broker.kubeconfig().rewrite_token(3600).await?;
        Ok(())
    }
}

/// Waits until a key is published, whatever other keys are.
async fn until_listed(stage: &Stage, kid: &String) -> Result<Duration, TestError> {
    let from = Instant::now();
    loop {
        let published = stage.published_kids().await?;
        if published.contains(kid) {
            return Ok(from.elapsed());
        }
        if from.elapsed() > UNTIL_PUBLISHED {
            return Err(format!(
                "{kid} was not published within {UNTIL_PUBLISHED:?}, but {published:?}"
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Uses tokens that the hub itself minted, as Flux would, at once and for as long as a target may
/// not fetch the key.
async fn ungated(
    stage: &Stage,
    name: &str,
    kid_of: &str,
    during: Duration,
) -> Result<usize, TestError> {
    let (from, mut refused) = (Instant::now(), 0);
    while from.elapsed() < during {
        refused += refused_at_once(stage, name, kid_of).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(refused)
}

/// How many targets refuse such a token now.
async fn refused_at_once(stage: &Stage, name: &str, kid_of: &str) -> Result<usize, TestError> {
    let mut refused = 0;
    for (index, target) in stage.targets.iter().enumerate() {
        let token = stage
            .hub
            .token_request(TENANT, "reconciler", &[&audience(name, index)], 600)
            .await?
            .token;
        assert_eq!(kid(&token)?, kid_of);
        if Judge::of(target)?.status(&token).await? == 401 {
            refused += 1;
        }
    }
    Ok(refused)
}

/// Waits until that many tokens of a key have been accepted. A workload that ends has failed.
async fn until_taken(
    tally: &Tally,
    kid: &str,
    count: u64,
    running: &mut JoinSet<TestResult>,
) -> TestResult {
    let limit = Instant::now() + Duration::from_secs(240);
    while tally.taken(kid) < count {
        if Instant::now() > limit {
            return Err(format!(
                "{} tokens of {kid} were taken: {:?}",
                tally.taken(kid),
                tally.take()
            )
            .into());
        }
        watch(running, Duration::from_millis(200)).await?;
    }
    Ok(())
}

async fn watch(running: &mut JoinSet<TestResult>, during: Duration) -> TestResult {
    match tokio::time::timeout(during, running.join_next()).await {
        Err(_) => Ok(()),
        Ok(Some(Ok(Err(error)))) => Err(error),
        Ok(ended) => Err(format!("a workload ended: {ended:?}").into()),
    }
}
