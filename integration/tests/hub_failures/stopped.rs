//! The hub really stops. Keyferry serves known callers until `maxStaleAuthorization` after the hub
//! last confirmed them, no other callers, and the published keys always.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::http_client::plain_client;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Answer, Broker, World, caller_token, make_tenant};
use serde_json::json;

use super::setup::{ACCOUNT, spec};

const MAX_STALE: Duration = Duration::from_secs(16);
const REVIEW: Duration = Duration::from_secs(10);
const TENANT: &str = "outage";
/// The minimum time of a call to a hub that does not respond.
const CALL: Duration = Duration::from_secs(5);

/// One exchange of the known caller.
struct Probe {
    sent: Instant,
    done: Instant,
    answer: Answer,
}

/// No other test uses this hub.
pub(super) async fn known_callers_until_the_limit(world: Arc<World>) -> TestResult {
    let hub = world.old_hub();
    make_tenant(hub, TENANT, &[ACCOUNT]).await?;
    let broker = world
        .start_broker(
            hub,
            spec(&world, hub, TENANT, MAX_STALE.as_secs(), &["one", "two"]),
        )
        .await?;
    let (known, stranger) = (
        caller_token(hub, TENANT, ACCOUNT).await?,
        caller_token(hub, TENANT, ACCOUNT).await?,
    );
    assert_ne!(known, stranger);
    let documents = published(&broker).await?;

    let vouched_after = Instant::now();
    assert_eq!(broker.exchange(&known, "outage/one").await?.status, 200);
    let vouched_before = Instant::now();
    // Kill all processes at once, as when a machine fails: a kube-apiserver that stops gracefully
    // confirms callers for some seconds longer.
    hub.kill().await?;
    eprintln!(
        "the hub was down {:.1} s after it vouched for the caller",
        vouched_before.elapsed().as_secs_f32()
    );

    let mut probes = Vec::<Probe>::new();
    let limit = vouched_before + MAX_STALE;
    let refused = |probes: &[Probe]| probes.iter().filter(|probe| probe.sent > limit).count();
    while Instant::now() < limit + Duration::from_secs(2)
        || (refused(&probes) < 3 && Instant::now() < limit + Duration::from_secs(20))
    {
        let sent = Instant::now();
        let answer = broker.exchange(&known, "outage/one").await?;
        probes.push(Probe {
            sent,
            done: Instant::now(),
            answer,
        });
        assert_eq!(
            published(&broker).await?,
            documents,
            "the published documents are served as ever"
        );
        for health in ["livez", "readyz"] {
            let answer = plain_client()?
                .get(format!("{}/{health}", broker.health_url()))
                .send()
                .await?;
            assert_eq!(
                answer.status(),
                200,
                "{health}: there is a key set to serve"
            );
        }
        if probes.len() % 8 == 1 {
            nobody_else_is_served(&broker, &known, &stranger).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    judge(&broker, &probes, vouched_after, vouched_before)?;
    let late = nobody_else_is_served(&broker, &known, &stranger).await?;
    let refused = probes
        .last()
        .map(|probe| probe.answer.body.clone())
        .unwrap_or_default();
    assert_eq!(
        refused, late,
        "the known and the unknown caller get the same bytes"
    );
    the_same_headers(&broker, &known, &stranger).await?;

    hub.restart().await?;
    let up = Instant::now();
    while broker.exchange(&stranger, "outage/two").await?.status != 200 {
        assert!(
            up.elapsed() < Duration::from_secs(30),
            "nothing works 30 s after the hub came back"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!(
        "a new caller was served {:.1} s after the hub was back",
        up.elapsed().as_secs_f32()
    );
    let answer = broker.exchange(&known, "outage/two").await?;
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": { "token": answer.token()?, "audiences": ["https://outage-two.keyferry.test"] },
    });
    let review = hub
        .admin()
        .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await?;
    assert_eq!(
        review["status"]["user"]["username"],
        "system:serviceaccount:outage:runner"
    );
    assert_ne!(broker.audit_of(&answer.request_id)?["stale"], json!(true));
    assert_eq!(published(&broker).await?, documents);
    Ok(())
}

/// Served as long as the hub's confirmation may be that old, marked as stale once Keyferry would
/// have had to ask again, then refused.
fn judge(
    broker: &Broker,
    probes: &[Probe],
    vouched_after: Instant,
    vouched_before: Instant,
) -> TestResult {
    let age = |moment: Instant| {
        moment
            .saturating_duration_since(vouched_after)
            .as_secs_f32()
    };
    let (mut stale, mut refused, mut last_served) = (0, 0, 0.0_f32);
    for Probe { sent, done, answer } in probes {
        let record = broker.audit_of(&answer.request_id)?;
        if *done < vouched_after + MAX_STALE {
            assert_eq!(
                answer.status,
                200,
                "refused {:.1} s after the hub vouched: {}",
                age(*done),
                answer.body
            );
        } else if *sent > vouched_before + MAX_STALE {
            assert_eq!(
                answer.status,
                503,
                "still served {:.1} s after the hub vouched",
                age(*sent)
            );
            assert_eq!(record["reason"], "HubUnreachable");
            refused += 1;
        }
        if answer.status == 200 {
            last_served = last_served.max(age(*done));
            if *done < vouched_after + REVIEW {
                assert_ne!(record["stale"], json!(true), "{:.1} s", age(*done));
            } else if *sent > vouched_before + REVIEW {
                assert_eq!(record["stale"], json!(true), "{:.1} s", age(*sent));
                stale += 1;
            }
        }
    }
    eprintln!(
        "served last {last_served:.1} s after the hub vouched; {stale} stale answers, {refused} \
         refusals"
    );
    assert!(
        last_served > (MAX_STALE - Duration::from_secs(3)).as_secs_f32(),
        "served for {last_served} s only"
    );
    assert!(
        stale >= 3 && refused >= 3,
        "{stale} stale answers and {refused} refusals are too few to judge by"
    );
    Ok(())
}

/// Neither a caller nor a pair without an answer from the hub is served. The refusal comes at once,
/// with one body.
async fn nobody_else_is_served(
    broker: &Broker,
    known: &str,
    stranger: &str,
) -> Result<String, TestError> {
    let started = Instant::now();
    let new_caller = broker.exchange(stranger, "outage/one").await?;
    let new_pair = broker.exchange(known, "outage/two").await?;
    assert_eq!((new_caller.status, new_pair.status), (503, 503));
    assert_eq!(new_caller.body, new_pair.body);
    assert!(
        started.elapsed() < CALL,
        "a dead hub was waited for: {:?}",
        started.elapsed()
    );
    Ok(new_caller.body)
}

async fn the_same_headers(broker: &Broker, known: &str, stranger: &str) -> TestResult {
    let mut seen = Vec::new();
    for caller in [known, stranger] {
        let url = format!(
            "{}/v1/namespaces/outage/accesses/one/kubeconfig",
            broker.api_url()
        );
        let answer = broker.http().get(url).bearer_auth(caller).send().await?;
        assert_eq!(answer.status(), 503);
        let mut headers = answer.headers().clone();
        assert!(headers.remove("x-request-id").is_some());
        headers.remove("date");
        seen.push((headers, answer.bytes().await?));
    }
    assert_eq!(seen.first(), seen.get(1));
    Ok(())
}

/// Both documents, with their ETags.
async fn published(broker: &Broker) -> Result<Vec<(String, Vec<u8>)>, TestError> {
    let mut documents = Vec::new();
    for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
        let answer = broker
            .http()
            .get(format!("{}{path}", broker.discovery_url()))
            .send()
            .await?;
        assert_eq!(answer.status(), 200);
        let etag = answer
            .headers()
            .get("etag")
            .and_then(|etag| etag.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        documents.push((etag, answer.bytes().await?.to_vec()));
    }
    Ok(documents)
}
