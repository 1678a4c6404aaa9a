//! Identities and grants that change while tokens are held or under way: a ServiceAccount made anew, an access taken away, a right
//! that is missing, an audience or an issuer that must not be, and Keyferry's own token.

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::runner::{Fixture, NotStarted, Suite, TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Answer, Broker, BrokerSpec, CALLER_AUDIENCE, Subject, TENANT, Target, World, caller_token, claims, let_mint,
    make_tenant, prepare_hub, token_requests,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The issuer of every cluster that kubeadm or kind made.
const CLUSTER_DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";
/// An audience that the plain hub's own apiserver accepts.
const AUDIENCE_OF_HUB: &str = "https://api.plain-hub.test";
const NOT_GRANTED: &str = "{\"error\":\"invalid_target\",\"error_description\":\"the audience names no access that this caller may use\"}";

fn main() -> ExitCode {
    Suite::new(Stage::start)
        .at_once(4)
        .test("keyferrys_own_token_expires_and_is_renewed", keyferrys_own_token_expires_and_is_renewed)
        .test("an_account_made_anew_on_1_36", |stage| async move { made_anew(&stage, stage.hub(), "anew-36").await })
        .test("an_account_made_anew_on_1_33", |stage| async move { made_anew(&stage, stage.old_hub(), "anew-33").await })
        .test("made_anew_behind_a_late_watch_on_1_36", |stage| async move { behind_a_late_watch(&stage, stage.hub(), "late-36").await })
        .test("made_anew_behind_a_late_watch_on_1_33", |stage| async move { behind_a_late_watch(&stage, stage.old_hub(), "late-33").await })
        .test("an_access_is_removed_while_its_token_is_held", an_access_is_removed_while_its_token_is_held)
        .test("an_access_is_removed_while_its_token_is_minted", an_access_is_removed_while_its_token_is_minted)
        .test("an_access_is_moved_while_its_token_is_minted", an_access_is_moved_while_its_token_is_minted)
        .test("a_missing_role_binding_is_told_and_heals", a_missing_role_binding_is_told_and_heals)
        .test("an_issuer_that_targets_must_refuse", an_issuer_that_targets_must_refuse)
        .test("an_audience_of_the_hub_is_never_minted", an_audience_of_the_hub_is_never_minted)
        .test("a_caller_audience_of_the_hub_stops_the_start", a_caller_audience_of_the_hub_stops_the_start)
        .run()
}

/// The world, and a hub as most distributions make it, with an audience more.
struct Stage {
    plain_hub: Arc<ControlPlane>,
    world: World,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.world.log_tails()
    }
}

impl Stage {
    async fn start() -> Result<Stage, NotStarted> {
        let world = World::start().await?;
        let spec = ControlPlaneSpec {
            issuers: vec![CLUSTER_DEFAULT.to_owned()],
            api_audiences: vec![CLUSTER_DEFAULT.to_owned(), AUDIENCE_OF_HUB.to_owned()],
            audit_log: true,
            ..ControlPlaneSpec::named("plain-hub")
        };
        let plain_hub = Arc::new(world.fleet().start_control_plane(spec).await?);
        prepare_hub(&plain_hub).await.map_err(NotStarted::failed)?;
        Ok(Stage { plain_hub, world })
    }
}

/// Two targets, so that one can be asked for first when a token for the other is held already.
fn two_targets(world: &World, name: &str, hub: &ControlPlane, namespace: &str) -> BrokerSpec {
    let one = |of: &str| Target::of(world.target_a(), &format!("https://{of}.{name}.test")).named(of).allowing(namespace, &["owner"]);
    BrokerSpec::of_hub(name, hub)
        .with_target(one("held"))
        .with_target(one("fresh"))
        .with_access(Access::of(namespace, "held", "held", "owner").for_callers(&["deployer"]))
        .with_access(Access::of(namespace, "fresh", "fresh", "owner").for_callers(&["deployer"]))
}

async fn owner_and_deployer(hub: &ControlPlane, namespace: &str) -> TestResult {
    make_tenant(hub, namespace, &["owner", "deployer"]).await?;
    let_mint(hub, "deployer", Subject::ServiceAccount(namespace, "deployer"), namespace, &["owner"]).await
}

/// The UID of the ServiceAccount that a handed-out token is for, nothing if there was none.
fn handed_out(answer: &Answer) -> Result<Option<String>, TestError> {
    if answer.status != 200 {
        assert!(!answer.body.contains("access_token"), "{}", answer.body);
        return Ok(None);
    }
    let uid = claims(&answer.token()?)?["kubernetes.io"]["serviceaccount"]["uid"].as_str().map(str::to_owned);
    Ok(Some(uid.ok_or("a bound token names a UID")?))
}

fn reason(broker: &Broker, answer: &Answer) -> Result<String, TestError> {
    let record = broker.audit_of(&answer.request_id)?;
    assert_eq!(record["decision"] == "granted", answer.status == 200, "{record}");
    Ok(record["reason"].as_str().unwrap_or_default().to_owned())
}

async fn made_anew(stage: &Stage, hub: &Arc<ControlPlane>, namespace: &str) -> TestResult {
    owner_and_deployer(hub, namespace).await?;
    let broker = stage.start_broker(hub, two_targets(stage, namespace, hub, namespace)).await?;
    let [held, fresh] = ["held", "fresh"].map(|name| format!("{namespace}/{name}"));
    let old_caller = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    let old_uid = handed_out(&broker.exchange_in_time(&old_caller, &held).await?)?;
    assert_eq!(handed_out(&broker.exchange_in_time(&delegate, &held).await?)?, old_uid);

    let new_uid = Some(hub.recreate_service_account(namespace, "owner").await?);
    let at = Instant::now();
    assert_ne!(new_uid, old_uid);
    // At once, where no token is held: whatever the watch has seen by now, the old caller gets nothing.
    let answer = broker.exchange(&old_caller, &fresh).await?;
    assert_eq!(handed_out(&answer)?, None);
    let reason_at_once = reason(&broker, &answer)?;
    assert!(["CallerIdentityChanged", "ServiceAccountChanged"].contains(&reason_at_once.as_str()), "{reason_at_once}");

    // The new ServiceAccount is served within a second, under its own UID.
    let new_caller = caller_token(hub, namespace, "owner").await?;
    let served = loop {
        let answer = broker.exchange(&new_caller, &held).await?;
        match handed_out(&answer)? {
            Some(uid) => break Some(uid),
            None => assert!(at.elapsed() < Duration::from_secs(1), "not served after a second: {}", reason(&broker, &answer)?),
        }
    };
    assert_eq!(served, new_uid);

    // From here on it has been seen that the account is another: for as long as the hub goes on accepting the old caller's token, and
    // longer, the held tokens of the old one stay where they are.
    let mut reasons = Vec::new();
    while at.elapsed() < Duration::from_secs(13) {
        for access in [&held, &fresh] {
            let answer = broker.exchange(&old_caller, access).await?;
            assert_eq!(handed_out(&answer)?, None, "the old caller after {:?}", at.elapsed());
            reasons.push(reason(&broker, &answer)?);
            assert_eq!(handed_out(&broker.exchange(&delegate, access).await?)?, new_uid, "the delegate after {:?}", at.elapsed());
            assert_eq!(handed_out(&broker.exchange(&new_caller, access).await?)?, new_uid);
        }
        let document = broker.kubeconfig_of(&old_caller, namespace, "held").await?;
        assert_eq!(document.status, 401, "{}", document.body);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(reasons.first().map(String::as_str), Some("CallerIdentityChanged"), "the hub itself accepts the token that long");
    reasons.dedup();
    assert!(reasons.iter().all(|reason| ["CallerIdentityChanged", "CallerRejected"].contains(&reason.as_str())), "{reasons:?}");
    Ok(())
}

/// The watch stands still, so that Keyferry does not know of the change: what the hub mints is held against what was asked for.
async fn behind_a_late_watch(stage: &Stage, hub: &Arc<ControlPlane>, namespace: &str) -> TestResult {
    owner_and_deployer(hub, namespace).await?;
    let proxy = ChaosProxy::in_front_of(hub).await?;
    let spec = two_targets(stage, namespace, hub, namespace).through(&proxy.url());
    let broker = stage.start_broker(hub, spec).await?;
    let access = format!("{namespace}/fresh");
    let old_caller = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    broker.exchange_in_time(&old_caller, &format!("{namespace}/held")).await?;

    let watches = proxy.count(&Method::GET, "/api/v1/serviceaccounts");
    proxy.add(Rule::on(Method::GET, "/api/v1/serviceaccounts", Fault::Delay(Duration::from_secs(120))));
    proxy.cut_all();
    until(Duration::from_secs(20), || async { Ok(proxy.count(&Method::GET, "/api/v1/serviceaccounts") > watches) }).await?;
    let new_uid = hub.recreate_service_account(namespace, "owner").await?;
    let new_caller = caller_token(hub, namespace, "owner").await?;

    let asked = proxy.count(&Method::POST, "/serviceaccounts/owner/token");
    for (who, token, expected) in [
        ("the old caller", &old_caller, "ServiceAccountChanged"),
        ("a delegate", &delegate, "ServiceAccountChanged"),
        ("the new caller", &new_caller, "CallerIdentityChanged"),
    ] {
        let answer = broker.exchange(token, &access).await?;
        assert_eq!(handed_out(&answer)?, None, "{who}");
        assert_eq!(reason(&broker, &answer)?, expected, "{who}");
        assert!(!answer.body.contains(&new_uid), "{}", answer.body);
    }
    assert!(proxy.count(&Method::POST, "/serviceaccounts/owner/token") > asked, "the hub was asked, so the UIDs were compared");
    Ok(())
}

async fn an_access_is_removed_while_its_token_is_held(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "removed");
    owner_and_deployer(hub, namespace).await?;
    let broker = stage.start_broker(hub, two_targets(&stage, namespace, hub, namespace)).await?;
    let own = caller_token(hub, namespace, "owner").await?;
    let delegate = caller_token(hub, namespace, "deployer").await?;
    for access in ["removed/held", "removed/fresh"] {
        broker.exchange_in_time(&own, access).await?;
        assert_eq!(broker.exchange(&delegate, access).await?.status, 200);
    }
    // One access goes, the other's target no longer allows it.
    broker
        .reconfigure(|targets, accesses| {
            accesses.retain(|access| access.name != "held");
            targets.iter_mut().filter(|target| target.name == "fresh").for_each(|target| target.allow.clear());
        })
        .await?;
    let minted = token_requests(hub, namespace)?;
    for name in ["held", "fresh"] {
        for token in [&own, &delegate] {
            let answer = broker.exchange(token, &format!("removed/{name}")).await?;
            assert_eq!((answer.status, answer.body.as_str()), (400, NOT_GRANTED));
            assert_eq!(reason(&broker, &answer)?, "TargetNotGranted");
            let document = broker.kubeconfig_of(token, namespace, name).await?;
            assert_eq!(document.status, 403, "{}", document.body);
            assert_eq!(reason(&broker, &document)?, "TargetNotGranted");
        }
    }
    assert_eq!(token_requests(hub, namespace)?, minted, "nothing is minted for what is not allowed");
    Ok(())
}

/// A Keyferry behind a proxy, six callers of one key under way, and a mint that takes three seconds.
struct SlowMint {
    proxy: ChaosProxy,
    broker: Arc<Broker>,
    callers: Vec<JoinHandle<Result<Answer, TestError>>>,
}

impl SlowMint {
    const PATH: &str = "/serviceaccounts/owner/token";

    async fn begin(stage: &Stage, namespace: &str) -> Result<SlowMint, TestError> {
        let hub = stage.hub();
        owner_and_deployer(hub, namespace).await?;
        let proxy = ChaosProxy::in_front_of(hub).await?;
        let spec = two_targets(stage, namespace, hub, namespace).through(&proxy.url());
        let broker = Arc::new(stage.start_broker(hub, spec).await?);
        proxy.add(Rule::on(Method::POST, SlowMint::PATH, Fault::Delay(Duration::from_secs(3))));
        let mut tokens = vec![caller_token(hub, namespace, "deployer").await?, caller_token(hub, namespace, "deployer").await?];
        for _ in 0..4 {
            tokens.push(caller_token(hub, namespace, "owner").await?);
        }
        let mut callers = Vec::new();
        for token in tokens {
            let (broker, access) = (Arc::clone(&broker), format!("{namespace}/held"));
            callers.push(tokio::spawn(async move { broker.exchange(&token, &access).await }));
        }
        until(Duration::from_secs(10), || async { Ok(proxy.count(&Method::POST, SlowMint::PATH) == 1) }).await?;
        Ok(SlowMint { proxy, broker, callers })
    }

    /// Changes the configuration now, before the mint has come back.
    async fn change(&self, change: impl FnOnce(&mut Vec<Target>, &mut Vec<Access>)) -> TestResult {
        tokio::select! {
            changed = self.broker.reconfigure(change) => changed?,
            ended = self.hang_up_again_and_again() => ended?,
        }
        assert!(self.callers.iter().all(|caller| !caller.is_finished()), "the mint was not under way any more");
        Ok(())
    }

    /// The signal makes it read the file now instead of within five seconds; one that comes before the file is written does nothing.
    async fn hang_up_again_and_again(&self) -> TestResult {
        loop {
            self.broker.process().hang_up().await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn answers(&mut self) -> Result<Vec<Answer>, TestError> {
        let mut answers = Vec::new();
        for caller in self.callers.drain(..) {
            answers.push(caller.await??);
        }
        Ok(answers)
    }
}

async fn an_access_is_removed_while_its_token_is_minted(stage: Arc<Stage>) -> TestResult {
    let mut slow = SlowMint::begin(&stage, "slow-removed").await?;
    slow.change(|_, accesses| accesses.retain(|access| access.name != "held")).await?;
    let answers = slow.answers().await?;
    assert_eq!(answers.len(), 6);
    for answer in &answers {
        assert_eq!((answer.status, answer.body.as_str()), (400, NOT_GRANTED));
        assert_eq!(reason(&slow.broker, answer)?, "TargetNotGranted");
    }
    assert_eq!(slow.proxy.count(&Method::POST, SlowMint::PATH), 1, "they all waited for the one mint");
    Ok(())
}

async fn an_access_is_moved_while_its_token_is_minted(stage: Arc<Stage>) -> TestResult {
    let mut slow = SlowMint::begin(&stage, "slow-moved").await?;
    let move_it = |access: &mut Access| "fresh".clone_into(&mut access.target);
    slow.change(|_, accesses| accesses.iter_mut().filter(|access| access.name == "held").for_each(move_it)).await?;
    for answer in slow.answers().await? {
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(claims(&answer.token()?)?["aud"], json!(["https://fresh.slow-moved.test"]), "for the target of now");
        assert_eq!(slow.broker.audit_of(&answer.request_id)?["target"], "fresh");
    }
    assert_eq!(slow.proxy.count(&Method::POST, SlowMint::PATH), 2);
    Ok(())
}

async fn a_missing_role_binding_is_told_and_heals(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "unbound");
    hub.create_namespace_with_service_account(namespace, "owner").await?;
    hub.create_service_account(namespace, "passer-by").await?;
    let broker = stage.start_broker(hub, two_targets(&stage, namespace, hub, namespace)).await?;
    let own = caller_token(hub, namespace, "owner").await?;
    for answer in [broker.exchange(&own, "unbound/held").await?, broker.kubeconfig_of(&own, namespace, "held").await?] {
        assert_eq!((answer.status, &answer.json()?["error"]), (503, &json!("target_not_ready")), "{}", answer.body);
        let description = answer.json()?["error_description"].as_str().unwrap_or_default().to_owned();
        assert!(description.starts_with("MintForbidden"), "{description}");
        assert!(answer.headers.contains_key("retry-after"));
        let record = broker.audit_of(&answer.request_id)?;
        assert_eq!((&record["decision"], &record["reason"]), (&json!("failed"), &json!("MintForbidden")), "{record}");
    }
    let other = broker.exchange(&caller_token(hub, namespace, "passer-by").await?, "unbound/held").await?;
    assert_eq!((other.status, other.body.as_str()), (400, NOT_GRANTED), "who may not use it learns nothing of its state");

    make_tenant(hub, namespace, &["owner"]).await?;
    let bound = Instant::now();
    broker.exchange_in_time(&own, "unbound/held").await?;
    assert!(bound.elapsed() < Duration::from_secs(3), "a missing right is not remembered: {:?}", bound.elapsed());
    Ok(())
}

fn target_with_issuer(stage: &Stage, name: &str, issuer: &str) -> Target {
    let further = if issuer.is_empty() { String::new() } else { format!("  targetIssuer: {issuer}\n") };
    let target = Target::of(stage.target_a(), &format!("https://{name}.plain-hub.test")).named(name);
    Target { further, ..target.allowing(TENANT, &[ACCOUNT]) }
}

async fn an_issuer_that_targets_must_refuse(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.plain_hub;
    let mut spec = BrokerSpec::of_hub("collision", hub);
    for (name, issuer) in [("unstated", ""), ("same", CLUSTER_DEFAULT), ("stated", "https://target-a.keyferry.test")] {
        spec = spec.with_target(target_with_issuer(&stage, name, issuer)).with_access(Access::of(TENANT, name, name, ACCOUNT));
    }
    let broker = stage.start_broker(hub, spec).await?;
    let own = caller_token(hub, TENANT, ACCOUNT).await?;
    hub.create_service_account(TENANT, "passer-by").await?;
    let other = caller_token(hub, TENANT, "passer-by").await?;
    let minted = token_requests(hub, TENANT)?;
    for name in ["unstated", "same"] {
        let answer = broker.exchange(&own, &format!("{TENANT}/{name}")).await?;
        assert_eq!((answer.status, &answer.json()?["error"]), (503, &json!("target_not_ready")), "{}", answer.body);
        let description = answer.json()?["error_description"].as_str().unwrap_or_default().to_owned();
        for part in ["IssuerCollision", CLUSTER_DEFAULT, "--service-account-issuer first", "keep the old one second"] {
            assert!(description.contains(part), "{part:?} is not in {description:?}");
        }
        assert_eq!(reason(&broker, &answer)?, "IssuerCollision");
        assert_eq!(broker.kubeconfig_of(&own, TENANT, name).await?.status, 503);
        let denied = broker.exchange(&other, &format!("{TENANT}/{name}")).await?;
        assert_eq!((denied.status, denied.body.as_str()), (400, NOT_GRANTED));
    }
    assert_eq!(token_requests(hub, TENANT)?, minted);
    let token = broker.exchange_in_time(&own, &format!("{TENANT}/stated")).await?.token()?;
    assert_eq!(claims(&token)?["iss"], CLUSTER_DEFAULT);
    Ok(())
}

async fn an_audience_of_the_hub_is_never_minted(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (&stage.plain_hub, "audience");
    owner_and_deployer(hub, namespace).await?;
    let target = |name: &str, audience: &str| {
        let further = "  targetIssuer: https://target-a.keyferry.test\n".to_owned();
        Target { further, ..Target::of(stage.target_a(), audience).named(name).allowing(namespace, &["owner"]) }
    };
    let spec = BrokerSpec::of_hub("audience", hub)
        .with_target(target("hubs", AUDIENCE_OF_HUB))
        .with_target(target("issuers", CLUSTER_DEFAULT))
        .with_target(target("good", "https://good.plain-hub.test"))
        .with_access(Access::of(namespace, "hubs", "hubs", "owner"))
        .with_access(Access::of(namespace, "issuers", "issuers", "owner"))
        .with_access(Access::of(namespace, "good", "good", "owner"));
    let broker = stage.start_broker(hub, spec).await?;
    let own = caller_token(hub, namespace, "owner").await?;
    for name in ["hubs", "issuers", "hubs"] {
        let answer = broker.exchange(&own, &format!("{namespace}/{name}")).await?;
        assert_eq!((answer.status, &answer.json()?["error"]), (503, &json!("target_not_ready")), "{}", answer.body);
        assert_eq!(reason(&broker, &answer)?, "AudienceIsHubs");
        assert!(answer.body.contains("AudienceIsHubs"), "{}", answer.body);
    }
    assert_eq!(token_requests(hub, namespace)?, 0, "only the canary tried it");
    broker.exchange_in_time(&own, &format!("{namespace}/good")).await?;
    assert_eq!(token_requests(hub, namespace)?, 1);
    Ok(())
}

async fn a_caller_audience_of_the_hub_stops_the_start(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.plain_hub;
    let spec = BrokerSpec::of_hub("caller-audience", hub).with_server_lines(&format!("callerAudience: {AUDIENCE_OF_HUB}\n"));
    let output = stage.refused_start(hub, spec).await?;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains("callerAudience") && last.contains(AUDIENCE_OF_HUB), "{last}");
    assert!(last.contains("the hub's own apiserver accepts it") && last.contains("choose another"), "{last}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    Ok(())
}

async fn keyferrys_own_token_expires_and_is_renewed(stage: Arc<Stage>) -> TestResult {
    let (hub, namespace) = (stage.hub(), "own-token");
    owner_and_deployer(hub, namespace).await?;
    let broker = stage.start_broker(hub, two_targets(&stage, namespace, hub, namespace)).await?;
    // A caller that was never seen before needs the hub each time.
    let ask = || async {
        let own = caller_token(hub, namespace, "owner").await?;
        broker.exchange(&own, "own-token/held").await
    };
    let known = caller_token(hub, namespace, "owner").await?;
    broker.exchange_in_time(&known, "own-token/held").await?;
    broker.kubeconfig().expire_token().await?;
    // Read again once a minute, as client-go does: until then the token that was read before is good.
    let refused = settled(Duration::from_secs(70), |answer| answer.status != 200, &ask).await?;
    let body: Value = refused.json()?;
    assert_eq!((refused.status, &body["error"]), (503, &json!("temporarily_unavailable")), "{body}");
    assert_eq!(reason(&broker, &refused)?, "ReviewForbidden");
    let document = broker.http().get(format!("{}/openid/v1/jwks", broker.discovery_url())).send().await?;
    assert_eq!(document.status().as_u16(), 200, "what is published stays");

    broker.kubeconfig().rewrite_token(3600).await?;
    settled(Duration::from_secs(70), |answer| answer.status == 200, &ask).await?;
    assert_eq!(broker.exchange(&known, "own-token/fresh").await?.status, 200, "it mints again, for old callers too");
    assert_eq!(claims(&known)?["aud"], json!([CALLER_AUDIENCE]));
    Ok(())
}

async fn settled<F: Future<Output = Result<Answer, TestError>>>(
    limit: Duration,
    wanted: impl Fn(&Answer) -> bool,
    ask: impl Fn() -> F,
) -> Result<Answer, TestError> {
    let started = Instant::now();
    loop {
        let answer = ask().await?;
        if wanted(&answer) {
            return Ok(answer);
        }
        if started.elapsed() > limit {
            return Err(format!("still {} {} after {limit:?}", answer.status, answer.body).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Asks until it is so.
async fn until<F: Future<Output = Result<bool, TestError>>>(limit: Duration, holds: impl Fn() -> F) -> TestResult {
    let started = Instant::now();
    while !holds().await? {
        if started.elapsed() > limit {
            return Err(format!("not so within {limit:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
