#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::config::{
    self, Delivery, DeliveryType, StoredAccess, StoredTarget, TargetAccess, TargetCluster,
};
use keyferry_api::service_account::Uid;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{
    Bearer, CredentialNote, DeliveredObject, Field, Snapshot, Step, check_expressible,
    classify_object, cluster_profile_status, plan_step, render_object,
};

const CA: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

struct World {
    target: TargetCluster,
    access: TargetAccess,
}

fn build_world(spec: Value, deliveries: Value) -> World {
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: CustomResources\nhubName: hub\n\
                publicURL: https://keyferry.example.com\ndiscovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n\
                managedIssuers: { enabled: true }\n";
    let server = config::read(text).unwrap().server;
    let metadata = |name: &str| json!({ "name": name, "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" });
    let mut target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata("prod"),
        "spec": { "address": "https://prod.example.com:6443", "audience": "https://prod.example.com" },
    });
    for (key, value) in spec.as_object().unwrap() {
        target["spec"][key] = value.clone();
    }
    let mut access = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata("apps"),
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler", "deliveries": deliveries },
    });
    access["metadata"]["namespace"] = json!("tenant-a");
    let mut stored = config::StoredObjects::default();
    let (name, target) = StoredTarget::read(&target, &server).unwrap();
    stored.targets.insert(name.clone(), target);
    let assembled = stored.assemble(&server.cluster_resource_namespace);
    assert_eq!(assembled.targets, Default::default());
    World {
        target: assembled.policy.targets[&name].clone(),
        access: StoredAccess::read(&access).unwrap().1.read.unwrap(),
    }
}

impl World {
    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            access: &self.access,
            owner: self.access.uid.as_ref().unwrap(),
            account_uid: self.access.uid.as_ref().unwrap(),
            target: &self.target,
            ca_pem: Some(CA),
        }
    }

    fn delivery(&self) -> &Delivery {
        &self.access.deliveries[0]
    }

    fn rendered(&self, token: Option<&str>) -> Value {
        let token = token.map(SecretString::from);
        let bearer = token.as_ref().map(|token| Bearer {
            token,
            note: CredentialNote {
                id: "jti",
                key_id: Some("a-key"),
                expires_at: at(1000),
                renew_at: at(500),
            },
        });
        render_object(&self.snapshot(), self.delivery(), bearer.as_ref())
            .unwrap()
            .unwrap()
            .value()
            .clone()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn decoded(object: &Value, key: &str) -> String {
    String::from_utf8(
        STANDARD
            .decode(object["data"][key].as_str().unwrap())
            .unwrap(),
    )
    .unwrap()
}

/// Adds the metadata that the hub sets.
fn as_stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("object-uid");
    object["metadata"]["resourceVersion"] = json!("9");
    object["metadata"]["managedFields"] = json!([{ "manager": "keyferry", "operation": "Update" }]);
    object
}

#[test]
fn the_flux_config_map_has_the_keys_that_flux_reads() {
    let object = build_world(
        json!({}),
        json!([{ "name": "flux", "type": "FluxConfigMap" }]),
    )
    .rendered(None);
    assert_eq!(
        object["data"],
        json!({
            "provider": "generic", "address": "https://prod.example.com:6443", "ca.crt": CA, "audiences": "https://prod.example.com",
            "serviceAccountName": "reconciler",
        })
    );
    assert_eq!(
        object["metadata"]["labels"]["reconcile.fluxcd.io/watch"],
        "Enabled"
    );
    assert_eq!(
        object["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "keyferry"
    );
    assert_eq!(
        object["metadata"]["labels"]["keyferry.dev/access-name"],
        "apps"
    );
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (owner["uid"].as_str(), owner["controller"].as_bool()),
        (Some("u"), Some(true))
    );
    for (written, read) in [
        ("https://a.example", "https://a.example:443"),
        ("https://[fd00::1]", "https://[fd00::1]:443"),
    ] {
        let object = build_world(
            json!({ "address": written }),
            json!([{ "name": "flux", "type": "FluxConfigMap" }]),
        )
        .rendered(None);
        assert_eq!(object["data"]["address"], read);
    }
}

#[test]
fn secrets_hold_a_whole_kubeconfig_and_when_it_ends() {
    for (delivery, secret_type) in [
        ("KubeConfigSecret", "Opaque"),
        ("ClusterAPISecret", "cluster.x-k8s.io/secret"),
    ] {
        let object = build_world(json!({}), json!([{ "name": "s", "type": delivery }]))
            .rendered(Some("the.token.x"));
        assert_eq!(object["type"], secret_type);
        let kubeconfig = decoded(&object, "value");
        assert!(
            kubeconfig.contains("the.token.x")
                && kubeconfig.contains("https://prod.example.com:6443")
        );
        assert!(!kubeconfig.contains("tokenFile") && !kubeconfig.contains("exec"));
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["keyferry.dev/expires-at"], at(1000).to_string());
        assert_eq!(annotations["keyferry.dev/token-id"], "jti");
        assert!(!annotations.to_string().contains("the.token.x"));
    }
}

/// The Secret as Istio looks for it.
fn build_istio_world(secret: Value) -> World {
    build_world(
        json!({}),
        json!([{ "name": "s", "type": "KubeConfigSecret", "secret": secret }]),
    )
}

#[test]
fn a_consumer_finds_the_secret_by_key_type_labels_and_annotations() {
    let object = build_istio_world(json!({
        "key": "prod", "type": "example.com/remote", "labels": { "istio/multiCluster": "true" },
        "annotations": { "networking.istio.io/cluster": "prod" },
    }))
    .rendered(Some("the.token.x"));
    assert!(decoded(&object, "prod").contains("the.token.x"));
    assert_eq!(object["data"].as_object().unwrap().len(), 1);
    assert_eq!(object["type"], "example.com/remote");
    let metadata = &object["metadata"];
    assert_eq!(metadata["labels"]["istio/multiCluster"], "true");
    assert_eq!(
        metadata["labels"]["app.kubernetes.io/managed-by"],
        "keyferry"
    );
    assert_eq!(
        metadata["annotations"]["networking.istio.io/cluster"],
        "prod"
    );
    assert_eq!(metadata["annotations"]["keyferry.dev/target"], "prod");
}

#[test]
fn what_an_access_asks_for_no_more_goes_and_what_others_added_stays() {
    let shaped =
        json!({ "labels": { "istio/multiCluster": "true" }, "annotations": { "a/b": "c" } });
    let mut held = as_stored(build_istio_world(shaped).rendered(Some("t")));
    held["metadata"]["labels"]["theirs"] = json!("kept");
    held["metadata"]["annotations"]["theirs"] = json!("kept");
    let later = build_world(
        json!({}),
        json!([{ "name": "s", "type": "KubeConfigSecret" }]),
    );
    let body = render_object(&later.snapshot(), later.delivery(), None)
        .unwrap()
        .unwrap()
        .for_replacement("object-uid", "9", &held);
    let metadata = &body.value()["metadata"];
    for field in ["labels", "annotations"] {
        assert_eq!(metadata[field]["theirs"], "kept", "{field}");
    }
    assert!(metadata["labels"]["istio/multiCluster"].is_null());
    assert!(metadata["annotations"]["a/b"].is_null());
    assert!(metadata["annotations"]["keyferry.dev/further-names"].is_null());
}

#[test]
fn an_edited_label_or_annotation_of_the_access_is_written_again() {
    let world = build_istio_world(
        json!({ "labels": { "istio/multiCluster": "true" }, "annotations": { "a/b": "c" } }),
    );
    for (pointer, kept) in [
        ("/metadata/labels/istio~1multiCluster", false),
        ("/metadata/annotations/a~1b", false),
        ("/metadata/annotations/keyferry.dev~1further-names", true),
    ] {
        let mut held = as_stored(world.rendered(Some("t")));
        *held.pointer_mut(pointer).unwrap() = json!("edited");
        let planned = render_object(&world.snapshot(), world.delivery(), None)
            .unwrap()
            .unwrap();
        let step = plan_step(
            classify_object(Some(&held), world.access.uid.as_ref().unwrap()),
            planned.form(),
            true,
            false,
            at(100),
        );
        assert_eq!(matches!(step, Step::Keep(_)), kept, "{pointer}");
    }
}

#[test]
fn a_cluster_may_itself_be_named_after_a_kubeconfig() {
    let name = "prod-kubeconfig-kubeconfig";
    let object = build_world(
        json!({}),
        json!([{ "name": "s", "type": "ClusterAPISecret", "objectName": name }]),
    )
    .rendered(Some("t"));
    assert_eq!(
        object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"],
        "prod-kubeconfig"
    );
}

#[test]
fn argo_cd_gets_the_plugin_or_a_token() {
    let exec = build_world(
        json!({}),
        json!([{ "name": "a", "type": "ArgoCDSecret", "argoCD": { "project": "apps" } }]),
    )
    .rendered(None);
    assert_eq!(
        exec["metadata"]["labels"]["argocd.argoproj.io/secret-type"],
        "cluster"
    );
    assert_eq!(
        (decoded(&exec, "project"), decoded(&exec, "server")),
        (
            "apps".to_owned(),
            "https://prod.example.com:6443".to_owned()
        )
    );
    let config: Value = serde_json::from_str(&decoded(&exec, "config")).unwrap();
    assert_eq!(
        config["execProviderConfig"]["args"],
        json!(["credential", "tenant-a/apps"])
    );
    assert!(config.get("bearerToken").is_none());
    let argo = json!([{ "name": "a", "type": "ArgoCDSecret", "argoCD": { "project": "apps", "form": "BearerToken" } }]);
    let bearer =
        build_world(json!({ "tlsServerName": "kubernetes" }), argo).rendered(Some("the.token.x"));
    let config: Value = serde_json::from_str(&decoded(&bearer, "config")).unwrap();
    assert_eq!(
        (
            config["bearerToken"].as_str(),
            config["tlsClientConfig"]["serverName"].as_str()
        ),
        (Some("the.token.x"), Some("kubernetes"))
    );
    assert_eq!(config["tlsClientConfig"]["insecure"], false);
}

#[test]
fn a_cluster_profile_holds_no_credential() {
    let world = build_world(
        json!({}),
        json!([{ "name": "p", "type": "ClusterProfile" }]),
    );
    assert_eq!(
        world.rendered(None)["spec"]["clusterManager"]["name"],
        "keyferry"
    );
    let status = cluster_profile_status(&world.snapshot(), "prod", "7");
    assert_eq!(status["metadata"]["resourceVersion"], "7");
    let provider = &status["status"]["accessProviders"][0];
    assert_eq!(
        provider["cluster"]["certificate-authority-data"],
        STANDARD.encode(CA)
    );
    assert_eq!(
        provider["cluster"]["extensions"][0]["extension"]["clusterName"],
        "tenant-a/apps"
    );
    assert!(!status.to_string().contains("token"));
}

#[test]
fn what_a_shape_cannot_carry_is_named_with_a_shape_that_can() {
    let flux = |spec: Value| {
        let world = build_world(spec, json!([{ "name": "flux", "type": "FluxConfigMap" }]));
        check_expressible(DeliveryType::FluxConfigMap, &world.target)
            .map_err(|gap| (gap.field, gap.to_string()))
    };
    assert!(flux(json!({})).is_ok());
    for (spec, field) in [
        (
            json!({ "address": "https://rancher.example.com/k8s/clusters/c-1" }),
            Field::AddressPath,
        ),
        (
            json!({ "proxyURL": "http://proxy.example.com:3128" }),
            Field::ProxyUrl,
        ),
        (
            json!({ "tlsServerName": "kubernetes" }),
            Field::TlsServerName,
        ),
        (json!({ "issuer": "Keyferry" }), Field::Issuer),
    ] {
        let (found, message) = flux(spec).unwrap_err();
        assert_eq!(found, field);
        assert!(
            message.contains(field.as_str()) && message.contains("KubeConfigSecret"),
            "{message}"
        );
    }
    let profile = build_world(json!({ "tlsServerName": "kubernetes" }), json!([]));
    assert_eq!(
        check_expressible(DeliveryType::ClusterProfile, &profile.target)
            .unwrap_err()
            .field,
        Field::TlsServerName
    );
    assert!(check_expressible(DeliveryType::KubeConfigSecret, &profile.target).is_ok());
}

fn step(world: &World, object: Option<&Value>, now: i64) -> &'static str {
    let form = render_object(&world.snapshot(), world.delivery(), None)
        .unwrap()
        .unwrap()
        .form()
        .clone();
    match plan_step(
        classify_object(object, &Uid::new("u").unwrap()),
        &form,
        world.delivery().holds_token(),
        false,
        at(now),
    ) {
        Step::Keep(_) => "keep",
        Step::Create => "create",
        Step::Replace(held) => {
            assert_eq!((held.uid(), held.version()), ("object-uid", "9"));
            "replace"
        }
        Step::Leave(_) => "leave",
    }
}

#[test]
fn an_object_is_written_when_it_is_due_changed_or_edited_and_not_else() {
    let secret = json!([{ "name": "s", "type": "KubeConfigSecret" }]);
    let world_now = build_world(json!({}), secret.clone());
    assert_eq!(step(&world_now, None, 0), "create");
    let stored = as_stored(world_now.rendered(Some("the.token.x")));
    assert_eq!(step(&world_now, Some(&stored), 499), "keep");
    assert_eq!(
        step(&world_now, Some(&stored), 500),
        "replace",
        "its time has come"
    );
    let moved = build_world(json!({ "address": "https://other.example.com" }), secret);
    assert_eq!(
        step(&moved, Some(&stored), 0),
        "replace",
        "the target changed"
    );
    let mut edited = stored.clone();
    edited["data"]["value"] = json!(STANDARD.encode("something else"));
    assert_eq!(
        step(&world_now, Some(&edited), 0),
        "replace",
        "somebody edited it"
    );
    let mut further = stored.clone();
    further["data"]["more"] = json!("eA==");
    assert_eq!(
        step(&world_now, Some(&further), 0),
        "replace",
        "somebody added to it"
    );
    for annotation in ["expires-at", "renew-at", "key-id", "token-id", "target"] {
        let mut edited = stored.clone();
        edited["metadata"]["annotations"][format!("keyferry.dev/{annotation}")] =
            json!("9999-01-01T00:00:00Z");
        assert_eq!(
            step(&world_now, Some(&edited), 0),
            "replace",
            "somebody edited {annotation}"
        );
    }
    let mut unlabelled = stored.clone();
    unlabelled["metadata"]["labels"] = json!({ "theirs": "x" });
    assert_eq!(step(&world_now, Some(&unlabelled), 0), "replace");
    let mut labelled = stored;
    labelled["metadata"]["labels"]["theirs"] = json!("x");
    assert_eq!(
        step(&world_now, Some(&labelled), 0),
        "keep",
        "others may label it"
    );
}

#[test]
fn objects_of_others_are_left_alone() {
    let world = build_world(
        json!({}),
        json!([{ "name": "flux", "type": "FluxConfigMap" }]),
    );
    let ours = as_stored(world.rendered(None));
    assert_eq!(step(&world, Some(&ours), 0), "keep");
    let with = |path: &str, value: Value| {
        let mut object = ours.clone();
        *object.pointer_mut(path).unwrap() = value;
        object
    };
    for foreign in [
        with("/metadata/ownerReferences", json!([])),
        with("/metadata/ownerReferences/0/uid", json!("another")),
        with("/metadata/ownerReferences/0/controller", json!(false)),
        with("/metadata/ownerReferences/0/kind", json!("Kustomization")),
        with("/metadata/managedFields", json!([{ "manager": "kubectl" }])),
        with(
            "/metadata/managedFields",
            json!([{ "manager": "keyferry", "subresource": "status" }]),
        ),
        with(
            "/metadata",
            json!({ "labels": { "app.kubernetes.io/managed-by": "keyferry" } }),
        ),
    ] {
        assert_eq!(step(&world, Some(&foreign), 0), "leave", "{foreign}");
    }
    let mut immutable = ours.clone();
    immutable["immutable"] = json!(true);
    assert_eq!(
        step(&world, Some(&immutable), 0),
        "keep",
        "a tenant cannot put our object out of reach"
    );
    let mut going = ours;
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(step(&world, Some(&going), 0), "leave");
    assert!(matches!(
        classify_object(Some(&json!("text")), &Uid::new("u").unwrap()),
        DeliveredObject::Foreign(_)
    ));
}

#[test]
fn a_replacement_keeps_what_others_added_and_meets_only_that_object() {
    let world = build_world(
        json!({}),
        json!([{ "name": "flux", "type": "FluxConfigMap" }]),
    );
    let mut held = as_stored(world.rendered(None));
    held["metadata"]["labels"]["theirs"] = json!("x");
    held["metadata"]["annotations"]["keyferry.dev/expires-at"] = json!("stale");
    held["metadata"]["finalizers"] = json!(["theirs"]);
    let further =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "other" });
    held["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(further.clone());
    let body = render_object(&world.snapshot(), world.delivery(), None)
        .unwrap()
        .unwrap()
        .for_replacement("object-uid", "9", &held);
    let metadata = &body.value()["metadata"];
    assert_eq!(
        (
            metadata["uid"].as_str(),
            metadata["resourceVersion"].as_str()
        ),
        (Some("object-uid"), Some("9"))
    );
    assert_eq!(metadata["labels"]["theirs"], "x");
    assert_eq!(
        (&metadata["finalizers"], &metadata["ownerReferences"][1]),
        (&json!(["theirs"]), &further)
    );
    assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 2);
    assert!(
        metadata["annotations"]
            .get("keyferry.dev/expires-at")
            .is_none(),
        "our own annotations are written again"
    );
}
