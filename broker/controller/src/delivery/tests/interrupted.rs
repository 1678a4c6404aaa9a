//! Tests of a process that ends between any two calls to the hub, and of the next one that
//! continues. In the end there is one right object, and every token that was ever in an object is
//! accounted for.

use std::time::Duration;

use keyferry_issuer::testing::Failing;
use serde_json::json;

use super::bench::{ACCESS, Bench, SECRET, annotation, secret};
use crate::delivery::Next;

/// Asserts that there is one object, of this access, that its token is recorded, and that the
/// status covers all exposed tokens.
fn assert_whole(bench: &Bench, when: &str) {
    bench.assert_ready(when);
    let secrets = bench.objects.all("/secrets/");
    assert_eq!(secrets.len(), 1, "{when}");
    let (secret, access) = (&secrets[0], bench.objects.object(ACCESS).unwrap());
    let owners = secret["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1, "{when}");
    assert_eq!(owners[0]["uid"], access["metadata"]["uid"], "{when}");
    assert!(secret["data"]["value"].is_string(), "{when}");
    for version in bench
        .objects
        .every_version()
        .iter()
        .filter(|object| object["kind"] == "Secret")
    {
        assert!(
            bench.audit.knows(annotation(version, "token-id").unwrap()),
            "{when}: a token left without its record"
        );
    }
    assert!(
        bench.exposure() >= bench.last_end(),
        "{when}: {:?} does not cover {:?}",
        bench.exposure(),
        bench.last_end()
    );
}

fn each_end(calls: usize) -> impl Iterator<Item = Failing> {
    (0..calls).flat_map(|call| [Failing::From(call), Failing::LostFrom(call)])
}

#[tokio::test]
async fn ended_at_any_call_of_the_first_delivery() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench.reconcile_all(&bench.process()).await;
    assert_whole(&bench, "undisturbed");
    let calls = bench.objects.calls();
    for part in [
        "create /api/v1/namespaces/tenant-a/secrets",
        "/status",
        "patch",
        "post",
    ] {
        assert!(
            calls.iter().any(|call| call.contains(part)),
            "{part} is among {calls:?}"
        );
    }
    for failing in each_end(calls.len()) {
        bench.begin_with(secret());
        bench.objects.fail(Some(failing));
        let process = bench.process();
        for _ in 0..3 {
            bench.reconcile_once(&process).await;
        }
        bench.objects.fail(None);
        let next = bench.reconcile_all(&bench.process()).await;
        assert_whole(&bench, &format!("{failing:?}"));
        assert_ne!(next, Next::Retry);
    }
}

#[tokio::test]
async fn ended_at_any_call_of_a_renewal() {
    let mut bench = Bench::start().await;
    let ready = async |bench: &mut Bench| {
        bench.begin_with(secret());
        bench.reconcile_all(&bench.process()).await;
        let before = bench.objects.object(SECRET).unwrap();
        bench
            .world
            .clock
            .advance(Duration::from_secs(11 * 3600 + 1800));
        bench.world.publisher.refresh().await.unwrap();
        bench.objects.fail(None);
        before
    };
    let before = ready(&mut bench).await;
    bench.reconcile_all(&bench.process()).await;
    let calls = bench.objects.calls();
    assert!(
        calls.iter().any(|call| call.starts_with("replace")),
        "{calls:?}"
    );
    assert_ne!(
        annotation(&before, "token-id"),
        annotation(&bench.objects.object(SECRET).unwrap(), "token-id")
    );
    for failing in each_end(calls.len()) {
        let before = ready(&mut bench).await;
        bench.objects.fail(Some(failing));
        let process = bench.process();
        for _ in 0..3 {
            bench.reconcile_once(&process).await;
        }
        bench.objects.fail(None);
        bench.reconcile_all(&bench.process()).await;
        let when = format!("{failing:?}");
        assert_whole(&bench, &when);
        let after = bench.objects.object(SECRET).unwrap();
        assert_eq!(
            after["metadata"]["uid"], before["metadata"]["uid"],
            "{when}: the object is still the same one"
        );
        assert_ne!(
            annotation(&after, "token-id"),
            annotation(&before, "token-id"),
            "{when}"
        );
    }
}

#[tokio::test]
async fn another_writer_is_first_at_any_write() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench.reconcile_all(&bench.process()).await;
    for call in 0..bench.objects.calls().len() {
        bench.begin_with(secret());
        bench.objects.fail(Some(Failing::ConflictAt(call)));
        bench.reconcile_all(&bench.process()).await;
        assert_whole(&bench, &format!("conflict at call {call}"));
    }
}

/// The Secret was written with a long token, but its status was not; then another target or
/// lifetime replaces it.
#[tokio::test]
async fn a_token_that_is_replaced_before_its_status_stays_accounted_for() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench
        .objects
        .fail(Some(Failing::Unreachable("patch", "/status")));
    bench.reconcile_all(&bench.process()).await;
    assert!(bench.objects.object(SECRET).is_some() && bench.exposure().is_none());
    let long = bench.last_end();
    bench.objects.fail(None);
    bench.put_target(&json!({ "address": "https://moved.example.test" }));
    bench.put_access(json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret", "tokenLifetime": "1h" }], "probe": "Off" }));
    bench.reconcile_all(&bench.process()).await;
    let after = bench.objects.object(SECRET).unwrap();
    assert!(
        super::bench::expiry(&after) < long,
        "the token is another, shorter one"
    );
    assert_whole(&bench, "replaced");
}

/// A hub that starts may answer 404 for an access that is there. Nothing would ask again for minutes.
#[tokio::test]
async fn a_status_that_found_no_access_is_written_again() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench
        .objects
        .fail(Some(Failing::Absent("patch", "/status")));
    let next = bench.reconcile_once(&bench.process()).await;
    assert_eq!(next, Next::Retry);
    bench.objects.fail(None);
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.condition("Ready").1, "Ready");
}

/// The same, but policy withdraws the object.
#[tokio::test]
async fn a_token_that_is_taken_back_before_its_status_stays_accounted_for() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench
        .objects
        .fail(Some(Failing::Unreachable("patch", "/status")));
    bench.reconcile_all(&bench.process()).await;
    bench.objects.fail(None);
    bench.put_target(&json!({ "allow": [] }));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.objects.object(SECRET), None);
    assert_eq!(bench.condition("Ready").1, "TargetNotGranted");
    assert_eq!(bench.exposure(), bench.last_end());
}

/// A deleted access waits for a token that only its object reports.
#[tokio::test]
async fn a_drain_counts_what_no_status_tells_of() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench
        .objects
        .fail(Some(Failing::Unreachable("patch", "/status")));
    bench.reconcile_all(&bench.process()).await;
    bench.objects.fail(None);
    bench.delete_access();
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.condition("Ready").1, "DeliveryDraining");
    let tokens = bench.audit.tokens();
    bench.world.clock.advance(Duration::from_secs(11 * 3600));
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench.objects.object(ACCESS).is_some(),
        "the token is still good"
    );
    bench.world.clock.advance(Duration::from_secs(3600));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.objects.object(ACCESS),
        None,
        "nothing holds it any more"
    );
    assert_eq!(
        bench.audit.tokens(),
        tokens,
        "nothing is minted for an access that goes"
    );
}

/// The end of a drain survives every failure, too.
#[tokio::test]
async fn ended_at_any_call_of_a_drain() {
    let mut bench = Bench::start().await;
    for failing in each_end(3) {
        bench.begin_with(secret());
        bench.reconcile_all(&bench.process()).await;
        let secrets = |bench: &Bench| {
            bench
                .objects
                .every_version()
                .iter()
                .filter(|one| one["kind"] == "Secret")
                .count()
        };
        let written = secrets(&bench);
        bench.delete_access();
        bench.objects.fail(Some(failing));
        bench.reconcile_all(&bench.process()).await;
        assert!(bench.objects.object(ACCESS).is_some(), "{failing:?}");
        bench.objects.fail(None);
        bench
            .world
            .clock
            .advance(Duration::from_secs(12 * 3600 + 1));
        bench.objects.fail(Some(failing));
        bench.reconcile_all(&bench.process()).await;
        bench.objects.fail(None);
        bench.reconcile_all(&bench.process()).await;
        assert_eq!(bench.objects.object(ACCESS), None, "{failing:?}");
        assert_eq!(secrets(&bench), written, "{failing:?}: nothing was written");
        bench.world.publisher.refresh().await.unwrap();
    }
}
