//! Several apiservers of one hub, which do not all serve the same keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{BrokerSpec, Ground, caller_token};
use serde_json::{Value, json};

use super::stage::{Judge, Stage, TENANT, hub_kids, published, sign_with_new_key};

const KEYS: &str = "/openid/v1/jwks";

/// A real second apiserver over the same data keeps signing with the old key, and lists only that
/// one.
pub(super) async fn lagging(ground: Arc<Ground>) -> TestResult {
    let hub = ground.hub(ControlPlaneSpec::named("lag-hub")).await?;
    let spec = ControlPlaneSpec {
        replica_of: Some("lag-hub".to_owned()),
        issuers: hub.signing().await.issuers,
        ..ControlPlaneSpec::named("lag-replica")
    };
    let replica = ground.control_plane(spec).await?;
    replica.set_signing(hub.signing().await).await;
    replica.restart().await?;
    // It is reached by the only name that Keyferry trusts, because the replica's own certificate
    // has another CA.
    let door = ChaosProxy::start(&replica.url(), replica.ca_pem(), hub.ca()).await?;
    let endpoints = format!(
        "hub:\n  endpoints: [\"{}\", \"{}\"]\n",
        hub.url(),
        door.url()
    );
    let accounts = ["reconciler".to_owned()];
    let stage = Stage::on(&ground, hub, "lag", 30, &accounts, |spec| {
        spec.with_server_lines(&endpoints)
    })
    .await?;
    let first = hub_kids(&stage.hub).await?.remove(0);
    stage
        .until_published(&[&first], Duration::from_secs(10))
        .await?;
    assert!(
        door.count(&Method::GET, KEYS) > 0,
        "the second apiserver is asked too"
    );

    sign_with_new_key(&stage.hub, "second").await?;
    let second = hub_kids(&stage.hub)
        .await?
        .into_iter()
        .find(|kid| *kid != first)
        .ok_or("the hub lists no second key")?;
    let mut both = [first.as_str(), second.as_str()];
    both.sort_unstable();
    stage
        .until_published(&both, Duration::from_secs(75))
        .await?;
    let union = published(&stage.broker).await?;
    stays(&stage, &union, Duration::from_secs(35)).await?;

    // The lagging apiserver goes away and the other one drops the old key. While not all of them
    // answer, nothing is withdrawn.
    replica.stop().await?;
    let mut signing = stage.hub.signing().await;
    signing.further_keys.clear();
    stage.hub.set_signing(signing).await;
    stage.hub.restart().await?;
    stage.broker.kubeconfig().rewrite_token(3600).await?;
    assert_eq!(hub_kids(&stage.hub).await?, std::slice::from_ref(&second));
    stays(&stage, &union, Duration::from_secs(35)).await?;
    Ok(())
}

async fn stays(stage: &Stage, expected: &[u8], during: Duration) -> TestResult {
    let from = Instant::now();
    while from.elapsed() < during {
        assert_eq!(
            published(&stage.broker).await?,
            expected,
            "after {:?}",
            from.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// The hub signs with a key that it does not list, as with some installers. No token of that key is
/// issued, and earlier tokens stay in use. Once it is listed, both replicas publish it within half
/// a minute, as the same bytes.
pub(super) async fn signs_first(ground: Arc<Ground>) -> TestResult {
    let hub = ground.hub(ControlPlaneSpec::named("early-hub")).await?;
    let proxy = ChaosProxy::in_front_of(&hub).await?;
    let endpoints = format!("hub:\n  endpoints: [\"{}\"]\n", proxy.url());
    let accounts = ["reconciler", "newcomer"].map(str::to_owned);
    let stage = Stage::on(&ground, hub, "early", 30, &accounts, |spec| {
        spec.with_server_lines(&endpoints)
    })
    .await?;
    let spec = BrokerSpec::of_hub("early-two", &stage.hub)
        .replica_in("keyferry-early")
        .with_server_lines(&endpoints);
    let two = ground
        .start_broker(&stage.hub, spec.published_at(&stage.broker.discovery_url()))
        .await?;
    let (before, listed) = (
        published(&stage.broker).await?,
        stage.hub.admin().get(KEYS).await?,
    );
    assert_eq!(published(&two).await?, before);
    let caller = caller_token(&stage.hub, TENANT, "reconciler").await?;
    let cached_token = stage
        .broker
        .exchange_in_time(&caller, &format!("{TENANT}/reconciler-0"))
        .await?
        .token()?;

    let rule = proxy.add(replace_key_set(&listed));
    sign_with_new_key(&stage.hub, "second").await?;
    let newcomer = caller_token(&stage.hub, TENANT, "newcomer").await?;
    let from = Instant::now();
    while from.elapsed() < Duration::from_secs(20) {
        let answer = stage
            .broker
            .exchange(&newcomer, &format!("{TENANT}/newcomer-0"))
            .await?;
        assert_ne!(
            answer.status, 200,
            "a token of a key that nobody can know left"
        );
        let answer = stage
            .broker
            .exchange(&caller, &format!("{TENANT}/reconciler-0"))
            .await?;
        assert_eq!(answer.token()?, cached_token, "what is held goes on");
        assert_eq!(published(&stage.broker).await?, before);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    proxy.remove(rule);
    let both = hub_kids(&stage.hub).await?;
    stage
        .until_published(
            &both.iter().map(String::as_str).collect::<Vec<_>>(),
            Duration::from_secs(45),
        )
        .await?;
    let (changed, after) = (Instant::now(), published(&stage.broker).await?);
    while published(&two).await? != after {
        assert!(
            changed.elapsed() < Duration::from_secs(30),
            "the replicas differ for half a minute"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The targets accept at once what is issued in the end.
    let newcomer = loop {
        let caller = caller_token(&stage.hub, TENANT, "newcomer").await?;
        let answer = stage
            .broker
            .exchange(&caller, &format!("{TENANT}/newcomer-0"))
            .await?;
        if answer.status == 200 {
            break answer.token()?;
        }
        assert!(
            changed.elapsed() < Duration::from_secs(130),
            "{}",
            answer.body
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert!(
        changed.elapsed() > Duration::from_secs(60),
        "it left {:?} after it was published",
        changed.elapsed()
    );
    let target = stage.targets.first().ok_or("no target")?;
    assert_eq!(Judge::of(target)?.status(&newcomer).await?, 201);
    Ok(())
}

/// One endpoint shows changes that no rotation makes. None of them reaches a target.
pub(super) async fn rogue(ground: Arc<Ground>) -> TestResult {
    let hub = ground.hub(ControlPlaneSpec::named("odd-hub")).await?;
    let proxy = ChaosProxy::in_front_of(&hub).await?;
    let endpoints = format!(
        "hub:\n  endpoints: [\"{}\", \"{}\"]\n",
        hub.url(),
        proxy.url()
    );
    let accounts = ["reconciler".to_owned()];
    let stage = Stage::on(&ground, hub, "odd", 30, &accounts, |spec| {
        spec.with_server_lines(&endpoints)
    })
    .await?;
    let own = stage.hub.admin().get(KEYS).await?["keys"][0].clone();
    let stranger = ground
        .control_plane(ControlPlaneSpec::named("odd-stranger"))
        .await?;
    let rogue = stranger.admin().get(KEYS).await?["keys"][0].clone();
    let before = published(&stage.broker).await?;

    let mut other_bytes = rogue.clone();
    other_bytes["kid"] = own["kid"].clone();
    for (what, keys, expected) in [
        ("a rogue key, once", json!([own, rogue]), None),
        (
            "other bytes under a known kid",
            json!([other_bytes]),
            Some("HubKeyReplaced"),
        ),
    ] {
        let rule = proxy.add(replace_key_set(&json!({ "keys": keys })));
        read_again(&stage, &proxy).await?;
        proxy.remove(rule);
        for _ in 0..2 {
            read_again(&stage, &proxy).await?;
            assert_eq!(published(&stage.broker).await?, before, "{what}");
        }
        if let Some(reason) = expected {
            assert!(
                stage.broker.log()?.contains(reason),
                "{what}: the log does not say {reason}"
            );
        }
    }
    let flipped = json!({ "issuer": "https://another.keyferry.test", "jwks_uri": "https://another.keyferry.test/keys",
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"] });
    let body = Fault::ReplaceBody {
        body: flipped.to_string().into_bytes(),
        content_type: HeaderValue::from_static("application/json"),
    };
    let rule = proxy.add(Rule::on(
        Method::GET,
        "/.well-known/openid-configuration",
        body,
    ));
    read_again(&stage, &proxy).await?;
    assert_eq!(published(&stage.broker).await?, before, "another issuer");
    proxy.remove(rule);

    // The targets refuse tokens that the unknown key signs in the hub's name.
    let caller = caller_token(&stage.hub, TENANT, "reconciler").await?;
    for (index, target) in stage.targets.iter().enumerate() {
        let good = stage
            .broker
            .exchange_in_time(&caller, &format!("{TENANT}/reconciler-{index}"))
            .await?
            .token()?;
        assert_eq!(Judge::of(target)?.status(&good).await?, 201);
        let forged = stranger
            .sign_again(&good, |claims| claims["jti"] = json!("forged"))
            .await?;
        assert_eq!(Judge::of(target)?.status(&forged).await?, 401);
    }
    Ok(())
}

async fn read_again(stage: &Stage, proxy: &ChaosProxy) -> TestResult {
    let reads = proxy.count(&Method::GET, KEYS);
    stage.broker.process().hang_up().await?;
    let limit = Instant::now() + Duration::from_secs(15);
    while proxy.count(&Method::GET, KEYS) <= reads {
        if Instant::now() > limit {
            return Err(TestError::from("the hub's keys were not read again"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The response is on its way. Wait, so that the next reading of a candidate key is clearly
    // later than this one.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

fn replace_key_set(set: &Value) -> Rule {
    let fault = Fault::ReplaceBody {
        body: set.to_string().into_bytes(),
        content_type: HeaderValue::from_static("application/jwk-set+json"),
    };
    Rule::on(Method::GET, KEYS, fault)
}
