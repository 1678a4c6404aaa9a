//! Tests the inputs that each credential reads, by each scheme, and the answer to other requests.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::exchange_form;
use keyferry_keys::testing::client_certificates::valid;
use rcgen::CertificateParams;
use serde_json::Value;

use super::stage::{Stage, authority, basic, bearer, cluster_path, reader_uri};

/// Every path of two clusters and two namespaces.
fn paths() -> Vec<(&'static str, String)> {
    let mut paths = Vec::new();
    for target in ["prod-a", "prod-b"] {
        for view in ["cluster", "accesses", "platform-components"] {
            paths.push((target, cluster_path(target, view)));
        }
    }
    for namespace in ["tenant-a", "tenant-b"] {
        paths.push((
            namespace,
            format!("/api/v2/flux/namespaces/{namespace}/targets"),
        ));
    }
    paths
}

/// What each credential reads, by every scheme.
fn reads() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("prod-a", vec!["prod-a"]),
        ("prod-b", vec!["prod-b"]),
        ("team-a", vec!["tenant-a"]),
        ("platform", vec!["prod-a", "prod-b", "tenant-a", "tenant-b"]),
    ]
}

pub(super) async fn each_reads_its_own(stage: Arc<Stage>) -> TestResult {
    let unknown = stage
        .read("platform", &cluster_path("unknown", "cluster"))
        .await?;
    assert_eq!(unknown.status, 404);
    for (credential, own) in reads() {
        let token = stage.token(credential);
        for header in [bearer(token), basic(credential, token)] {
            for (of, path) in paths() {
                let reply = stage.get(&path, std::slice::from_ref(&header)).await?;
                if own.contains(&of) {
                    assert_eq!(reply.status, 200, "{credential} {path}: {reply:?}");
                    let body: Value = serde_json::from_str(&reply.body)?;
                    assert!(body["inputs"].is_array(), "{path}: {body}");
                } else {
                    assert_eq!(reply, unknown, "{credential} {path}");
                }
            }
        }
    }
    for (credential, own) in reads() {
        let certificate = stage.readers.issue(&reader_uri(credential), |_| {});
        let client = stage.client(&certificate)?;
        for (of, path) in paths() {
            let reply = stage.get_by(&client, &path, &[]).await?;
            if own.contains(&of) {
                assert_eq!(reply.status, 200, "{credential} {path}: {reply:?}");
            } else {
                assert_eq!(reply, unknown, "{credential} {path}");
            }
        }
    }
    let named = stage
        .broker
        .audit()?
        .into_iter()
        .filter(|record| record["route"] == "inputs" && record["inputCredential"] == "team-a");
    let (granted, denied): (Vec<_>, Vec<_>) =
        named.partition(|record| record["decision"] == "granted");
    assert!(granted.iter().all(|record| record["reason"] == "Ready"));
    assert!(
        denied
            .iter()
            .all(|record| record["reason"] == "InputsNotGranted")
    );
    assert!(
        granted.len() >= 2 && denied.len() >= 14,
        "{granted:?} {denied:?}"
    );
    Ok(())
}

pub(super) async fn bad_ones_get_one_answer(stage: Arc<Stage>) -> TestResult {
    let path = cluster_path("prod-a", "cluster");
    let (good, other) = (stage.token("prod-a"), stage.token("prod-b"));
    let first = stage.get(&path, &[]).await?;
    assert_eq!(first.status, 401);
    let changed = |at: usize| {
        let mut token = good.to_owned();
        let last = if token.get(at..=at) == Some("A") {
            "B"
        } else {
            "A"
        };
        token.replace_range(at..=at, last);
        token
    };
    let caller = stage
        .hub
        .token_request("tenant-a", "reconciler", &["keyferry.dev"], 600)
        .await?
        .token;
    let bad = [
        vec![bearer("")],
        vec![bearer("x")],
        vec![bearer(&changed(20))],
        vec![bearer(&changed(good.len() - 1))],
        vec![bearer(&caller)],
        vec![basic("prod-b", good)],
        vec![basic("prod-a", other)],
        vec![basic("", good)],
        vec![basic("prod-a", "")],
        vec![format!("Digest {good}")],
        vec![good.to_owned()],
        vec![bearer(good), bearer(good)],
        vec![bearer(good), bearer("x")],
        vec![String::new()],
    ];
    for target in ["prod-a", "unknown"] {
        for values in &bad {
            let reply = stage.get(&cluster_path(target, "cluster"), values).await?;
            assert_eq!(reply, first, "{values:?}");
        }
    }
    for path in [
        "/api/v2/flux/clusters/prod-a.fleet.test/%63luster",
        "/api/v2/flux/clusters/PROD-A.fleet.test/cluster",
        "/api/v2/flux/clusters/prod-a%2efleet.test/cluster",
        "/api/v2/flux/namespaces/tenant-a%2f../targets",
    ] {
        let reply = stage.read("platform", path).await?;
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
    }
    let with_query = stage.read("prod-a", &format!("{path}?token=x")).await?;
    assert_eq!(with_query.status, 400);
    let log = stage.broker.log()?;
    for token in [good, other, stage.token("platform")] {
        assert!(!log.contains(token), "a token is in the log");
    }
    Ok(())
}

/// Certificates that identify no reader, and one beside a token, get the answer of a bad token.
pub(super) async fn bad_certificates_get_the_same_answer(stage: Arc<Stage>) -> TestResult {
    let path = cluster_path("prod-a", "cluster");
    let first = stage.get(&path, &[]).await?;
    assert_eq!(first.status, 401);
    let uri = reader_uri("prod-a");
    let stranger = authority("readers");
    let now = Timestamp::now();
    let long = |params: &mut CertificateParams| valid(params, now, -60, 86_400);
    let bad = [
        ("another CA", stranger.issue(&uri, |_| {})),
        (
            "the CA of another credential",
            stage.rotated.issue(&uri, |_| {}),
        ),
        (
            "another URI",
            stage.readers.issue(&reader_uri("prod"), |_| {}),
        ),
        ("more than 24 hours", stage.readers.issue(&uri, long)),
        (
            "no clientAuth",
            stage
                .readers
                .issue(&uri, |params| params.extended_key_usages.clear()),
        ),
    ];
    for (name, certificate) in bad {
        let client = stage.client(&certificate)?;
        for path in [path.as_str(), &cluster_path("unknown", "cluster")] {
            assert_eq!(stage.get_by(&client, path, &[]).await?, first, "{name}");
        }
    }
    let client = stage.client(&stage.readers.issue(&uri, |_| {}))?;
    assert_eq!(stage.get_by(&client, &path, &[]).await?.status, 200);
    let beside = stage
        .get_by(&client, &path, &[bearer(stage.token("prod-a"))])
        .await?;
    assert_eq!(beside, first, "a certificate and a token");
    let faults: Vec<Value> = stage
        .broker
        .audit()?
        .into_iter()
        .filter(|record| record["route"] == "inputs")
        .map(|mut record| record["callerCertificate"]["fault"].take())
        .collect();
    for fault in ["OtherAuthority", "OtherUri", "TooLong", "NoClientAuth"] {
        assert!(
            faults.iter().any(|found| found == fault),
            "{fault}: {faults:?}"
        );
    }
    Ok(())
}

/// A credential is not a subject token, and gets no kubeconfig.
pub(super) async fn no_token_for_a_credential(stage: Arc<Stage>) -> TestResult {
    for credential in ["team-a", "platform"] {
        let token = stage.token(credential);
        let form = exchange_form(token, "tenant-a/a");
        let answer = stage.broker.post_form(&form).await?;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let path = "/v1/namespaces/tenant-a/accesses/a/kubeconfig";
        for header in [bearer(token), basic(credential, token)] {
            assert_eq!(stage.get(path, &[header]).await?.status, 401);
        }
        let certificate = stage.readers.issue(&reader_uri(credential), |_| {});
        let client = stage.client(&certificate)?;
        assert_eq!(stage.get_by(&client, path, &[]).await?.status, 401);
        let answer = client
            .post(format!("{}/v1/token", stage.broker.api_url()))
            .header("content-type", "application/x-www-form-urlencoded")
            .body("grant_type=client_credentials&audience=tenant-a%2Fa")
            .send()
            .await?;
        assert_eq!(answer.status().as_u16(), 400);
        let body = answer.text().await?;
        assert!(
            body.contains("the subject_token was not accepted"),
            "{body}"
        );
    }
    Ok(())
}
