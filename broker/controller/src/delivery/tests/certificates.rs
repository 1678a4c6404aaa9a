//! A client certificate for the hub's apiserver: what is requested, what is written, and what is
//! not.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_hub::ports::HubError;
use keyferry_hub::testing::OWN_USER;
use keyferry_issuer::testing::Failing;
use keyferry_platform::clock::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

use super::bench::{ACCESS, Bench, annotation};
use crate::delivery::{Deliveries, Next};

const SECRET: &str = "/api/v1/namespaces/tenant-a/secrets/apps-client-tls";
const REQUESTS: &str = "/certificatesigningrequests/";
const USER: &str = "keyferry:tenant-a:reconciler";

async fn begun(rules: Value) -> (Bench, Deliveries) {
    let mut bench = Bench::start().await;
    bench.begin_with(
        json!({ "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }] }),
    );
    bench.put_target(&target(rules));
    let process = bench.process();
    (bench, process)
}

fn target(rules: Value) -> Value {
    json!({
        "hub": true, "clientCertificates": rules, "caBundle": authority().0,
        "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"], "deliveries": ["ClientCertificateSecret"] }],
    })
}

/// A CA: its certificate as PEM, and the issuer of others.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

fn requests(bench: &Bench) -> Vec<Value> {
    let mut all = bench.objects.all(REQUESTS);
    all.sort_by_key(|one| {
        let version = one["metadata"]["resourceVersion"].as_str();
        version.and_then(|text| text.parse::<u64>().ok())
    });
    all
}

fn path(request: &Value) -> String {
    let name = request["metadata"]["name"].as_str().unwrap();
    format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}")
}

/// Answers the latest request as approver and signer do, for this user and life in seconds.
fn sign(bench: &Bench, user: &str, key: usize, life: u64) {
    let now = u64::try_from(bench.world.clock.now().wall.as_second()).unwrap();
    let begin = date_time_ymd(1970, 1, 1) + Duration::from_secs(now - 300);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    (params.not_before, params.not_after) = (begin, begin + Duration::from_secs(300 + life));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pair = KeyPair::from_pem(&bench.keys.made()[key]).unwrap();
    let pem = params.signed_by(&pair, &authority().1).unwrap().pem();
    let request = requests(bench).pop().unwrap();
    bench.objects.edit(&path(&request), |object| {
        object["status"] = json!({
            "conditions": [{ "type": "Approved", "status": "True" }], "certificate": STANDARD.encode(pem),
        });
    });
}

fn reason(bench: &Bench) -> String {
    bench.condition("Ready").1
}

fn message(bench: &Bench) -> String {
    let access = bench.objects.object(ACCESS).unwrap();
    access["status"]["deliveries"][0]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn after(next: Next) -> Duration {
    match next {
        Next::After(pause) => pause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_certificate_is_requested_approved_written_and_renewed() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    let next = bench.reconcile_all(&process).await;
    assert!(after(next) < Duration::from_secs(10), "{next:?}");
    assert_eq!(reason(&bench), "CertificatePending");
    let [request] = requests(&bench).try_into().unwrap();
    let name = request["metadata"]["name"].as_str().unwrap();
    let line = format!("kubectl certificate approve {name}");
    assert!(message(&bench).ends_with(&line), "{}", message(&bench));
    assert_eq!(
        request["spec"]["signerName"],
        "kubernetes.io/kube-apiserver-client"
    );
    assert_eq!(request["spec"]["expirationSeconds"], 3600);
    assert_eq!(
        request["spec"]["usages"],
        json!(["client auth", "digital signature"])
    );
    assert!(bench.objects.object(SECRET).is_none());
    assert_eq!(bench.audit.tokens(), 0);

    sign(&bench, USER, 0, 3600);
    let next = bench.reconcile_all(&process).await;
    bench.assert_ready("signed");
    assert!(after(next) >= Duration::from_secs(240), "the regular check");
    let secret = bench.objects.object(SECRET).unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let decode_member = |secret: &Value, key: &str| {
        let text = secret["data"][key].as_str().unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(decode_member(&secret, "tls.key"), bench.keys.made()[0]);
    assert!(decode_member(&secret, "ca.crt").contains("BEGIN CERTIFICATE"));
    assert!(bench.audit.knows(annotation(&secret, "token-id").unwrap()));

    // A little before two thirds of its life nothing happens, a little after a new key is made.
    bench.world.clock.advance(Duration::from_secs(2399));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 1);
    bench.world.clock.advance(Duration::from_secs(1));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 2);
    assert_eq!(bench.keys.made().len(), 2);
    assert_eq!(reason(&bench), "CertificatePending");
    assert!(message(&bench).contains("the current certificate is valid until"));
    assert_eq!(
        bench.objects.object(SECRET).unwrap(),
        secret,
        "the old pair stays"
    );
    sign(&bench, USER, 1, 3600);
    bench.reconcile_all(&process).await;
    bench.assert_ready("renewed");
    let renewed = bench.objects.object(SECRET).unwrap();
    assert_eq!(decode_member(&renewed, "tls.key"), bench.keys.made()[1]);
    assert_eq!(requests(&bench).len(), 2);
}

#[tokio::test]
async fn an_automatic_renewal_does_not_disturb_the_access() {
    let (bench, process) = begun(json!({ "approval": "Automatic" })).await;
    bench.reconcile_all(&process).await;
    assert_eq!(reason(&bench), "CertificatePending", "nothing is there yet");
    sign(&bench, USER, 0, 86_400);
    bench.reconcile_all(&process).await;
    bench.world.clock.advance(Duration::from_secs(57_601));
    let next = bench.reconcile_all(&process).await;
    bench.assert_ready("while it is renewed");
    assert!(after(next) < Duration::from_secs(10), "{next:?}");
    bench.world.clock.advance(Duration::from_secs(61));
    bench.reconcile_all(&process).await;
    assert_eq!(
        reason(&bench),
        "CertificatePending",
        "the approver does not run"
    );
    assert!(message(&bench).contains("approve-certificates"));
}

#[tokio::test]
async fn another_certificate_is_not_written() {
    let cases = [
        ("keyferry:tenant-b:reconciler", 3600, "subject"),
        (USER, 7200, "longer than requested"),
    ];
    for (user, life, text) in cases {
        let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
        bench.reconcile_all(&process).await;
        sign(&bench, user, 0, life);
        bench.reconcile_all(&process).await;
        assert_eq!(reason(&bench), "CertificateMismatch");
        assert!(message(&bench).contains(text), "{}", message(&bench));
        assert!(bench.objects.object(SECRET).is_none());
        assert_eq!(bench.audit.tokens(), 0);
        // An hour later it is requested again, with another key.
        bench.world.clock.advance(Duration::from_secs(3599));
        bench.reconcile_all(&process).await;
        assert_eq!(requests(&bench).len(), 1);
        bench.world.clock.advance(Duration::from_secs(1));
        bench.reconcile_all(&process).await;
        assert_eq!(requests(&bench).len(), 2);
    }
}

#[tokio::test]
async fn a_denial_is_final_until_it_is_requested_again() {
    let (bench, process) = begun(json!({})).await;
    bench.reconcile_all(&process).await;
    let request = requests(&bench).pop().unwrap();
    bench.objects.edit(&path(&request), |object| {
        object["status"]["conditions"] = json!([{ "type": "Denied", "message": "not you" }]);
    });
    bench.reconcile_all(&process).await;
    assert_eq!(reason(&bench), "CertificateDenied");
    assert!(message(&bench).ends_with("not you"));
    bench.world.clock.advance(Duration::from_secs(100_000));
    let next = bench.reconcile_all(&process).await;
    assert!(
        after(next) >= Duration::from_secs(240),
        "nothing is awaited"
    );
    assert_eq!(
        (reason(&bench), requests(&bench).len()),
        ("CertificateDenied".to_owned(), 1)
    );
    bench.objects.edit(ACCESS, |access| {
        access["metadata"]["annotations"]["keyferry.dev/requestedAt"] = json!("now");
    });
    bench.reconcile_all(&process).await;
    assert_eq!(
        (reason(&bench), requests(&bench).len()),
        ("CertificatePending".to_owned(), 2)
    );
}

#[tokio::test]
async fn the_signers_failure_is_reported() {
    let (bench, process) = begun(json!({})).await;
    bench.reconcile_all(&process).await;
    let request = requests(&bench).pop().unwrap();
    bench.objects.edit(&path(&request), |object| {
        object["status"]["conditions"] =
            json!([{ "type": "Failed", "reason": "SignerValidationFailure" }]);
    });
    bench.reconcile_all(&process).await;
    assert_eq!(reason(&bench), "CertificateFailed");
    assert!(message(&bench).contains("SignerValidationFailure"));
    assert!(bench.objects.object(SECRET).is_none());
}

#[tokio::test]
async fn what_policy_takes_back_while_it_is_pending_is_not_written() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    bench.reconcile_all(&process).await;
    sign(&bench, USER, 0, 3600);
    let mut none = target(json!({ "maxLifetime": "1h" }));
    none["allow"] = json!([]);
    bench.put_target(&none);
    bench.reconcile_all(&process).await;
    assert_eq!(reason(&bench), "TargetNotGranted");
    assert!(bench.objects.object(SECRET).is_none());
    // And what was written before is deleted.
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    bench.reconcile_all(&process).await;
    sign(&bench, USER, 0, 3600);
    bench.reconcile_all(&process).await;
    bench.assert_ready("written");
    bench.put_target(&none);
    bench.reconcile_all(&process).await;
    assert!(bench.objects.object(SECRET).is_none());
}

#[tokio::test]
async fn a_new_process_makes_a_new_key() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    bench.reconcile_all(&process).await;
    sign(&bench, USER, 0, 3600);
    let other = bench.process();
    bench.reconcile_all(&other).await;
    assert_eq!(requests(&bench).len(), 2);
    assert_eq!(reason(&bench), "CertificatePending");
    assert!(bench.objects.object(SECRET).is_none(), "its key is gone");
    sign(&bench, USER, 1, 3600);
    bench.reconcile_all(&other).await;
    bench.assert_ready("the new request");
}

#[tokio::test]
async fn edits_of_the_secret_cost_one_request_in_half_a_minute() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    bench.reconcile_all(&process).await;
    sign(&bench, USER, 0, 3600);
    bench.reconcile_all(&process).await;
    for _ in 0..10 {
        bench
            .objects
            .edit(SECRET, |secret| secret["data"]["tls.crt"] = json!("eA=="));
        bench.reconcile_all(&process).await;
        bench.world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(requests(&bench).len(), 1, "half a minute has not passed");
    for _ in 0..40 {
        bench.world.clock.advance(Duration::from_secs(1));
        bench.reconcile_all(&process).await;
    }
    assert_eq!(requests(&bench).len(), 2, "the first, and one that waits");
}

#[tokio::test]
async fn renamed_deliveries_cost_a_bounded_number_of_requests() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    for run in 0..50 {
        let name = format!("tls-{run}");
        bench.put_access(json!({ "deliveries": [
            { "name": name, "type": "ClientCertificateSecret", "objectName": name },
        ] }));
        bench.reconcile_all(&process).await;
        bench.world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(requests(&bench).len(), 32);
    assert_eq!(reason(&bench), "CertificatePending");
    assert!(
        message(&bench).contains("within an hour"),
        "{}",
        message(&bench)
    );
    bench.world.clock.advance(Duration::from_secs(3600));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 33);
}

/// Everyone who may create requests can label them like Keyferry's. The apiserver alone writes the
/// user who made them.
#[tokio::test]
async fn only_keyferrys_own_requests_count_for_a_tenant() {
    for (user, counts) in [("mallory", false), (OWN_USER, true)] {
        let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
        let now = bench.world.clock.now().wall.to_string();
        for number in 0..64 {
            let name = format!("false-{number}");
            let request = json!({
                "metadata": {
                    "name": name, "creationTimestamp": now,
                    "annotations": { "keyferry.dev/access": "tenant-a/apps" },
                },
                "spec": {
                    "signerName": "kubernetes.io/kube-apiserver-client", "username": user,
                },
            });
            bench.objects.put_foreign(&path(&request), request);
        }
        bench.reconcile_all(&process).await;
        let made = requests(&bench).len() - 64;
        assert_eq!(made, usize::from(!counts), "{user}");
        assert_eq!(
            message(&bench).contains("64 certificates of this namespace"),
            counts,
            "{user}: {}",
            message(&bench)
        );
    }
}

/// A user with false labels could make the list of requests too long, and no certificate was
/// requested.
#[tokio::test]
async fn a_list_of_requests_that_is_too_long_holds_no_certificate_up() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    let failing = Failing::Unreadable("list", "certificatesigningrequests");
    bench.objects.fail(Some(failing));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 1, "{}", message(&bench));
}

/// It was taken for a missing right to list requests, and the limit of a namespace was not kept.
#[tokio::test]
async fn a_hub_that_does_not_say_who_keyferry_is_has_no_certificate_requested() {
    let (bench, process) = begun(json!({ "maxLifetime": "1h" })).await;
    bench
        .facts
        .refuse(Some(|| HubError::Forbidden("no right".into())));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 0);
    assert_eq!(reason(&bench), "DeliveryForbidden");
    assert!(
        message(&bench).contains("system:basic-user"),
        "{}",
        message(&bench)
    );
    // A hub before Kubernetes 1.28 cannot say it.
    bench
        .facts
        .refuse(Some(|| HubError::NotFound("no such kind".to_owned())));
    bench.reconcile_all(&process).await;
    assert_eq!(requests(&bench).len(), 1);
}
