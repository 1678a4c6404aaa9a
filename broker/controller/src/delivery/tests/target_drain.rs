//! Tests of a TargetCluster that is deleted while an access has objects for it, and of a deleted
//! access that has no consumer.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{ACCESS, Bench, SECRET, secret};
use crate::delivery::Next;

const CONFIG_MAP: &str = "/api/v1/namespaces/tenant-a/configmaps/apps";
const KUSTOMIZATIONS: &str =
    "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenant-a/kustomizations";
const HELM_RELEASES: &str = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/tenant-a/helmreleases";

fn both() -> Value {
    json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }], "probe": "Off" })
}

async fn delivered(bench: &mut Bench, spec: Value) {
    bench.begin_with(spec);
    bench.reconcile_all(&bench.process()).await;
    bench.assert_ready("delivered");
}

fn draining(bench: &Bench) -> bool {
    bench.condition("Ready") == ("False".to_owned(), "TargetDraining".to_owned())
}

/// A list of Flux objects that refer to these names for their kubeconfig.
fn list(references: &[Value]) -> Value {
    let items: Vec<Value> = references
        .iter()
        .map(|reference| json!({ "spec": { "kubeConfig": reference } }))
        .collect();
    json!({ "metadata": {}, "items": items })
}

#[tokio::test]
async fn what_was_delivered_stays_and_nothing_is_minted() {
    let mut bench = Bench::start().await;
    delivered(&mut bench, both()).await;
    let (before, minted) = (
        bench.objects.object(SECRET),
        bench.world.hub.token_requests(),
    );
    bench.delete_target();
    let next = bench.reconcile_all(&bench.process()).await;
    assert!(draining(&bench), "{:?}", bench.condition("Ready"));
    assert!(matches!(next, Next::After(_)), "{next:?}");
    assert_eq!(bench.objects.object(SECRET), before, "byte for byte");
    assert!(bench.objects.object(CONFIG_MAP).is_some());
    bench.world.clock.advance(Duration::from_secs(3601));
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench.objects.object(CONFIG_MAP).is_none(),
        "an hour is over"
    );
    assert!(
        bench.objects.object(SECRET).is_some() && draining(&bench),
        "the Secret's token is not"
    );
    bench.world.clock.advance(Duration::from_secs(11 * 3600));
    bench.reconcile_all(&bench.process()).await;
    assert!(bench.objects.object(SECRET).is_none());
    assert_eq!(bench.condition("Ready").1, "TargetNotGranted");
    assert_eq!(bench.world.hub.token_requests(), minted);
}

#[tokio::test]
async fn a_target_without_the_finalizer_or_with_immediate_takes_its_objects_at_once() {
    let mut bench = Bench::start().await;
    for immediate in [false, true] {
        delivered(&mut bench, both()).await;
        if immediate {
            bench.delete_target();
            bench.reconcile_all(&bench.process()).await;
            assert!(draining(&bench));
            bench.put_target(&json!({ "deletionPolicy": "Immediate" }));
        } else {
            bench.objects.edit(super::bench::TARGET, |target| {
                target["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
            });
        }
        bench.reconcile_all(&bench.process()).await;
        assert!(
            bench.objects.object(SECRET).is_none() && bench.objects.object(CONFIG_MAP).is_none(),
            "immediate: {immediate}"
        );
        assert_eq!(bench.condition("Ready").1, "TargetNotGranted");
    }
}

#[tokio::test]
async fn taking_a_tenant_out_of_a_draining_target_withdraws() {
    let mut bench = Bench::start().await;
    delivered(&mut bench, both()).await;
    bench.delete_target();
    bench.reconcile_all(&bench.process()).await;
    let no_secrets = json!({ "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["FluxConfigMap"] }] });
    bench.put_target(&no_secrets);
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench.objects.object(SECRET).is_none(),
        "what is not allowed any more goes"
    );
    assert!(
        bench.objects.object(CONFIG_MAP).is_some() && draining(&bench),
        "and nothing else"
    );
    bench.put_target(&json!({ "allow": [] }));
    bench.reconcile_all(&bench.process()).await;
    assert!(bench.objects.object(CONFIG_MAP).is_none());
    assert_eq!(bench.condition("Ready").1, "TargetNotGranted");
}

/// A tenant may edit the annotations of its own Secret, and its own access.
#[tokio::test]
async fn no_tenant_makes_a_deleted_target_stay_longer() {
    let mut bench = Bench::start().await;
    delivered(&mut bench, both()).await;
    bench.delete_target();
    bench.objects.edit(SECRET, |secret| {
        secret["metadata"]["annotations"]["keyferry.dev/expires-at"] = json!("2099-01-01T00:00:00Z")
    });
    let further = json!({ "deliveries": [
        { "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }, { "name": "n", "type": "FluxConfigMap", "objectName": "more" },
    ], "probe": "Off" });
    bench.put_access(further);
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench
            .objects
            .object("/api/v1/namespaces/tenant-a/configmaps/more")
            .is_none(),
        "nothing is written any more"
    );
    bench.world.clock.advance(Duration::from_secs(23 * 3600));
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench.objects.object(SECRET).is_none(),
        "its token has expired, whatever the annotation says"
    );
}

/// As when one commit removes the Kustomization, the access and the target.
#[tokio::test]
async fn an_access_that_is_deleted_with_its_target_drains() {
    let mut bench = Bench::start().await;
    delivered(&mut bench, secret()).await;
    bench.delete_target();
    bench.delete_access();
    bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        bench.condition("Reconciling"),
        ("True".to_owned(), "DeliveryDraining".to_owned())
    );
    assert!(bench.objects.object(SECRET).is_some());
    bench.put_target(&json!({ "allow": [] }));
    bench.reconcile_all(&bench.process()).await;
    assert!(
        bench.objects.object(SECRET).is_none() && bench.objects.object(ACCESS).is_none(),
        "it is allowed no more"
    );
}

#[tokio::test]
async fn a_deleted_access_goes_when_flux_uses_its_object_no_more() {
    let mut bench = Bench::start().await;
    delivered(&mut bench, secret()).await;
    bench.objects.put_foreign(
        KUSTOMIZATIONS,
        list(&[json!({ "secretRef": { "name": "apps-kubeconfig" } })]),
    );
    bench.delete_access();
    let next = bench.reconcile_all(&bench.process()).await;
    assert_eq!(
        next,
        Next::After(Duration::from_secs(10)),
        "Flux is looked at again soon"
    );
    assert!(bench.objects.object(ACCESS).is_some());
    for others in [
        list(&[json!({ "secretRef": { "name": "another" } })]),
        list(&[json!({ "configMapRef": { "name": "apps-kubeconfig" } })]),
    ] {
        bench.objects.put_foreign(
            HELM_RELEASES,
            list(&[json!({ "secretRef": { "name": "apps-kubeconfig" } })]),
        );
        bench.objects.put_foreign(KUSTOMIZATIONS, others);
        bench.reconcile_all(&bench.process()).await;
        assert!(
            bench.objects.object(ACCESS).is_some(),
            "the HelmRelease uses it"
        );
    }
    bench.objects.put_foreign(HELM_RELEASES, list(&[]));
    bench.reconcile_all(&bench.process()).await;
    assert!(bench.objects.object(ACCESS).is_none(), "nothing does");
}

#[tokio::test]
async fn what_is_not_known_to_be_unused_stays() {
    use keyferry_issuer::testing::Failing;
    let mut bench = Bench::start().await;
    let cut_off = json!({ "metadata": { "continue": "more" }, "items": [] });
    for (case, kustomizations, failing) in [
        (
            "a hub without Flux, a Secret that others may read",
            None,
            None,
        ),
        ("a list that is cut off", Some(cut_off), None),
        ("no list at all", Some(json!({ "metadata": {} })), None),
        (
            "no right to list",
            Some(list(&[])),
            Some(Failing::Forbidden("list", "/kustomizations")),
        ),
        (
            "a hub that does not answer",
            Some(list(&[])),
            Some(Failing::Unreachable("list", "/helmreleases")),
        ),
    ] {
        delivered(&mut bench, secret()).await;
        if let Some(kustomizations) = kustomizations {
            bench.objects.put_foreign(KUSTOMIZATIONS, kustomizations);
        }
        bench.objects.fail(failing);
        bench.delete_access();
        bench.reconcile_all(&bench.process()).await;
        assert!(bench.objects.object(ACCESS).is_some(), "{case}");
    }
    // Only Flux reads such a ConfigMap.
    delivered(
        &mut bench,
        json!({ "deliveries": [{ "name": "m", "type": "FluxConfigMap" }], "probe": "Off" }),
    )
    .await;
    bench.delete_access();
    bench.reconcile_all(&bench.process()).await;
    assert!(bench.objects.object(ACCESS).is_none());
}
