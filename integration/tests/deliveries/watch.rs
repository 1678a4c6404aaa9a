//! The watch of TargetAccesses ends with 410 Gone repeatedly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, StatusCode};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER};
use keyferry_integration::world::{BrokerSpec, caller_token};
use serde_json::json;

use super::lease::{put_to_sleep, wake};
use super::tenant::{EVERY_SHAPE, Tenant};

const COLLECTION: &str = "/apis/keyferry.dev/v1alpha1/targetaccesses";

pub(crate) async fn a_watch_that_is_told_gone_misses_nothing(world: Arc<OnHub>) -> TestResult {
    put_to_sleep(&world).await?;
    let outcome = deleted_meanwhile(&world).await;
    wake(&world).await?;
    outcome
}

async fn deleted_meanwhile(world: &Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(world, "unwatched", &EVERY_SHAPE).await?;
    let proxy = ChaosProxy::in_front_of(&world.hub).await?;
    let spec = BrokerSpec::of_hub("unwatched", &world.hub)
        .with_server_lines("objects: CustomResources\n")
        .through(&proxy.url());
    let broker = world.ground.start_installed(&world.hub, spec).await?;
    let both =
        json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }]);
    for name in ["before", "stays"] {
        tenant
            .put_access_with(
                name,
                json!({ "deliveries": both, "deletionPolicy": "Immediate" }),
            )
            .await?;
        tenant.until_ready(name).await?;
    }
    let caller = caller_token(&world.hub, "unwatched", RECONCILER).await?;
    let status = async |access: &str| {
        broker
            .exchange(&caller, access)
            .await
            .map(|answer| answer.status)
    };
    assert_eq!(status("unwatched/before").await?, 200);

    for query in ["?&watch=true", "?watch=true"] {
        proxy.add(Rule::on(
            Method::GET,
            &format!("{COLLECTION}{query}"),
            gone(),
        ));
    }
    let asked = proxy.count(&Method::GET, COLLECTION);
    proxy.cut_all();
    world.hub.admin().delete(&tenant.access("before")).await?;
    let deleted = Instant::now();
    while status("unwatched/before").await? == 200 {
        assert!(
            deleted.elapsed() < Duration::from_secs(15),
            "the deleted access still gives tokens"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!(
        "a deletion behind a watch that answers 410 bit after {:.1?}",
        deleted.elapsed()
    );
    world.until_gone(&tenant.access("before")).await?;
    world
        .until_gone(&tenant.secret("before-kubeconfig"))
        .await?;
    // After each 410 come a list and another try, with pauses and not in a storm.
    let limit = Instant::now() + Duration::from_secs(30);
    while proxy.count(&Method::GET, COLLECTION) < asked + 6 {
        assert!(
            Instant::now() < limit,
            "the watch was not refused again and again"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (from, since) = (proxy.count(&Method::GET, COLLECTION), Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = proxy.count(&Method::GET, COLLECTION) - from;
    assert!(
        asked <= 5 * (since.elapsed().as_secs() + 1),
        "{asked} calls in {:?}",
        since.elapsed()
    );
    assert_eq!(
        status("unwatched/stays").await?,
        200,
        "who is not concerned is served all the time"
    );

    proxy.clear();
    tenant
        .put_access_with("after", json!({ "deliveries": both }))
        .await?;
    tenant.until_ready("after").await?;
    broker.into_process().stop().await?;
    Ok(())
}

/// The answer of an apiserver to a resourceVersion that it no longer knows.
pub(super) fn gone() -> Fault {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old",
    });
    let json_type = HeaderValue::from_static("application/json");
    Fault::Status {
        status: StatusCode::GONE,
        headers: vec![(HeaderName::from_static("content-type"), json_type)],
        body: status.to_string().into_bytes(),
    }
}
