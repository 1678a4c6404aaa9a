//! The key that signed the token of a delivered object is revoked.

use std::time::Duration;

use serde_json::json;

use super::bench::{ACCESS, Bench, SECRET, annotation, secret};
use crate::delivery::{Deliveries, Next};

/// The `kid` at the object, and the one in the access's status.
fn key_ids(bench: &Bench) -> (Option<String>, Option<String>) {
    let at_object = bench.objects.object(SECRET).and_then(|secret| annotation(&secret, "key-id").map(str::to_owned));
    let access = bench.objects.object(ACCESS).unwrap();
    let in_status = access["status"]["deliveries"][0]["keyID"].as_str().map(str::to_owned);
    (at_object, in_status)
}

/// A Secret with a token of the hub's first key, and a second key that is active.
async fn delivered() -> (Bench, Deliveries, String, String) {
    let mut bench = Bench::start().await;
    bench.begin_anew(secret());
    let process = bench.process();
    bench.settle(&process).await;
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
    bench.look(&process).await;
    assert_eq!(bench.objects.object(SECRET), before, "nothing is due");
    bench.world.publisher.revoke_for_test(&old);
    bench.look(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new.clone())));
    bench.assert_ready("rewritten");
    let after = bench.objects.object(SECRET);
    bench.look(&process).await;
    assert_eq!(bench.objects.object(SECRET), after, "once");
}

#[tokio::test]
async fn an_object_that_does_not_say_its_key_is_rewritten() {
    let (bench, process, old, new) = delivered().await;
    bench.objects.edit(SECRET, |secret| drop(secret["metadata"]["annotations"].as_object_mut().unwrap().remove("keyferry.dev/key-id")));
    bench.look(&process).await;
    assert_eq!(key_ids(&bench).0, None, "nothing was revoked: it stays as it is");
    bench.world.publisher.revoke_for_test(&old);
    bench.look(&process).await;
    assert_eq!(key_ids(&bench).0, Some(new));
}

#[tokio::test]
async fn a_tenant_cannot_hide_a_revoked_token_behind_an_annotation() {
    let (bench, process, old, new) = delivered().await;
    bench.objects.edit(SECRET, |secret| secret["metadata"]["annotations"]["keyferry.dev/key-id"] = json!(new));
    bench.look(&process).await;
    assert_eq!(key_ids(&bench).1, Some(old.clone()), "the status says what the token says");
    bench.world.publisher.revoke_for_test(&old);
    let before = bench.objects.object(SECRET);
    bench.look(&process).await;
    assert_ne!(bench.objects.object(SECRET).map(|secret| secret["data"].clone()), before.map(|secret| secret["data"].clone()));
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new)));
}

#[tokio::test]
async fn the_access_is_not_ready_while_the_hub_signs_with_it() {
    let mut bench = Bench::start().await;
    bench.begin_anew(secret());
    let process = bench.process();
    bench.settle(&process).await;
    let old = bench.world.hub.signing_kid();
    bench.world.publisher.revoke_for_test(&old);
    assert_eq!(bench.look(&process).await, Next::Retry);
    assert_eq!(bench.condition("Ready"), ("False".to_owned(), "KeyRevoked".to_owned()));
    assert_eq!(bench.condition("Reconciling").0, "True");
    let access = bench.objects.object(ACCESS).unwrap();
    let delivery = &access["status"]["deliveries"][0];
    assert_eq!(
        (delivery["keyID"].as_str(), delivery["reason"].as_str()),
        (Some(old.as_str()), Some("KeyRevoked")),
        "it still holds that token"
    );
    let message = delivery["message"].as_str().unwrap();
    assert!(message.contains("the key that signed the object's token was revoked") && message.contains("fix:"), "{message}");

    // A new key has to be active first, and it is known when it is.
    let new = bench.world.hub.rotate_key().unwrap();
    bench.world.clock.advance(Duration::from_secs(10));
    let next = bench.look(&process).await;
    assert!(matches!(next, Next::After(pause) if pause > Duration::from_secs(100) && pause < Duration::from_secs(125)), "{next:?}");
    assert_eq!(bench.condition("Ready"), ("False".to_owned(), "KeySettling".to_owned()));
    assert_eq!(bench.condition("Reconciling").0, "True");
    bench.world.clock.advance(Duration::from_secs(125));
    bench.look(&process).await;
    assert_eq!(key_ids(&bench), (Some(new.clone()), Some(new)));
    bench.assert_ready("the new key is active");
}

/// The status never says of an object what was not written to it.
#[tokio::test]
async fn a_token_that_was_not_written_is_not_reported() {
    let (bench, process, old, _) = delivered().await;
    bench.world.publisher.revoke_for_test(&old);
    bench.objects.fail(Some(crate::testing::Failing::Forbidden("replace", "/secrets/")));
    bench.look(&process).await;
    assert_eq!(bench.condition("Ready"), ("False".to_owned(), "DeliveryForbidden".to_owned()));
    assert_eq!(key_ids(&bench), (Some(old.clone()), Some(old)));
}

#[tokio::test]
async fn a_deleted_access_gives_back_what_no_target_accepts() {
    let (bench, process, old, _) = delivered().await;
    bench.delete_access();
    bench.look(&process).await;
    assert!(bench.objects.object(SECRET).is_some(), "it drains");
    bench.world.publisher.revoke_for_test(&old);
    bench.look(&process).await;
    assert_eq!(bench.objects.object(SECRET), None);
    let access = bench.objects.object(ACCESS).unwrap();
    assert!(access["status"]["deliveries"].as_array().is_none_or(Vec::is_empty), "{}", access["status"]);
}

#[tokio::test]
async fn an_access_with_a_mistake_gives_it_back_too() {
    let (bench, process, old, _) = delivered().await;
    bench.put_access(json!({ "deliveries": [{ "name": "s", "type": "NoSuchShape" }] }));
    bench.look(&process).await;
    assert_eq!(bench.condition("Ready").1, "SpecInvalid");
    assert!(bench.objects.object(SECRET).is_some(), "a slip cuts nobody off");
    bench.world.publisher.revoke_for_test(&old);
    bench.look(&process).await;
    assert_eq!(bench.objects.object(SECRET), None);
}
