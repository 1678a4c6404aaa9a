//! Floods of tokens that Keyferry can judge without asking the hub, and of requests that policy
//! denies.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::try_join_all;
use http::Method;
use keyferry_integration::chaos_proxy::ChaosProxy;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, CALLER_AUDIENCE, TENANT, Target, World, caller_token,
    make_tenant,
};
use serde_json::{Value, json};

/// How often each of them is sent.
const EACH: usize = 100;

pub(super) async fn garbage_tokens_never_reach_the_hub(world: Arc<World>) -> TestResult {
    let proxy = ChaosProxy::in_front_of(world.hub()).await?;
    let spec = BrokerSpec::of_hub("flood", world.hub())
        .through(&proxy.url())
        .with_target(
            Target::of(world.target_a(), "https://flood.keyferry.test")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    let before = proxy.count(&Method::POST, "/tokenreviews");
    let mut bodies = std::collections::BTreeSet::new();
    for (what, token) in garbage(&world).await? {
        let answers =
            try_join_all((0..EACH).map(|_| broker.exchange(&token, "tenant-a/a"))).await?;
        for answer in answers {
            assert_eq!(answer.status, 400, "{what}: {}", answer.body);
            assert!(
                answer.body.contains("invalid_request"),
                "{what}: {}",
                answer.body
            );
            if !what.starts_with("no ") {
                bodies.insert(answer.body);
            }
        }
        assert_eq!(
            proxy.count(&Method::POST, "/tokenreviews"),
            before,
            "{what}: the hub was asked"
        );
    }
    assert_eq!(
        bodies.len(),
        1,
        "one body for whatever is wrong with the token: {bodies:?}"
    );

    forged_ones_do_not_either(&world, &broker, &proxy).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    assert_eq!(
        broker.exchange(&caller, "tenant-a/a").await?.status,
        200,
        "and nobody else suffers"
    );
    Ok(())
}

/// Right in everything except the signature, by a published key and by unknown keys.
async fn forged_ones_do_not_either(
    world: &World,
    broker: &Broker,
    proxy: &ChaosProxy,
) -> TestResult {
    let good = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let (header, rest) = good.split_once('.').ok_or("no JWT")?;
    let (claims, _) = rest.split_once('.').ok_or("no JWT")?;
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header)?)?;
    let send = async |number: usize| {
        let mut header = header.clone();
        if number % 2 == 1 {
            header["kid"] = format!("made-up-{number}").into();
        }
        let signature = URL_SAFE_NO_PAD.encode(format!("{number:0256}"));
        let token = format!(
            "{}.{claims}.{signature}",
            URL_SAFE_NO_PAD.encode(header.to_string())
        );
        broker.exchange(&token, "tenant-a/a").await
    };
    let reviews = proxy.count(&Method::POST, "/tokenreviews");
    let (reads, started) = (proxy.count(&Method::GET, "/openid/v1/jwks"), Instant::now());
    for answer in try_join_all((0..EACH * 4).map(send)).await? {
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    let reads = proxy.count(&Method::GET, "/openid/v1/jwks") - reads;
    eprintln!(
        "{} forged tokens with {} made-up kids: {reads} readings of the hub's keys in {:.1?}",
        EACH * 4,
        EACH * 2,
        started.elapsed()
    );
    assert_eq!(
        proxy.count(&Method::POST, "/tokenreviews"),
        reviews,
        "a forged token: the hub was asked"
    );
    // One read for a kid that may be new, and one that Keyferry does by itself.
    assert!(
        reads <= 2 + started.elapsed().as_secs() / 5,
        "{reads} readings of the hub's keys"
    );
    Ok(())
}

async fn garbage(world: &World) -> Result<Vec<(&'static str, String)>, TestError> {
    let (hub, old_hub) = (world.hub(), world.old_hub());
    let good = caller_token(hub, TENANT, ACCOUNT).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let expired = hub
        .sign_again(&good, |claims| {
            claims["exp"] = json!(now - 60);
            claims["iat"] = json!(now - 660);
            claims["nbf"] = json!(now - 660);
        })
        .await?;
    let mut parts = good.split('.');
    let (header, claims) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let unsigned = URL_SAFE_NO_PAD.encode(json!({ "alg": "none" }).to_string());
    let mut with_jku: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header)?)?;
    with_jku["crit"] = json!(["exp"]);
    let critical = URL_SAFE_NO_PAD.encode(with_jku.to_string());
    let two = hub
        .token_request(
            TENANT,
            ACCOUNT,
            &[CALLER_AUDIENCE, "https://other.keyferry.test"],
            600,
        )
        .await?
        .token;
    Ok(vec![
        ("one letter", "x".to_owned()),
        ("dots", "..".to_owned()),
        ("three letters", "a.b.c".to_owned()),
        ("four parts", format!("{good}.x")),
        ("no JSON in it", "e30.bm90IGpzb24.c2ln".to_owned()),
        ("40 KiB", "x".repeat(40 << 10)),
        ("an empty signature", format!("{header}.{claims}.")),
        ("alg none", format!("{unsigned}.{claims}.")),
        ("a critical header", format!("{critical}.{claims}.c2ln")),
        (
            "another hub's",
            caller_token(old_hub, TENANT, ACCOUNT).await?,
        ),
        (
            "another audience",
            hub.token_request(TENANT, ACCOUNT, &["https://other.keyferry.test"], 600)
                .await?
                .token,
        ),
        ("two audiences", two),
        ("an expired one", expired),
    ])
}

/// One address sends made-up tokens and requests without tokens, faster than the limit. A known
/// caller at the same address is served meanwhile.
pub(super) async fn of_one_address(world: Arc<World>) -> TestResult {
    let spec = BrokerSpec::of_hub("flooded", world.hub())
        .with_limits([
            "",
            "limits: {connectionsPerAddress: 0, newCallersPerAddress: 10}",
        ])
        .with_target(
            Target::of(world.target_a(), "https://flooded.keyferry.test")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    assert_eq!(broker.exchange(&caller, "tenant-a/a").await?.status, 200);
    let made_up = (0..300).map(|number| {
        let (broker, token) = (&broker, format!("{caller}{number}"));
        async move { broker.exchange(&token, "tenant-a/a").await }
    });
    let served = async {
        for _ in 0..20 {
            assert_eq!(
                broker.exchange(&caller, "tenant-a/a").await?.status,
                200,
                "a known caller is not counted"
            );
        }
        Ok(())
    };
    let (answers, ()) = futures::future::try_join(try_join_all(made_up), served).await?;
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 429)
        .collect();
    // Thirty at once and ten a second, of which the known caller's first exchange used one.
    assert!(
        refused.len() >= 30 && refused.len() <= 271,
        "{} of {}",
        refused.len(),
        answers.len()
    );
    assert!(
        refused
            .iter()
            .all(|answer| answer.body.contains("temporarily_unavailable")),
        "{}",
        refused[0].body
    );
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let limited = "keyferry_requests_total{decision=\"denied\",reason=\"RateLimited\"}";
    assert_eq!(broker.metric(limited).await?, refused.len() as f64);
    let records = broker.audit()?;
    let summaries: Vec<&Value> = records
        .iter()
        .filter(|record| record["reason"] == "RateLimited")
        .collect();
    let counted: u64 = summaries
        .iter()
        .filter_map(|record| record["count"].as_u64())
        .sum();
    assert_eq!(
        counted,
        refused.len() as u64,
        "each is counted in one summary: {summaries:?}"
    );
    assert!(summaries.len() <= 60, "one a second: {}", summaries.len());
    assert!(
        summaries.iter().all(|record| record["sources"]
            .as_str()
            .is_some_and(|text| text.starts_with("127.0.0.1 ("))),
        "{summaries:?}"
    );
    Ok(())
}

/// The requests of a known caller for what it may not have.
const DENIED: usize = 400;
/// The records that a namespace's refusals may have: a burst of 60, and 20 a second.
const RECORDS_OF_A_BURST: usize = 60;
const RECORDS_PER_SECOND: usize = 20;

/// As [`a_known_callers_refusals_are_bounded`], with the objects in the configuration file.
pub(super) async fn of_a_known_caller(world: Arc<World>) -> TestResult {
    let spec = BrokerSpec::of_hub("refused", world.hub())
        .with_target(
            Target::of(world.target_a(), "https://refused.keyferry.test")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "target-a", ACCOUNT));
    let broker = world.start_broker(world.hub(), spec).await?;
    make_tenant(world.hub(), "refused", &[ACCOUNT]).await?;
    let refused = caller_token(world.hub(), "refused", ACCOUNT).await?;
    let granted = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    a_known_callers_refusals_are_bounded(&broker, &refused, "refused", (&granted, "tenant-a/a"))
        .await
}

/// A known caller asks again and again for what it may not have. Its refusals have few records of
/// their own and a summary, so they bury no issuance, and a neighbour gets its tokens meanwhile.
pub(crate) async fn a_known_callers_refusals_are_bounded(
    broker: &Broker,
    refused: &str,
    namespace: &str,
    (granted, access): (&str, &str),
) -> TestResult {
    broker.exchange_in_time(granted, access).await?;
    let absent = format!("{namespace}/absent");
    assert_eq!(broker.exchange(refused, &absent).await?.status, 400);
    let started = Instant::now();
    let flood = try_join_all((0..DENIED).map(|_| broker.exchange(refused, &absent)));
    let served = async {
        for _ in 0..20 {
            let answer = broker.exchange(granted, access).await?;
            assert_eq!(answer.status, 200, "a neighbour: {}", answer.body);
        }
        Ok(())
    };
    let (answers, ()) = futures::future::try_join(flood, served).await?;
    let seconds = usize::try_from(started.elapsed().as_secs())? + 1;
    let limited = answers.iter().filter(|answer| answer.status == 429).count();
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 429 || answer.status == 400)
    );
    assert!(
        limited >= DENIED - RECORDS_OF_A_BURST - RECORDS_PER_SECOND * seconds,
        "{limited} of {DENIED} in {seconds} s"
    );
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let records = broker.audit()?;
    let user = format!("system:serviceaccount:{namespace}:");
    let own = records.iter().filter(|record| {
        record["decision"] == "denied"
            && record["caller"]
                .as_str()
                .is_some_and(|caller| caller.starts_with(&user))
    });
    // The first refusal was sent before the flood.
    assert_eq!(own.count(), DENIED + 1 - limited);
    let summaries: Vec<&str> = records
        .iter()
        .filter(|record| record["route"] == "summary")
        .filter_map(|record| record["namespaces"].as_str())
        .filter(|namespaces| namespaces.contains(&format!("{namespace} (")))
        .collect();
    assert!(
        !summaries.is_empty() && summaries.len() <= seconds + 2,
        "one a second: {summaries:?}"
    );
    Ok(())
}
