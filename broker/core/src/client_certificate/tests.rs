#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_api::config::{self, Policy};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_keys::client_certificate::{CertificateRequest, ClientKey, UnexpectedRequest};
use rcgen::KeyPair;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    CountedRequest, NotApproved, RequestProgress, RequestSubject, WantedCertificate,
    check_approval, latest_requests_path, name_of, request_object, request_progress,
};
use crate::authorise::tests::{Hub, hub};

const KEYFERRY: &str = "system:serviceaccount:keyferry-system:keyferry";
const USER: &str = "keyferry:tenant-a:reconciler";

fn request(user: &str, seconds: u64) -> CertificateRequest {
    let der = Zeroizing::new(KeyPair::generate().unwrap().serialize_der());
    let lifetime = Duration::from_secs(seconds);
    CertificateRequest::sign(&ClientKey::from_pkcs8(der), user, lifetime).unwrap()
}

fn access() -> AccessName {
    AccessName::parse("tenant-a/apps").unwrap()
}

/// A request as the apiserver stores it.
fn stored(request: &CertificateRequest) -> Value {
    let tls = ObjectName::new("tls").unwrap();
    let mut object = request_object(request, &access(), &tls, Timestamp::UNIX_EPOCH);
    object["spec"]["username"] = json!(KEYFERRY);
    object
}

#[test]
fn the_requests_of_a_namespace_are_counted_for_an_hour() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let namespace = access().namespace;
    let made = |second: i64, access: &str, signer: &str, username: &str| {
        json!({
            "metadata": {
                "creationTimestamp": at(second).to_string(),
                "annotations": { "keyferry.dev/access": access },
            },
            "spec": { "signerName": signer, "username": username },
        })
    };
    let ours = |second| made(second, "tenant-a/any", super::SIGNER_NAME, KEYFERRY);
    let seconds: Vec<i64> = [
        ours(10_000),
        ours(9000),
        ours(6401),
        ours(6400),
        ours(10_100),
        made(9000, "tenant-b/any", super::SIGNER_NAME, KEYFERRY),
        made(9000, "tenant-a/any", "other", KEYFERRY),
        // What others label and annotate like a request of Keyferry.
        made(9000, "tenant-a/any", super::SIGNER_NAME, "mallory"),
        json!({ "metadata": { "annotations": null }, "spec": {} }),
    ]
    .into_iter()
    .filter_map(|object| {
        let request: CountedRequest = serde_json::from_value(object).unwrap();
        request.counted_time(KEYFERRY, &namespace, at(10_000))
    })
    .map(Timestamp::as_second)
    .collect();
    assert_eq!(seconds, [10_000, 9000, 6401, 10_100]);
    // What a request is labelled with is what is looked for during the hour after it.
    let request = request(USER, 3600);
    let tls = ObjectName::new("tls").unwrap();
    let object = request_object(&request, &access(), &tls, at(7199));
    let labels = &object["metadata"]["labels"];
    assert_eq!(labels["keyferry.dev/namespace"], "tenant-a");
    assert_eq!(labels["keyferry.dev/requested-in-hour"], "1");
    for (second, found) in [(7199, "%280%2C1%29"), (10_798, "%281%2C2%29")] {
        let path = latest_requests_path(&namespace, at(second));
        assert!(path.ends_with(found), "{path}");
        assert!(path.contains("namespace%3Dtenant-a%2C"), "{path}");
    }
}

#[test]
fn a_requests_progress_is_read() {
    let request = request(USER, 3600);
    let with = |status: Value| {
        let mut object = stored(&request);
        object["status"] = status;
        request_progress(&object, &request)
    };
    let conditions_of = |kind: &str| json!([{ "type": kind, "reason": "R", "message": "m\u{7}" }]);
    assert_eq!(with(json!({})), RequestProgress::Pending);
    assert_eq!(
        with(json!({ "conditions": conditions_of("Approved") })),
        RequestProgress::Approved
    );
    let RequestProgress::Denied(text) = with(json!({ "conditions": conditions_of("Denied") }))
    else {
        panic!("denied");
    };
    assert!(
        text.starts_with("R: m") && !text.contains('\u{7}'),
        "{text}"
    );
    for (reason, message, said) in [
        ("R", "", "R"),
        ("", "m", "m"),
        ("R", "m", "R: m"),
        ("", "", ""),
    ] {
        let denied = json!([{ "type": "Denied", "reason": reason, "message": message }]);
        assert_eq!(
            with(json!({ "conditions": denied })),
            RequestProgress::Denied(said.to_owned())
        );
    }
    assert_eq!(
        with(json!({ "conditions": conditions_of("Approved"), "certificate": "" })),
        RequestProgress::Approved,
        "the signer has not answered"
    );
    let failed = json!({ "conditions": conditions_of("Failed"), "certificate": "eA==" });
    assert!(matches!(with(failed), RequestProgress::Failed(_)));
    let issued =
        json!({ "conditions": conditions_of("Approved"), "certificate": STANDARD.encode("x") });
    assert_eq!(with(issued), RequestProgress::Issued(b"x".to_vec()));
    let unreadable = json!({ "certificate": "%" });
    assert_eq!(with(unreadable), RequestProgress::Issued(Vec::new()));
    assert_eq!(
        request_progress(&stored(&self::request(USER, 3600)), &request),
        RequestProgress::Foreign
    );
    let mut other_signer = stored(&request);
    other_signer["spec"]["signerName"] = json!("kubernetes.io/kubelet-serving");
    assert_eq!(
        request_progress(&other_signer, &request),
        RequestProgress::Foreign
    );
}

/// Policy with one access to the hub, after a change of the target's and the access's spec.
fn policy(target: &str, access: &str) -> Policy {
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nobjects: \
                CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\ndiscovery: \
                {tls: {certFile: a, keyFile: b}}\napi: {tls: {certFile: a, keyFile: b}}\n";
    let server = config::read(text).unwrap().server;
    let metadata = |name: &str| json!({ "name": name, "uid": "u", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" });
    let mut spec = json!({
        "address": "https://hub.example.com", "audience": "unused", "hub": true,
        "clientCertificates": { "approval": "Automatic", "maxLifetime": "1h" },
        "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["ClientCertificateSecret"] }],
    });
    merge(&mut spec, target);
    let target = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": metadata("hub"), "spec": spec });
    let mut spec = json!({
        "targetClusterRef": { "name": "hub" }, "serviceAccountName": "reconciler",
        "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }],
    });
    merge(&mut spec, access);
    let mut access = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": metadata("apps"), "spec": spec });
    access["metadata"]["namespace"] = json!("tenant-a");
    let mut objects = config::StoredObjects::default();
    let (name, target) = config::StoredTarget::read(&target, &server).unwrap();
    objects.targets.insert(name, target);
    let (name, access) = config::StoredAccess::read(&access).unwrap();
    objects.accesses.insert(name, access);
    objects.assemble(&server.cluster_resource_namespace).policy
}

fn merge(spec: &mut Value, further: &str) {
    let further: Value = serde_json::from_str(further).unwrap();
    for (field, value) in further.as_object().unwrap() {
        spec[field] = value.clone();
    }
}

fn decide(object: &Value, policy: &Policy) -> Result<(), NotApproved> {
    let subject = RequestSubject::of(object, KEYFERRY).unwrap();
    let hub: Hub = hub();
    check_approval(object, &subject, policy, &hub)
}

#[test]
fn a_certificate_is_wanted_for_one_pair_alone() {
    use crate::authorise::{Requester, Review, delivery_pair, grant_token};

    let tls = ObjectName::new("tls").unwrap();
    let pair_of = |policy: &Policy| delivery_pair(policy, &hub(), &access(), &tls).unwrap();
    let granted = policy("{}", "{}");
    let pair = pair_of(&granted);
    let requester = Requester::Delivery(tls.clone());
    let grant = grant_token(&granted, requester, pair.clone(), Review::AuthorChecked).unwrap();
    let wanted = WantedCertificate::of(&grant);
    assert_eq!(
        (wanted.user(), wanted.lifetime()),
        (USER, Duration::from_secs(3600))
    );
    assert!(wanted.is_of(&pair));
    let shorter = r#"{ "clientCertificates": { "maxLifetime": "30m" } }"#;
    assert!(!wanted.is_of(&pair_of(&policy(shorter, "{}"))));
    let other_rule = r#"{ "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["notifier"], "deliveries": ["ClientCertificateSecret"] }] }"#;
    let notifiers = policy(other_rule, r#"{ "serviceAccountName": "notifier" }"#);
    assert!(!wanted.is_of(&pair_of(&notifiers)));
    let mut renamed = granted.clone();
    for target in renamed.targets.values_mut() {
        target.name = ObjectName::new("other").unwrap();
    }
    assert!(!wanted.is_of(&pair_of(&renamed)), "another TargetCluster");
}

#[test]
fn each_request_has_a_name_of_its_own() {
    let requests = [request(USER, 3600), request(USER, 3600)];
    let names = requests.each_ref().map(name_of);
    assert_ne!(names[0], names[1]);
    for (request, name) in requests.iter().zip(&names) {
        assert_eq!(stored(request)["metadata"]["name"], json!(name));
        assert!(ObjectName::new(name.clone()).is_ok(), "{name}");
    }
}

#[test]
fn keyferrys_own_request_is_approved() {
    assert_eq!(
        decide(&stored(&request(USER, 3600)), &policy("{}", "{}")),
        Ok(())
    );
}

#[test]
fn a_request_that_policy_does_not_grant_is_left_to_a_user() {
    use NotApproved as E;
    let other_account = r#"{ "serviceAccountName": "notifier" }"#;
    let suspended = r#"{ "suspend": true }"#;
    let manual = r#"{ "clientCertificates": { "approval": "Manual", "maxLifetime": "1h" } }"#;
    let by_default = r#"{ "clientCertificates": {} }"#;
    let no_rule = r#"{ "allow": [] }"#;
    let not_hub = r#"{ "hub": false, "clientCertificates": null }"#;
    let tokens = r#"{ "deliveries": [{ "name": "tls", "type": "KubeConfigSecret" }] }"#;
    let unnamed = r#"{ "deliveries": [{ "name": "x", "type": "ClientCertificateSecret" }] }"#;
    let cases = [
        ("{}", other_account, E::NotGranted),
        ("{}", tokens, E::NotGranted),
        ("{}", unnamed, E::NotGranted),
        (no_rule, "{}", E::NotGranted),
        (not_hub, "{}", E::NotGranted),
        (suspended, "{}", E::Suspended),
        ("{}", suspended, E::Suspended),
        (manual, "{}", E::Manual),
        (by_default, "{}", E::Manual),
    ];
    for (target, access, wanted) in cases {
        let decision = decide(&stored(&request(USER, 3600)), &policy(target, access));
        assert_eq!(decision, Err(wanted), "{target} {access}");
    }
}

#[test]
fn a_request_for_more_is_left_to_a_user() {
    use NotApproved as E;
    let policy = policy("{}", "{}");
    let other = |user: &str| decide(&stored(&request(user, 3600)), &policy);
    for user in [
        "keyferry:tenant-b:reconciler",
        "system:admin",
        "keyferry:tenant-a:reconciler ",
    ] {
        assert_eq!(other(user), Err(E::OtherUser(USER.to_owned())), "{user}");
    }
    let edited = |path: &str, value: Value| {
        let mut object = stored(&request(USER, 3600));
        *object.pointer_mut(path).unwrap() = value;
        decide(&object, &policy)
    };
    for usages in [
        json!([]),
        json!(["client auth"]),
        json!(["client auth", "digital signature", "key encipherment"]),
        json!(["client auth", "client auth"]),
        json!(["client auth", 1]),
        json!(null),
    ] {
        assert_eq!(edited("/spec/usages", usages), Err(E::Usages));
    }
    for seconds in [
        json!(3601),
        json!(599),
        json!(null),
        json!("600"),
        json!(-1),
    ] {
        let refused = edited("/spec/expirationSeconds", seconds);
        assert_eq!(refused, Err(E::Lifetime(3600)));
    }
    let junk = edited("/spec/request", json!("eA=="));
    assert_eq!(
        junk,
        Err(E::UnexpectedRequest(UnexpectedRequest::NotARequest))
    );
}

#[test]
fn a_request_of_another_user_or_signer_is_not_the_approvers() {
    let edited = |path: &str, value: Value| {
        let mut object = stored(&request(USER, 3600));
        object["status"] = json!({});
        match object.pointer_mut(path) {
            Some(place) => *place = value,
            None => object["status"]["conditions"] = value,
        }
        RequestSubject::of(&object, KEYFERRY)
    };
    assert!(edited("/status", json!({})).is_some());
    let others = "system:serviceaccount:tenant-a:keyferry";
    assert_eq!(edited("/spec/username", json!(others)), None);
    let signer = json!("kubernetes.io/kubelet-serving");
    assert_eq!(edited("/spec/signerName", signer), None);
    let denied = json!([{ "type": "Denied" }]);
    assert_eq!(edited("/status/conditions", denied), None, "decided");
    assert_eq!(edited("/metadata/annotations", json!({})), None);
}

#[test]
fn the_hub_gets_no_token_and_no_other_target_a_certificate() {
    use keyferry_api::config::DeliveryType;
    use keyferry_api::issuer::Issuer;

    use crate::authorise::{Requester, authorise_request, issuer_collides};
    use crate::pairing::accounts_by_audience;

    let policy = policy("{}", "{}");
    for (name, shape) in DeliveryType::ALL {
        let found = authorise_request(&policy, &hub(), &Requester::Operator, &access(), *shape);
        assert_eq!(
            found.is_ok(),
            *shape == DeliveryType::ClientCertificateSecret,
            "{name}"
        );
    }
    // Its audience is reserved, and only the canary may use it.
    let canary = keyferry_api::service_account::ServiceAccount {
        namespace: keyferry_api::name::Namespace::new("keyferry-system").unwrap(),
        name: ObjectName::new("keyferry-canary").unwrap(),
    };
    let pairs = accounts_by_audience(&policy, &hub(), ["unused".to_owned()], &canary);
    assert_eq!(pairs["unused"].len(), 1);
    // On a hub with the issuer of every cluster, it can be used all the same.
    let target = policy.targets.values().next().unwrap();
    let issuer = Issuer::new("https://kubernetes.default.svc").unwrap();
    assert!(!issuer_collides(&issuer, target));
}
