//! Tests of what must happen before a token is issued.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::Policy;
use keyferry_core::access_status::TargetIdentity;
use keyferry_issuer::testing::Failing;
use keyferry_platform::target_probe::ProbeAnswer;
use serde_json::json;

use super::bench::{ACCESS, Bench, SECRET, secret};

#[tokio::test]
async fn no_token_before_the_finalizer() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench.reconcile_all(&bench.process()).await;
    let calls = bench.objects.calls();
    let first = |part: &str| {
        calls
            .iter()
            .position(|call| call.starts_with(part))
            .unwrap()
    };
    assert!(
        first(&format!("patch {ACCESS}")) < first("create "),
        "{calls:?}"
    );
    assert_eq!(
        bench.objects.object(ACCESS).unwrap()["metadata"]["finalizers"],
        json!(["keyferry.dev/drain"])
    );

    bench.begin_with(secret());
    bench
        .objects
        .fail(Some(Failing::Forbidden("patch", "/targetaccesses/apps")));
    let minted = bench.world.hub.token_requests();
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.objects.all("/secrets/").len(), 0);
    assert_eq!(
        (bench.audit.tokens(), bench.world.hub.token_requests()),
        (0, minted),
        "nothing is minted"
    );
}

#[tokio::test]
async fn the_finalizers_of_others_stay() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    bench.objects.edit(ACCESS, |access| {
        access["metadata"]["finalizers"] = json!(["theirs.example/x"])
    });
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.objects.object(ACCESS).unwrap()["metadata"]["finalizers"],
        json!(["theirs.example/x", "keyferry.dev/drain"])
    );
    bench.delete_access();
    bench
        .world
        .clock
        .advance(Duration::from_secs(12 * 3600 + 1));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.objects.object(ACCESS).unwrap()["metadata"]["finalizers"],
        json!(["theirs.example/x"])
    );
}

#[tokio::test]
async fn no_token_without_its_record() {
    let mut bench = Bench::start().await;
    let both = json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }], "probe": "Off" });
    bench.begin_with(both);
    bench.audit.be_away(true);
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench
            .objects
            .every_version()
            .iter()
            .filter(|one| one["kind"] != "Event")
            .count(),
        0,
        "not even what holds no token"
    );
    assert_eq!(
        bench.condition("Delivered"),
        ("False".to_owned(), "AuditUnavailable".to_owned())
    );
    bench.audit.be_away(false);
    bench.reconcile_all(&bench.process()).await;
    bench.assert_ready("the audit log is back");
}

#[tokio::test]
async fn no_token_that_is_no_longer_granted() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let policy = Arc::clone(&bench.policy);
    bench
        .audit
        .on_record(Some(Box::new(move || policy.replace(Policy::default()))));
    let process = bench.process();
    for _ in 0..3 {
        bench.reconcile_once(&process).await;
    }
    assert!(bench.audit.tokens() > 0, "a token had been minted");
    assert_eq!(bench.objects.all("/secrets/").len(), 0, "and did not leave");
    assert_eq!(bench.condition("Delivered").1, "TargetNotGranted");
    bench.audit.on_record(None);
    bench.reconcile_all(&bench.process()).await;
    bench.assert_ready("granted again");
}

/// The Lease is lost to another replica after the object was read, and also after the token was
/// minted.
#[tokio::test]
async fn no_write_after_the_lease_is_lost() {
    for at in ["get /api/v1/namespaces/tenant-a/secrets", "record"] {
        let mut bench = Bench::start().await;
        bench.begin_with(secret());
        let (by_call, by_record) = (Arc::clone(&bench.leadership), Arc::clone(&bench.leadership));
        bench.objects.on_call(Some(Box::new(move |call| {
            if call.starts_with(at) {
                by_call.set(None);
            }
        })));
        bench.audit.on_record(Some(Box::new(move || {
            if at == "record" {
                by_record.set(None);
            }
        })));
        bench.reconcile_all(&bench.process()).await;
        let calls = bench.objects.calls();
        assert!(
            calls
                .iter()
                .any(|call| call.starts_with("get /api/v1/namespaces/tenant-a/secrets")),
            "{at}: {calls:?}"
        );
        let writes: Vec<_> = calls
            .iter()
            .filter(|call| !call.starts_with("get"))
            .collect();
        assert_eq!(
            writes,
            [&format!("patch {ACCESS}")],
            "{at}: only the finalizer, from the time when it led"
        );
        bench.objects.on_call(None);
        bench.audit.on_record(None);
        bench
            .leadership
            .set(Some(Duration::from_secs(1_000_000_000)));
        bench.reconcile_all(&bench.process()).await;
        bench.assert_ready("it leads again");
    }
}

#[tokio::test]
async fn a_target_that_must_take_a_token_first() {
    let mut bench = Bench::start().await;
    let mut required = secret();
    required["probe"] = json!("Require");
    bench.begin_with(required);
    let process = bench.process();
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.condition("Delivered"),
        ("False".to_owned(), "ProbeUnanswered".to_owned())
    );
    bench.probe.set_answer(ProbeAnswer::Refused);
    bench.world.clock.advance(Duration::from_secs(61));
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.condition("Delivered"),
        ("False".to_owned(), "ProbeRefused".to_owned())
    );
    assert_eq!(bench.condition("TargetAuthenticates").0, "False");
    assert_eq!(bench.objects.object(SECRET), None, "nothing was delivered");
    let asked = bench.probe.asked();
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.probe.asked(),
        asked,
        "a target is not asked at every look"
    );
    let identity = TargetIdentity {
        username: "hub:reconciler".to_owned(),
        uid: String::new(),
        groups: Vec::new(),
    };
    bench.probe.set_answer(ProbeAnswer::Accepted(identity));
    bench.world.clock.advance(Duration::from_secs(61));
    bench.reconcile_all(&process).await;
    bench.assert_ready("the target takes it");
    assert!(bench.objects.object(SECRET).is_some());

    bench.begin_with(secret());
    let asked = bench.probe.asked();
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.probe.asked(), asked, "with probe Off nobody is asked");
}
