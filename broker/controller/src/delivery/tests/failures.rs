//! Tests that each obstacle has its reason, costs no token, and can pass.

use keyferry_core::delivery::OtherFluxCredential;
use keyferry_hub::admission_policy::Standing;
use keyferry_issuer::testing::{Failing, account_of};
use serde_json::{Value, json};

use super::bench::{Bench, SECRET, secret};
use crate::delivery::Next;

#[tokio::test]
async fn what_cannot_be_read_is_not_written_over() {
    let mut bench = Bench::start().await;
    for (failing, reason) in [
        (Failing::Unreachable("get", "/secrets/"), "HubUnreachable"),
        (Failing::Forbidden("get", "/secrets/"), "DeliveryForbidden"),
        (Failing::TooLarge("get", "/secrets/"), "ObjectTooLarge"),
    ] {
        bench.begin_with(secret());
        bench.objects.fail(Some(failing));
        let minted = bench.world.hub.token_requests();
        bench.reconcile_all(&bench.process()).await;
        assert_eq!(
            bench.condition("Delivered"),
            ("False".to_owned(), reason.to_owned())
        );
        assert_eq!(
            bench.condition("Reconciling").0,
            "True",
            "it is tried again"
        );
        assert_eq!(
            (bench.audit.tokens(), bench.world.hub.token_requests()),
            (0, minted),
            "{reason}: nothing is minted"
        );
        assert_eq!(bench.objects.object(SECRET), None);
        bench.objects.fail(None);
        bench.reconcile_all(&bench.process()).await;
        bench.assert_ready(reason);
    }
}

#[tokio::test]
async fn without_the_author_admission_policy_only_what_holds_no_token() {
    let mut bench = Bench::start().await;
    let both = json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }] });
    bench.begin_with(both);
    bench
        .admission_policy
        .set_state(Standing::Gap("it is not there".to_owned()));
    let minted = bench.world.hub.token_requests();
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.condition("Delivered").1, "AuthorUnchecked");
    assert_eq!(bench.objects.all("/configmaps/").len(), 1);
    assert_eq!(
        (bench.objects.object(SECRET), bench.audit.tokens()),
        (None, 0)
    );
    assert_eq!(
        (bench.probe.asked(), bench.world.hub.token_requests()),
        (0, minted),
        "nor is the target asked with one"
    );
    bench.admission_policy.set_state(Standing::Active);
    bench.reconcile_all(&bench.process()).await;
    bench.assert_ready("authors are checked");
}

/// An object of ours that gets another owner, or a foreign object that appears between the read and
/// the create.
#[tokio::test]
async fn what_is_not_ours_stays() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let theirs = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "apps-kubeconfig" }, "data": { "value": "bWluZQ==" } });
    bench.objects.put_foreign(SECRET, theirs);
    let before = bench.objects.object(SECRET);
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.condition("Delivered").1, "ObjectNotOurs");
    assert_eq!(
        (bench.objects.object(SECRET), bench.audit.tokens()),
        (before, 0)
    );

    bench.begin_with(secret());
    bench.reconcile_all(&bench.process()).await;
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["ownerReferences"][0]["uid"] = json!("another")
    });
    let before = bench.objects.object(SECRET);
    bench.put_target(&json!({ "address": "https://moved.example.test" }));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.condition("Delivered").1, "ObjectNotOurs");
    bench.put_target(&json!({ "allow": [] }));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(bench.objects.object(SECRET), before, "nor is it deleted");
}

#[tokio::test]
async fn steady_state_costs_nothing() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    bench.objects.fail(None);
    for _ in 0..5 {
        bench.reconcile_once(&process).await;
    }
    let calls = bench.objects.calls();
    assert!(
        calls.iter().all(|call| call.starts_with("get ")),
        "{calls:?}"
    );
    let events: Vec<Value> = bench.objects.all("/events/");
    assert_eq!(
        events
            .iter()
            .filter(|event| event["reason"] == "Ready")
            .count(),
        1,
        "one Event on what became of it"
    );
    assert!(events.iter().all(|event| event["type"] == "Normal"));
}

#[tokio::test]
async fn a_mistake_takes_nothing_back_that_policy_would_grant() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    bench.assert_ready("before");
    let (written, minted) = (
        bench.objects.object(SECRET).unwrap(),
        bench.world.hub.token_requests(),
    );
    let twice = json!({
        "probe": "Off",
        "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "t", "type": "KubeConfigSecret", "objectName": "apps-kubeconfig" }],
    });
    bench.put_access(twice.clone());
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "SpecInvalid".to_owned())
    );
    assert_eq!(
        (
            bench.objects.object(SECRET).unwrap(),
            bench.world.hub.token_requests()
        ),
        (written, minted),
        "a slip cuts off nobody"
    );
    // A second mistake keeps the last valid spec from before the first one.
    bench.put_access(
        json!({ "probe": "Off", "deliveries": [twice["deliveries"][0], twice["deliveries"][0]] }),
    );
    bench.reconcile_all(&process).await;
    assert!(bench.objects.object(SECRET).is_some());
    bench.put_target(
        &json!({ "allow": [{ "namespaces": ["tenant-b"], "serviceAccounts": ["reconciler"] }] }),
    );
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.objects.object(SECRET),
        None,
        "and a mistake shields nobody"
    );
    assert_eq!(bench.world.hub.token_requests(), minted);
}

#[tokio::test]
async fn one_access_of_too_many_gets_nothing_new_and_keeps_its_objects() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    bench.assert_ready("before");
    let minted = bench.world.hub.token_requests();
    for index in 0..keyferry_api::config::MAX_ACCESSES {
        bench.put_other_access(&format!("older-{index}"), "2020-01-01T00:00:00Z");
    }
    let next = bench.reconcile_all(&process).await;
    assert_eq!(next, Next::OnChange, "it does not wait for itself");
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "TooManyAccesses".to_owned())
    );
    assert!(bench.objects.object(SECRET).is_some());
    assert_eq!(bench.world.hub.token_requests(), minted);

    bench.remove_other_access("older-0");
    bench.reconcile_all(&process).await;
    bench.assert_ready("an older one is gone");
    bench.put_other_access("older-0", "2020-01-01T00:00:00Z");
    bench.put_target(
        &json!({ "allow": [{ "namespaces": ["tenant-b"], "serviceAccounts": ["reconciler"] }] }),
    );
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.objects.object(SECRET),
        None,
        "and it keeps nothing that policy no longer grants"
    );
}

#[tokio::test]
async fn a_status_is_for_the_object_that_was_written_and_for_no_other() {
    const PROFILE: &str =
        "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/tenant-a/clusterprofiles/apps";
    let mut bench = Bench::start().await;
    let spec = json!({ "deliveries": [{ "name": "p", "type": "ClusterProfile", "objectName": "apps" }], "probe": "Off" });
    bench.begin_with(spec);
    bench.put_target(&json!({
        "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["ClusterProfile"] }],
    }));
    let objects = std::sync::Arc::clone(&bench.objects);
    bench.objects.on_call(Some(Box::new(move |call| {
        if call == format!("apply {PROFILE}") {
            // Between the write and the status the object is deleted and replaced by a foreign one.
            objects.put_foreign(
                PROFILE,
                json!({ "kind": "ClusterProfile", "metadata": { "name": "apps" }, "spec": { "displayName": "theirs" } }),
            );
        }
    })));
    let process = bench.process();
    bench.reconcile_once(&process).await;
    bench.reconcile_once(&process).await;
    assert_eq!(
        bench.condition("Delivered").1,
        "DeliveryFailed",
        "it was not seen yet whose it is"
    );
    let theirs = bench.objects.object(PROFILE).unwrap();
    assert_eq!(
        (theirs["spec"]["displayName"].as_str(), &theirs["status"]),
        (Some("theirs"), &Value::Null),
        "{theirs}"
    );
    bench.objects.on_call(None);
    bench.reconcile_all(&process).await;
    assert_eq!(
        bench.condition("Delivered"),
        ("False".to_owned(), "ObjectNotOurs".to_owned())
    );
    assert_eq!(bench.objects.object(PROFILE).unwrap(), theirs);
}

#[tokio::test]
async fn a_config_map_promises_no_token_that_flux_does_not_request() {
    let mut bench = Bench::start().await;
    bench.begin_with(json!({ "deliveries": [{ "name": "m", "type": "FluxConfigMap" }] }));
    let account = account_of("tenant-a", "reconciler");
    let annotated = |provider: &'static str| {
        OtherFluxCredential::of(|key| key.ends_with("/provider").then_some(provider))
    };
    let live = std::sync::Arc::clone(&bench.world.live);
    live.set_flux_credential(&account, annotated("spiffe"));
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.condition("Delivered"),
        ("False".to_owned(), "FluxCredentialDiffers".to_owned())
    );
    assert_eq!(bench.condition("Ready").0, "False");
    // Flux before 2.10 goes on with the ConfigMap.
    let written = bench.objects.all("/configmaps/");
    assert_eq!(written.len(), 1);
    for harmless in [annotated("kubernetes"), None] {
        live.set_flux_credential(&account, harmless);
        bench.reconcile_all(&bench.process()).await;
        bench.assert_ready("the annotation is gone");
        assert_eq!(bench.objects.all("/configmaps/"), written);
        live.set_flux_credential(&account, annotated("spiffe"));
        bench.reconcile_all(&bench.process()).await;
        assert_eq!(bench.condition("Delivered").1, "FluxCredentialDiffers");
    }
    // A Secret holds the hub's token whatever the annotation says.
    bench.begin_with(secret());
    bench.reconcile_all(&bench.process()).await;
    bench.assert_ready("a Secret");
}
