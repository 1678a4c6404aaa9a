//! Tests of the revocation of the key that signed a delivered token.

use std::time::Duration;

use serde_json::json;

use super::bench::{ACCESS, Bench, SECRET, annotation, secret};
use crate::delivery::{Deliveries, Next};

/// Returns the `kid` in the object, and the one in the access's status.
fn key_ids(bench: &Bench) -> (Option<String>, Option<String>) {
    let at_object = bench
        .objects
        .object(SECRET)
        .and_then(|secret| annotation(&secret, "key-id").map(str::to_owned));
    let access = bench.objects.object(ACCESS).unwrap();
    let in_status = access["status"]["deliveries"][0]["keyID"]
        .as_str()
        .map(str::to_owned);
    (at_object, in_status)
}

/// Delivers a Secret with a token of the hub's first key, then makes a second key active.
async fn delivered() -> (Bench, Deliveries, String, String) {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    bench.assert_ready("delivered");
    let old = bench.world.hub.signing_kid();
    assert_eq!(key_ids(&bench), (Some(old.clone()), Some(old.clone())));
    let new = bench.world.hub.rotate_key().unwrap();
    for _ in 0..3 {
        bench.world.publisher.refresh().await.unwrap();
        bench.world.clock.advance(Duration::from_secs(60));
    }
    (bench, process, old, new)
}

#[tokio::test]
async fn its_object_is_rewritten_with_a_token_of_another_key() {
    let (bench, process, old, new) = delivered().await;
    let before = bench.objects.object(SECRET);
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(SECRET), before, "nothing is due");
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new.clone())));
    bench.assert_ready("rewritten");
    let after = bench.objects.object(SECRET);
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(SECRET), after, "once");
}

#[tokio::test]
async fn an_object_whose_annotation_was_removed_is_rewritten() {
    let (bench, process, old, _) = delivered().await;
    bench.objects.edit(SECRET, |secret| {
        drop(
            secret["metadata"]["annotations"]
                .as_object_mut()
                .unwrap()
                .remove("keyferry.dev/key-id"),
        )
    });
    bench.reconcile_once(&process).await;
    assert_eq!(key_ids(&bench).0, Some(old));
}

#[tokio::test]
async fn a_tenant_cannot_hide_a_revoked_token_behind_an_annotation() {
    let (bench, process, old, new) = delivered().await;
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["annotations"]["keyferry.dev/key-id"] = json!(new)
    });
    bench.reconcile_once(&process).await;
    assert_eq!(
        key_ids(&bench),
        (Some(old.clone()), Some(old.clone())),
        "what was edited is written again"
    );
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["annotations"]["keyferry.dev/key-id"] = json!(new)
    });
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new)));
}

/// What a tenant can do to its Secret before the key is revoked. The status reports the token until
/// it expires, and so does `revoke`.
#[tokio::test]
async fn an_object_out_of_reach_is_reported_with_its_token() {
    let unowned =
        |secret: &mut serde_json::Value| secret["metadata"]["ownerReferences"] = json!([]);
    let going = |secret: &mut serde_json::Value| {
        secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
    };
    for edit in [unowned as fn(&mut serde_json::Value), going] {
        let (bench, process, old, _) = delivered().await;
        bench.objects.edit(SECRET, edit);
        bench.reconcile_once(&process).await;
        assert_eq!(
            bench.condition("Ready"),
            ("False".to_owned(), "ObjectNotOurs".to_owned())
        );
        assert_eq!(key_ids(&bench).1, Some(old.clone()));
        bench.world.publisher.revoke_for_test(&old);
        bench.reconcile_once(&process).await;
        assert_eq!(key_ids(&bench).1, Some(old));
        bench.world.clock.advance(Duration::from_secs(24 * 3600));
        bench.reconcile_once(&process).await;
        assert_eq!(key_ids(&bench).1, None, "the token has expired");
    }
    let (bench, process, old, _) = delivered().await;
    bench
        .objects
        .fail(Some(keyferry_issuer::testing::Failing::Forbidden(
            "get",
            "/secrets/",
        )));
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "DeliveryForbidden".to_owned())
    );
    assert_eq!(key_ids(&bench).1, Some(old));
}

/// It is tried again more and more rarely, not every second.
#[tokio::test]
async fn an_object_out_of_reach_that_is_no_longer_allowed_is_reported_too() {
    let (bench, process, old, _) = delivered().await;
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["ownerReferences"] = json!([]);
    });
    bench.put_target(&json!({ "allow": [] }));
    bench.world.clock.advance(Duration::from_secs(1200));
    assert_eq!(bench.reconcile_once(&process).await, Next::Retry);
    assert_eq!(key_ids(&bench).1, Some(old));
    let access = bench.objects.object(ACCESS).unwrap();
    let message = access["status"]["deliveries"][0]["message"].as_str();
    assert!(message.unwrap().contains("its token may still be in it"));
}

#[tokio::test]
async fn an_object_that_was_made_immutable_is_written_again() {
    let (bench, process, old, new) = delivered().await;
    bench
        .objects
        .edit(SECRET, |secret| secret["immutable"] = json!(true));
    bench.reconcile_once(&process).await;
    assert_eq!(
        key_ids(&bench).0,
        Some(old.clone()),
        "it is as it should be"
    );
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new)));
    assert!(bench.objects.object(SECRET).unwrap()["immutable"].is_null());
}

#[tokio::test]
async fn an_object_that_a_finalizer_keeps_is_emptied() {
    let (bench, process, _, _) = delivered().await;
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["finalizers"] = json!(["tenant.example/keep"])
    });
    bench.put_target(&json!({ "allow": [] }));
    bench.reconcile_once(&process).await;
    let versions = bench.objects.every_version();
    let last = versions
        .iter()
        .rfind(|object| object["kind"] == "Secret")
        .unwrap();
    assert_eq!(
        last["data"],
        json!({}),
        "no token is left for the tenant that added the finalizer"
    );
}

#[tokio::test]
async fn a_suspended_access_keeps_no_token_of_a_revoked_key() {
    let (bench, process, old, _) = delivered().await;
    bench.put_access(
        json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "suspend": true }),
    );
    bench.reconcile_once(&process).await;
    assert!(
        bench.objects.object(SECRET).is_some(),
        "suspension alone takes nothing away"
    );
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(SECRET), None);
    assert_eq!(key_ids(&bench).1, None);
}

#[tokio::test]
async fn a_drain_ends_after_a_day_though_nothing_can_be_read() {
    let (bench, process, _, _) = delivered().await;
    bench.delete_access();
    bench
        .objects
        .fail(Some(keyferry_issuer::testing::Failing::Forbidden(
            "get",
            "/secrets/",
        )));
    bench.reconcile_once(&process).await;
    assert!(bench.objects.object(ACCESS).is_some(), "it drains");
    bench.world.clock.advance(Duration::from_secs(24 * 3600));
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(ACCESS), None);
}

#[tokio::test]
async fn the_access_is_not_ready_while_the_hub_signs_with_it() {
    let mut bench = Bench::start().await;
    bench.begin_with(secret());
    let process = bench.process();
    bench.reconcile_all(&process).await;
    let old = bench.world.hub.signing_kid();
    bench.world.publisher.revoke_for_test(&old);
    assert_eq!(bench.reconcile_once(&process).await, Next::Retry);
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "KeyRevoked".to_owned())
    );
    assert_eq!(bench.condition("Reconciling").0, "True");
    let access = bench.objects.object(ACCESS).unwrap();
    let delivery = &access["status"]["deliveries"][0];
    assert_eq!(
        (delivery["keyID"].as_str(), delivery["reason"].as_str()),
        (Some(old.as_str()), Some("KeyRevoked")),
        "it still holds that token"
    );
    let message = delivery["message"].as_str().unwrap();
    assert!(
        message.contains("the key that signed the object's token was revoked")
            && message.contains("fix:"),
        "{message}"
    );

    // A new key must become active first, and the time of that is known.
    let new = bench.world.hub.rotate_key().unwrap();
    bench.world.clock.advance(Duration::from_secs(10));
    let next = bench.reconcile_once(&process).await;
    assert!(
        matches!(next, Next::After(pause) if pause > Duration::from_secs(100) && pause < Duration::from_secs(125)),
        "{next:?}"
    );
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "KeySettling".to_owned())
    );
    assert_eq!(bench.condition("Reconciling").0, "True");
    bench.world.clock.advance(Duration::from_secs(125));
    bench.reconcile_once(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new)));
    bench.assert_ready("the new key is active");
}

/// The status never reports a token that was not written to the object.
#[tokio::test]
async fn a_token_that_was_not_written_is_not_reported() {
    let (bench, process, old, _) = delivered().await;
    bench.world.publisher.revoke_for_test(&old);
    bench
        .objects
        .fail(Some(keyferry_issuer::testing::Failing::Forbidden(
            "replace",
            "/secrets/",
        )));
    bench.reconcile_once(&process).await;
    assert_eq!(
        bench.condition("Ready"),
        ("False".to_owned(), "DeliveryForbidden".to_owned())
    );
    assert_eq!(key_ids(&bench), (Some(old.clone()), Some(old)));
}

#[tokio::test]
async fn a_deleted_access_gives_back_what_no_target_accepts() {
    let (bench, process, old, _) = delivered().await;
    bench.delete_access();
    bench.reconcile_once(&process).await;
    assert!(bench.objects.object(SECRET).is_some(), "it drains");
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(SECRET), None);
    let access = bench.objects.object(ACCESS).unwrap();
    assert!(
        access["status"]["deliveries"]
            .as_array()
            .is_none_or(Vec::is_empty),
        "{}",
        access["status"]
    );
}

#[tokio::test]
async fn an_access_with_a_mistake_gives_it_back_too() {
    let (bench, process, old, _) = delivered().await;
    bench.put_access(json!({ "deliveries": [{ "name": "s", "type": "NoSuchShape" }] }));
    bench.reconcile_once(&process).await;
    assert_eq!(bench.condition("Ready").1, "SpecInvalid");
    assert!(
        bench.objects.object(SECRET).is_some(),
        "a slip cuts nobody off"
    );
    bench.world.publisher.revoke_for_test(&old);
    bench.reconcile_once(&process).await;
    assert_eq!(bench.objects.object(SECRET), None);
}
