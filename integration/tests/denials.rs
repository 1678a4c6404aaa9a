//! Everything that must be refused, on both surfaces: the same few bytes outside, the true reason in the audit log, nothing handed out
//! and nothing minted. Each denial stands beside the request that is allowed and differs from it in one thing.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{NotStarted, Suite, TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, Access, Answer, CALLER_AUDIENCE, Subject, TENANT, Target, World, caller_token, claims, let_mint, make_tenant,
    take_back, token_requests,
};
use serde_json::{Value, json};

fn main() -> ExitCode {
    Suite::new(start)
        .test("a_denial_says_the_same_whatever_the_cause", a_denial_says_the_same_whatever_the_cause)
        .test("an_account_that_allow_does_not_hold", an_account_that_allow_does_not_hold)
        .test("a_caller_of_another_tenant", a_caller_of_another_tenant)
        .test("callers_that_are_not_listed", callers_that_are_not_listed)
        .test("a_listed_caller_needs_rbac", a_listed_caller_needs_rbac)
        .test("a_grant_through_a_group_counts", a_grant_through_a_group_counts)
        .test("tokens_that_are_no_caller_tokens", tokens_that_are_no_caller_tokens)
        .test("requests_without_a_token", requests_without_a_token)
        .test("a_token_that_was_handed_out_is_no_caller_token", a_token_that_was_handed_out_is_no_caller_token)
        .test("a_namespace_by_its_label_and_no_longer", a_namespace_by_its_label_and_no_longer)
        .test("kube_system_is_not_selected", kube_system_is_not_selected)
        .test("keyferrys_own_namespace_is_closed", keyferrys_own_namespace_is_closed)
        .run()
}

/// Every test has a namespace of its own, so that what is minted there is its own.
async fn start() -> Result<World, NotStarted> {
    let world = World::start().await?;
    prepare(&world).await.map_err(NotStarted::failed)?;
    Ok(world)
}

async fn prepare(world: &World) -> TestResult {
    let hub = world.hub();
    make_tenant(hub, "allowed-name", &["owner", "other"]).await?;
    make_tenant(hub, "owned", &["owner"]).await?;
    make_tenant(hub, "strangers", &["owner", "deployer"]).await?;
    make_tenant(hub, "unlisted", &["owner", "deployer", "passer-by"]).await?;
    make_tenant(hub, "listed", &["owner", "deployer"]).await?;
    make_tenant(hub, "grouped", &["owner", "deployer"]).await?;
    make_tenant(hub, "bad-tokens", &["owner"]).await?;
    make_tenant(hub, "minted", &["owner"]).await?;
    make_tenant(hub, "selected", &["owner"]).await?;
    make_tenant(hub, "kube-system", &["owner"]).await?;
    make_tenant(hub, "metadata-name", &["owner"]).await?;
    world
        .broker()
        .reconfigure(|targets, accesses| {
            let mut target = Target::of(world.target_a(), "https://denials.keyferry.test").named("denials");
            for namespace in ["allowed-name", "owned", "unlisted", "listed", "grouped", "bad-tokens", "minted", "keyferry-system"] {
                target = target.allowing(namespace, &["owner", "keyferry"]);
            }
            targets.push(target);
            targets.push(selecting(world, "by-label", "matchLabels: { access.keyferry.dev/denials: 'yes' }"));
            let both = "matchExpressions: [{ key: kubernetes.io/metadata.name, operator: In, values: [kube-system, metadata-name] }]";
            targets.push(selecting(world, "by-name", both));
            accesses.push(Access::of("allowed-name", "mine", "denials", "owner"));
            accesses.push(Access::of("allowed-name", "others", "denials", "other"));
            accesses.push(Access::of("allowed-name", "nowhere", "no-such-target", "owner"));
            accesses.push(Access::of("allowed-name", "nobody", "denials", "no-such-account"));
            accesses.push(Access::of("strangers", "mine", "denials", "owner"));
            for namespace in ["owned", "bad-tokens", "minted"] {
                accesses.push(Access::of(namespace, "mine", "denials", "owner"));
            }
            for namespace in ["unlisted", "listed", "grouped"] {
                accesses.push(Access::of(namespace, "mine", "denials", "owner").for_callers(&["deployer"]));
            }
            accesses.push(Access::of("selected", "mine", "by-label", "owner"));
            accesses.push(Access::of("kube-system", "mine", "by-name", "owner"));
            accesses.push(Access::of("metadata-name", "mine", "by-name", "owner"));
            accesses.push(Access::of("keyferry-system", "mine", "denials", "keyferry"));
        })
        .await
}

fn selecting(world: &World, name: &str, selector: &str) -> Target {
    let mut target = Target::of(world.target_a(), &format!("https://{name}.keyferry.test")).named(name);
    target.further = format!("  allow:\n    - namespaceSelector: {{ {selector} }}\n      serviceAccounts: [owner]\n");
    target
}

/// The answers of the two surfaces to one caller.
struct Both {
    exchange: Answer,
    kubeconfig: Answer,
}

async fn ask(world: &World, token: &str, access: &str) -> Result<Both, TestError> {
    let (namespace, name) = access.split_once('/').ok_or("an access has two names")?;
    let exchange = world.broker().exchange(token, access).await?;
    let kubeconfig = world.broker().kubeconfig_of(token, namespace, name).await?;
    Ok(Both { exchange, kubeconfig })
}

/// What a client can tell answers apart by: all but the request's id and the time.
fn outside(answer: &Answer) -> (u16, Vec<(String, String)>, &str) {
    let headers = answer.headers.iter().filter(|(name, _)| *name != "x-request-id" && *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    (answer.status, headers.collect(), &answer.body)
}

/// Asks on both surfaces; both must refuse in the form for this kind of reason, each with one audit record that holds the true one.
async fn denied(world: &World, token: &str, access: &str, reason: &str) -> TestResult {
    let answers = ask(world, token, access).await?;
    let about_caller = reason.starts_with("Caller");
    let (exchange, kubeconfig) = if about_caller {
        ((400, "invalid_request", "the subject_token was not accepted"), (401, "invalid_token", "the bearer token was not accepted"))
    } else {
        let exchange = (400, "invalid_target", "the audience names no access that this caller may use");
        (exchange, (403, "access_denied", "this caller may use no such access"))
    };
    for (answer, (status, error, description), route) in
        [(&answers.exchange, exchange, "exchange"), (&answers.kubeconfig, kubeconfig, "kubeconfig")]
    {
        let body = format!("{{\"error\":\"{error}\",\"error_description\":\"{description}\"}}");
        assert_eq!((answer.status, &answer.body), (status, &body), "{access}, which should be refused for {reason}");
        let challenge = answer.headers.get("www-authenticate").and_then(|value| value.to_str().ok());
        assert_eq!(challenge, (status == 401).then_some("Bearer error=\"invalid_token\""));
        assert!(!answer.headers.contains_key("retry-after"), "asking again is no help");
        let record = world.broker().audit_of(&answer.request_id)?;
        assert_eq!((&record["decision"], &record["reason"]), (&json!("denied"), &json!(reason)), "{record}");
        assert_eq!((&record["route"], &record["access"]), (&json!(route), &json!(access)), "{record}");
        assert_eq!(record["tokenId"], Value::Null, "{record}");
    }
    not_written_down(world, token)
}

/// Both surfaces hand out a token of this ServiceAccount.
async fn granted(world: &World, token: &str, access: &str, account: &str) -> Result<String, TestError> {
    let answers = ask(world, token, access).await?;
    assert_eq!(answers.kubeconfig.status, 200, "{access}: {}", answers.kubeconfig.body);
    let handed_out = answers.exchange.token()?;
    let subject = format!("system:serviceaccount:{}", account.replace('/', ":"));
    assert_eq!(claims(&handed_out)?["sub"], subject);
    assert!(answers.kubeconfig.body.contains(&handed_out), "the kubeconfig holds the cached token");
    for answer in [&answers.exchange, &answers.kubeconfig] {
        let record = world.broker().audit_of(&answer.request_id)?;
        assert_eq!((&record["decision"], &record["serviceAccount"]), (&json!("granted"), &json!(account)), "{record}");
    }
    not_written_down(world, token)?;
    not_written_down(world, &handed_out)?;
    Ok(handed_out)
}

fn not_written_down(world: &World, token: &str) -> TestResult {
    let signature = token.rsplit('.').next().unwrap_or_default();
    let written = [world.broker().log()?, format!("{:?}", world.broker().audit()?)];
    for needle in [token, signature].into_iter().filter(|needle| needle.len() > 20) {
        assert!(written.iter().all(|text| !text.contains(needle)), "a token is in the log or in the audit log");
    }
    Ok(())
}

/// Nothing was even asked of the hub for the ServiceAccounts of this namespace.
fn nothing_minted(hub: &ControlPlane, namespace: &str) -> TestResult {
    assert_eq!(token_requests(hub, namespace)?, 0, "TokenRequests in {namespace}");
    Ok(())
}

async fn a_denial_says_the_same_whatever_the_cause(world: Arc<World>) -> TestResult {
    let (hub, namespace) = (world.hub(), "allowed-name");
    let stranger = caller_token(hub, "strangers", "owner").await?;
    let own = caller_token(hub, namespace, "owner").await?;
    // Absent: the access, its namespace, its target, its ServiceAccount. Forbidden: not allowed, another tenant's.
    let forbidden = ask(&world, &stranger, "allowed-name/mine").await?;
    for (token, access) in [
        (&own, "allowed-name/no-such-access"),
        (&own, "no-such-namespace/no-such-access"),
        (&own, "allowed-name/nowhere"),
        (&own, "allowed-name/nobody"),
        (&own, "allowed-name/others"),
        (&own, "owned/mine"),
        (&stranger, "allowed-name/no-such-access"),
        (&stranger, "strangers/mine"),
    ] {
        denied(&world, token, access, "TargetNotGranted").await?;
        let other = ask(&world, token, access).await?;
        assert_eq!(outside(&other.exchange), outside(&forbidden.exchange), "{access}");
        assert_eq!(outside(&other.kubeconfig), outside(&forbidden.kubeconfig), "{access}");
    }
    nothing_minted(hub, namespace)?;
    granted(&world, &own, "allowed-name/mine", "allowed-name/owner").await?;
    assert_eq!(token_requests(hub, namespace)?, 1);
    Ok(())
}

async fn an_account_that_allow_does_not_hold(world: Arc<World>) -> TestResult {
    // A tenant may write any access; the target's allow[] decides. Its own namespace, its own ServiceAccount, and not its target.
    let hub = world.hub();
    let own = caller_token(hub, "strangers", "owner").await?;
    denied(&world, &own, "strangers/mine", "TargetNotGranted").await?;
    let other = caller_token(hub, "allowed-name", "other").await?;
    denied(&world, &other, "allowed-name/others", "TargetNotGranted").await?;
    let reconciler = caller_token(hub, TENANT, ACCOUNT).await?;
    denied(&world, &reconciler, "tenant-a/b", "TargetNotGranted").await?;
    nothing_minted(hub, "strangers")
}

async fn a_caller_of_another_tenant(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    // By every right that RBAC can give: an access is for the callers of its own namespace.
    let_mint(hub, "generous", Subject::ServiceAccount("strangers", "owner"), "owned", &["owner"]).await?;
    let stranger = caller_token(hub, "strangers", "owner").await?;
    denied(&world, &stranger, "owned/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "owned")?;
    let own = caller_token(hub, "owned", "owner").await?;
    granted(&world, &own, "owned/mine", "owned/owner").await?;
    // Now a token is held that only its owner may have.
    denied(&world, &stranger, "owned/mine", "TargetNotGranted").await
}

async fn callers_that_are_not_listed(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let_mint(hub, "generous", Subject::Group("system:serviceaccounts"), "unlisted", &["owner"]).await?;
    let unlisted = caller_token(hub, "unlisted", "passer-by").await?;
    denied(&world, &unlisted, "unlisted/mine", "TargetNotGranted").await?;
    let namesake = caller_token(hub, "strangers", "deployer").await?;
    denied(&world, &namesake, "unlisted/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "unlisted")?;
    let listed = caller_token(hub, "unlisted", "deployer").await?;
    granted(&world, &listed, "unlisted/mine", "unlisted/owner").await?;
    Ok(())
}

async fn a_listed_caller_needs_rbac(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let first = caller_token(hub, "listed", "deployer").await?;
    denied(&world, &first, "listed/mine", "DelegationForbidden").await?;
    nothing_minted(hub, "listed")?;
    // A right to mint for somebody else is none here.
    let_mint(hub, "deployer", Subject::ServiceAccount("listed", "deployer"), "listed", &["deployer"]).await?;
    let second = caller_token(hub, "listed", "deployer").await?;
    denied(&world, &second, "listed/mine", "DelegationForbidden").await?;
    nothing_minted(hub, "listed")?;

    let_mint(hub, "deployer", Subject::ServiceAccount("listed", "deployer"), "listed", &["owner"]).await?;
    until(Duration::from_secs(12), || async {
        Ok(world.broker().exchange(&caller_token(hub, "listed", "deployer").await?, "listed/mine").await?.status == 200)
    })
    .await?;
    let third = caller_token(hub, "listed", "deployer").await?;
    granted(&world, &third, "listed/mine", "listed/owner").await?;

    // Taken back, it ends within the ten seconds that a review stands, although the token is held.
    take_back(hub, "deployer", "listed").await?;
    until(Duration::from_secs(12), || async { Ok(world.broker().exchange(&third, "listed/mine").await?.status != 200) }).await?;
    denied(&world, &third, "listed/mine", "DelegationForbidden").await
}

async fn a_grant_through_a_group_counts(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let before = caller_token(hub, "grouped", "deployer").await?;
    denied(&world, &before, "grouped/mine", "DelegationForbidden").await?;
    let_mint(hub, "everybody-here", Subject::Group("system:serviceaccounts:grouped"), "grouped", &["owner"]).await?;
    until(Duration::from_secs(12), || async {
        Ok(world.broker().exchange(&caller_token(hub, "grouped", "deployer").await?, "grouped/mine").await?.status == 200)
    })
    .await?;
    let after = caller_token(hub, "grouped", "deployer").await?;
    granted(&world, &after, "grouped/mine", "grouped/owner").await?;
    Ok(())
}

async fn tokens_that_are_no_caller_tokens(world: Arc<World>) -> TestResult {
    let (hub, access) = (world.hub(), "bad-tokens/mine");
    let good = caller_token(hub, "bad-tokens", "owner").await?;
    for (what, token, reason) in bad_tokens(&world, &good).await? {
        denied(&world, &token, access, reason).await.map_err(|error| format!("{what}: {error}"))?;
        // A bad token learns nothing about accesses either.
        denied(&world, &token, "bad-tokens/no-such-access", reason).await.map_err(|error| format!("{what}: {error}"))?;
    }
    nothing_minted(hub, "bad-tokens")?;
    granted(&world, &good, access, "bad-tokens/owner").await?;
    assert_eq!(token_requests(hub, "bad-tokens")?, 1);
    Ok(())
}

async fn bad_tokens(world: &World, good: &str) -> Result<Vec<(&'static str, String, &'static str)>, TestError> {
    let (hub, old_hub) = (world.hub(), world.old_hub());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let own_issuer = "https://hub.keyferry.test";
    let expired = hub.sign_again(good, |claims| {
        claims["iat"] = json!(now - 700);
        claims["nbf"] = json!(now - 700);
        claims["exp"] = json!(now - 1);
    });
    old_hub.create_namespace_with_service_account("bad-tokens", "owner").await?;
    let others = caller_token(old_hub, "bad-tokens", "owner").await?;
    let posing = old_hub.sign_again(&others, |claims| claims["iss"] = json!(own_issuer)).await?;
    // A stolen signing key alone does not make a caller: the hub does not know this UID.
    let invented =
        hub.sign_again(good, |claims| claims["kubernetes.io"]["serviceaccount"]["uid"] = json!("00000000-0000-4000-8000-000000000000"));
    let renamed = with_claims(good, |claims| claims["sub"] = json!("system:serviceaccount:tenant-a:reconciler"))?;
    let longer = with_claims(good, |claims| claims["exp"] = json!(now + 86_400))?;
    Ok(vec![
        ("for the hub", for_audiences(hub, &[]).await?, "CallerAudienceMismatch"),
        ("for a target", for_audiences(hub, &[AUDIENCE_A]).await?, "CallerAudienceMismatch"),
        ("for Keyferry and the hub", for_audiences(hub, &[CALLER_AUDIENCE, own_issuer]).await?, "CallerAudienceMismatch"),
        ("for the hub and Keyferry", for_audiences(hub, &[own_issuer, CALLER_AUDIENCE]).await?, "CallerAudienceMismatch"),
        ("for almost Keyferry", for_audiences(hub, &["keyferry.dev."]).await?, "CallerAudienceMismatch"),
        ("expired", expired.await?, "CallerExpired"),
        ("another hub's", others, "CallerIssuerMismatch"),
        ("another hub's under our issuer", posing, "CallerRejected"),
        ("of a UID that is not there", invented.await?, "CallerRejected"),
        ("another subject under an old signature", renamed, "CallerMalformed"),
        ("a longer life under an old signature", longer, "CallerRejected"),
        ("without its signature", format!("{}.", good.rsplit_once('.').ok_or("no token")?.0), "CallerMalformed"),
        ("unsigned", unsigned(good)?, "CallerMalformed"),
        ("a legacy Secret's", legacy_token(hub, "bad-tokens", "owner").await?, "CallerMalformed"),
        ("garbage", "garbage".to_owned(), "CallerMalformed"),
        ("garbage in three parts", "a.b.c".to_owned(), "CallerMalformed"),
        ("a thousand dots", ".".repeat(1000), "CallerMalformed"),
        ("two tokens", format!("{good} {good}"), "CallerMalformed"),
    ])
}

async fn for_audiences(hub: &ControlPlane, audiences: &[&str]) -> Result<String, TestError> {
    Ok(hub.token_request("bad-tokens", "owner", audiences, 600).await?.token)
}

/// The token with other claims under its old signature.
fn with_claims(token: &str, edit: impl FnOnce(&mut Value)) -> Result<String, TestError> {
    let mut parts = token.split('.');
    let (Some(header), Some(_), Some(signature)) = (parts.next(), parts.next(), parts.next()) else { return Err("no token".into()) };
    let mut claims = claims(token)?;
    edit(&mut claims);
    Ok(format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string())))
}

/// RFC 7519 section 6.
fn unsigned(token: &str) -> Result<String, TestError> {
    let claims = token.split('.').nth(1).ok_or("no token")?;
    Ok(format!("{}.{claims}.", URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}")))
}

/// The token of a Secret of type kubernetes.io/service-account-token, which the controller manager fills: no expiry, no audience.
async fn legacy_token(hub: &ControlPlane, namespace: &str, account: &str) -> Result<String, TestError> {
    let path = format!("/api/v1/namespaces/{namespace}/secrets/legacy");
    let annotations = json!({ "kubernetes.io/service-account.name": account });
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "legacy", "annotations": annotations },
    });
    hub.admin().apply(&path, &secret).await?;
    until(Duration::from_secs(20), || async { Ok(hub.admin().get(&path).await?["data"]["token"].is_string()) }).await?;
    let data = hub.admin().get(&path).await?["data"]["token"].take();
    let token = String::from_utf8(STANDARD.decode(data.as_str().unwrap_or_default())?)?;
    // The hub itself takes it: it is a credential, only none for here.
    hub.as_bearer(&token)?.get("/version").await?;
    Ok(token)
}

async fn requests_without_a_token(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let empty = broker.exchange("", "bad-tokens/mine").await?;
    assert_eq!((empty.status, &empty.json()?["error"]), (400, &json!("invalid_request")));
    let url = format!("{}/v1/namespaces/bad-tokens/accesses/mine/kubeconfig", broker.api_url());
    for (authorization, reason) in [
        (None, "CallerMissing"),
        (Some("Bearer"), "CallerMalformed"),
        (Some("Bearer "), "CallerMalformed"),
        (Some("Basic a2V5ZmVycnk6a2V5ZmVycnk="), "CallerMalformed"),
    ] {
        let mut request = broker.http().get(&url);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send().await?;
        assert_eq!(response.status().as_u16(), 401);
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let challenge = if authorization.is_none() { "Bearer" } else { "Bearer error=\"invalid_token\"" };
        assert_eq!(header("www-authenticate"), challenge, "RFC 6750 section 3: no error code where no token was sent");
        let record = broker.audit_of(&header("x-request-id"))?;
        assert_eq!((&record["decision"], &record["reason"]), (&json!("denied"), &json!(reason)), "{record}");
    }
    let record = broker.audit_of(&empty.request_id)?;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("denied"), &json!("RequestInvalid")), "{record}");
    Ok(())
}

async fn a_token_that_was_handed_out_is_no_caller_token(world: Arc<World>) -> TestResult {
    let own = caller_token(world.hub(), "minted", "owner").await?;
    let handed_out = granted(&world, &own, "minted/mine", "minted/owner").await?;
    denied(&world, &handed_out, "minted/mine", "CallerAudienceMismatch").await
}

async fn a_namespace_by_its_label_and_no_longer(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let own = caller_token(hub, "selected", "owner").await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "selected")?;
    let label = |value: Value| json!({ "metadata": { "labels": { "access.keyferry.dev/denials": value } } });
    hub.admin().patch("/api/v1/namespaces/selected", &label(json!("yes"))).await?;
    world.broker().exchange_in_time(&own, "selected/mine").await?;
    granted(&world, &own, "selected/mine", "selected/owner").await?;
    // Refused within a second, although the token is held.
    hub.admin().patch("/api/v1/namespaces/selected", &label(json!("no"))).await?;
    until(Duration::from_secs(1), || async { Ok(world.broker().exchange(&own, "selected/mine").await?.status != 200) }).await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await?;
    hub.admin().patch("/api/v1/namespaces/selected", &label(json!("yes"))).await?;
    world.broker().exchange_in_time(&own, "selected/mine").await?;
    hub.admin().patch("/api/v1/namespaces/selected", &label(Value::Null)).await?;
    until(Duration::from_secs(1), || async { Ok(world.broker().exchange(&own, "selected/mine").await?.status != 200) }).await?;
    denied(&world, &own, "selected/mine", "TargetNotGranted").await
}

async fn kube_system_is_not_selected(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let system = caller_token(hub, "kube-system", "owner").await?;
    denied(&world, &system, "kube-system/mine", "TargetNotGranted").await?;
    nothing_minted(hub, "kube-system")?;
    // The same selector names this one too, and here it counts.
    let plain = caller_token(hub, "metadata-name", "owner").await?;
    granted(&world, &plain, "metadata-name/mine", "metadata-name/owner").await?;
    Ok(())
}

async fn keyferrys_own_namespace_is_closed(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    let keyferry = caller_token(hub, "keyferry-system", "keyferry").await?;
    denied(&world, &keyferry, "keyferry-system/mine", "TargetNotGranted").await?;
    let minted_for = hub.audit_events()?.into_iter().filter(|event| event["objectRef"]["subresource"] == "token");
    let by_keyferry = minted_for.filter(|event| event["user"]["username"] == "system:serviceaccount:keyferry-system:keyferry");
    let for_itself = by_keyferry.filter(|event| event["objectRef"]["name"] == "keyferry").count();
    assert_eq!(for_itself, 0);
    Ok(())
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
