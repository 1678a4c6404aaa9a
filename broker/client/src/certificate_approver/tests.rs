#![allow(clippy::unwrap_used)]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_core::client_certificate;
use keyferry_keys::client_certificate::{CertificateRequest, ClientKey};
use keyferry_platform::clock::SystemClock;

use super::*;
use crate::answering_hub::hub;

const REQUESTER: &str = "system:serviceaccount:keyferry-system:keyferry";
const SERVER: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\n\
    objects: CustomResources\nhubName: hub\npublicURL: https://keyferry.example.com\n\
    discovery:\n  tls: { certFile: a, keyFile: b }\napi:\n  tls: { certFile: a, keyFile: b }\n";

async fn approver(answers: Vec<Value>) -> CertificateApprover {
    let server = keyferry_api::config::read(SERVER).unwrap().server;
    let clock = Arc::new(SystemClock::start());
    CertificateApprover::new(hub(answers).await, server, REQUESTER.to_owned(), clock)
}

/// The shipped policies, each with its binding.
fn shipped() -> Vec<Value> {
    NEEDED_POLICIES
        .iter()
        .flat_map(|policy| shipped_of(policy.name()))
        .collect()
}

/// A shipped policy and its binding.
fn shipped_of(name: &str) -> Vec<Value> {
    let files = [
        include_str!("../../../../examples/admission-policies/author.yaml"),
        include_str!("../../../../examples/admission-policies/labels.yaml"),
        include_str!("../../../../examples/admission-policies/retarget.yaml"),
        include_str!("../../../../examples/admission-policies/self.yaml"),
    ];
    let all = files.map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap());
    let named = |object: &Value| object["metadata"]["name"] == name;
    all.into_iter().flatten().filter(named).collect()
}

/// The same with one binding that only audits.
fn hollow(binding: usize) -> Vec<Value> {
    let mut all = shipped();
    all[binding]["spec"]["validationActions"] = json!(["Audit"]);
    all
}

#[tokio::test]
async fn it_starts_only_beside_the_four_policies() {
    let good = approver(shipped()).await;
    good.check_policies().await.unwrap();
    for (binding, name) in [
        (1, "keyferry-author"),
        (3, "keyferry-retarget"),
        (5, "keyferry-self-targets"),
        (7, "keyferry-self-secrets"),
    ] {
        let bad = approver(hollow(binding)).await;
        let refused = bad.check_policies().await.unwrap_err();
        assert!(
            matches!(refused, ApproverError::Unprotected(which, _) if which == name),
            "{refused}"
        );
    }
    // The hub does not answer, so no policy counts as active.
    let silent = approver(Vec::new()).await;
    let refused = silent.check_policies().await;
    assert!(matches!(refused, Err(ApproverError::Hub(..))));
}

#[tokio::test]
async fn it_decides_nothing_once_the_policy_is_changed() {
    let waiting = json!({ "items": [{
        "metadata": { "name": "keyferry-1", "annotations": {
            "keyferry.dev/access": "tenant-a/charts", "keyferry.dev/delivery": "tls",
        } },
        "spec": { "signerName": SIGNER_NAME, "username": REQUESTER },
    }] });
    let mut answers = vec![waiting];
    answers.extend(hollow(1));
    let looked = approver(answers).await.decide_pending().await;
    assert!(matches!(looked, Err(ApproverError::Unprotected(..))));
    // Without a request that waits, the policy is not even read.
    let nothing = json!({ "items": [] });
    let looked = approver(vec![nothing]).await.decide_pending().await;
    assert_eq!(looked.unwrap(), Vec::new());
}

#[test]
fn an_idle_approver_lists_every_half_minute() {
    let mut interval = next_interval(None, false);
    let mut listed = vec![interval.as_secs()];
    for _ in 0..5 {
        interval = next_interval(Some(interval), false);
        listed.push(interval.as_secs());
    }
    assert_eq!(listed, [2, 4, 8, 16, 30, 30]);
    assert_eq!(next_interval(Some(MAX_INTERVAL), true), MIN_INTERVAL);
}

/// A request as Keyferry makes them, and the objects that allow it: by the name of the namespace
/// or by its labels.
fn granted(rule: Value) -> (Value, Vec<Value>) {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let key = ClientKey::from_pkcs8(pkcs8.unwrap().as_ref().to_vec().into());
    let user = "keyferry:tenant-a:reconciler";
    let made = CertificateRequest::sign(&key, user, Duration::from_secs(3600)).unwrap();
    let access = AccessName::parse("tenant-a/charts").unwrap();
    let tls = ObjectName::new("tls").unwrap();
    let mut request =
        client_certificate::request_object(&made, &access, &tls, jiff::Timestamp::UNIX_EPOCH);
    request["spec"]["username"] = json!(REQUESTER);
    let object = |kind: &str, name: &str, namespace: Option<&str>, spec: Value| {
        json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {
                "name": name, "namespace": namespace, "uid": "u-1", "resourceVersion": "1",
                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
        })
    };
    let mut allow = rule;
    allow["serviceAccounts"] = json!(["reconciler"]);
    allow["deliveries"] = json!(["ClientCertificateSecret"]);
    let access = json!({
        "targetClusterRef": { "name": "hub" }, "serviceAccountName": "reconciler",
        "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }],
    });
    let target = json!({
        "address": "https://hub.example.com", "audience": "https://hub.example.com",
        "hub": true, "clientCertificates": { "approval": "Automatic" }, "allow": [allow],
    });
    let mut namespace = object("Namespace", "tenant-a", None, Value::Null);
    namespace["metadata"]["labels"] = json!({ "access.keyferry.dev/team": "a" });
    let facts = vec![
        object("TargetAccess", "charts", Some("tenant-a"), access),
        object("TargetCluster", "hub", None, target),
        object(
            "ServiceAccount",
            "reconciler",
            Some("tenant-a"),
            Value::Null,
        ),
        namespace,
    ];
    (request, facts)
}

/// What the approver decides with these answers of the hub after its policies and its facts.
async fn decided(rule: Value, more: Vec<Value>) -> Option<String> {
    let (request, facts) = granted(rule);
    let mut answers = vec![json!({ "items": [&request] })];
    answers.extend(shipped());
    answers.push(json!({ "items": [&request] }));
    answers.extend(facts);
    answers.extend(more);
    let mut decisions = approver(answers).await.decide_pending().await.unwrap();
    assert_eq!(decisions.len(), 1);
    decisions.remove(0).left
}

#[tokio::test]
async fn what_a_selector_grants_needs_the_policy_of_labels() {
    let by_name = || json!({ "namespaces": ["tenant-a"] });
    let labels = || json!({ "access.keyferry.dev/team": "a" });
    let by_label = || json!({ "namespaceSelector": { "matchLabels": labels() } });
    let approved = || json!({ "kind": "CertificateSigningRequest" });
    assert_eq!(decided(by_name(), vec![approved()]).await, None);
    let mut labels = shipped_of("keyferry-labels");
    labels.push(approved());
    assert_eq!(decided(by_label(), labels.clone()).await, None);
    labels[1]["spec"]["validationActions"] = json!(["Audit"]);
    let left = decided(by_label(), labels).await.unwrap();
    assert!(
        left.contains("namespaceSelector") && left.contains("keyferry-labels"),
        "{left}"
    );
}

/// Users of the hub can create requests of up to 1 MiB, and more than 3 MiB at once.
#[tokio::test]
async fn large_requests_of_others_hold_nothing_up() {
    let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
    let mut large = request.clone();
    large["metadata"]["name"] = json!("large");
    large["metadata"]["finalizers"] = json!(["x".repeat(4_000_000)]);
    large["spec"]["username"] = json!("mallory");
    let mut answers = vec![json!({ "items": [large, &request] })];
    answers.extend(shipped());
    answers.push(json!({ "items": [&request] }));
    answers.extend(facts);
    answers.push(json!({ "kind": "CertificateSigningRequest" }));
    let decisions = approver(answers).await.decide_pending().await.unwrap();
    assert!(
        matches!(&decisions[..], [one] if one.left.is_none()),
        "{decisions:?}"
    );
}

/// Requests of others without end must not delay those before them.
#[tokio::test]
async fn a_page_is_decided_before_the_next_one_is_read() {
    let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
    let mut answers = vec![json!({ "metadata": { "continue": "more" }, "items": [&request] })];
    answers.extend(shipped());
    answers.push(json!({ "items": [&request] }));
    answers.extend(facts);
    answers.push(json!({ "kind": "CertificateSigningRequest" }));
    // The hub has no answer for the second page.
    let decisions = approver(answers).await.decide_pending().await.unwrap();
    assert!(
        matches!(&decisions[..], [one] if one.left.is_none()),
        "{decisions:?}"
    );
    let first = json!({ "metadata": { "continue": "more" }, "items": [] });
    let failed = approver(vec![first]).await.decide_pending().await;
    assert!(matches!(failed, Err(ApproverError::Hub(..))));
}

/// Between the list and the decision, another user can delete a request and create one of its
/// name.
#[tokio::test]
async fn what_is_approved_is_read_again_after_the_list() {
    let (request, facts) = granted(json!({ "namespaces": ["tenant-a"] }));
    for (pointer, value) in [
        ("/spec/username", json!("mallory")),
        (
            "/metadata/annotations/keyferry.dev~1delivery",
            json!("other"),
        ),
        ("/spec/signerName", json!("kubernetes.io/legacy-unknown")),
    ] {
        let mut answers = vec![json!({ "items": [&request] })];
        answers.extend(shipped());
        let mut other = request.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        answers.push(json!({ "items": [other] }));
        answers.extend(facts.clone());
        answers.push(json!({ "kind": "CertificateSigningRequest" }));
        let decisions = approver(answers).await.decide_pending().await.unwrap();
        let left = decisions[0].left.as_deref();
        assert_eq!(left, Some("it changed while it was read"), "{pointer}");
    }
}

#[tokio::test]
async fn a_request_that_is_left_is_not_decided_again_at_once() {
    let (request, mut facts) = granted(json!({ "namespaces": ["tenant-a"] }));
    facts[1]["spec"]["allow"] = json!([]);
    let list = json!({ "items": [&request] });
    let mut answers = vec![list.clone()];
    answers.extend(shipped());
    answers.push(json!({ "items": [&request] }));
    answers.extend(facts);
    // The second pass reads the list, and nothing else.
    answers.push(list);
    let mut approver = approver(answers).await;
    let first = approver.decide_pending().await.unwrap();
    assert!(
        matches!(&first[..], [one] if one.left.is_some()),
        "{first:?}"
    );
    assert_eq!(approver.decide_pending().await.unwrap(), Vec::new());
}
