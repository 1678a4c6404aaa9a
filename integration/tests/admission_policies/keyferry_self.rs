//! keyferry-self: limits the requests of Keyferry's own account, even when it has more rights than
//! its manifests grant.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Subject, let_mint, shipped};
use serde_json::{Value, json};

use super::stage::{AUDIENCE, Stage, must_be_denied, must_pass, token_request};
use super::stage::{SECOND, mint};
use super::{people, stage};

const POLICY: &str = "keyferry-self";
const SECRETS: &str = "keyferry-self-secrets";
const CERTIFICATES: &str = "keyferry-self-certificates";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let own = format!("https://{}.keyferry.test", hub.name());
        let account = Subject::ServiceAccount("keyferry-system", "keyferry");
        // An admin has granted too much.
        let_mint(hub, "too-much", account, "kube-system", &["reconciler"]).await?;
        let_mint(
            hub,
            "too-much",
            account,
            "keyferry-system",
            &["keyferry", "keyferry-canary"],
        )
        .await?;
        let keyferry = people::keyferry(hub).await?;
        must_pass(
            "a pair",
            mint(&keyferry, "tenant-a", "reconciler", &[AUDIENCE]).await,
        )?;
        must_pass(
            "the inert audience",
            mint(&keyferry, "tenant-a", "other", &["keyferry.dev/inert"]).await,
        )?;
        for audiences in [
            &[] as &[&str],
            &[&own],
            &[&own, "x"],
            &["a", "b"],
            &[""],
            &["https://kubernetes.default.svc.cluster.local"],
        ] {
            let what = format!("{audiences:?} on {}", hub.name());
            must_be_denied(
                &what,
                mint(&keyferry, "tenant-a", "reconciler", audiences).await,
                POLICY,
            )?;
        }
        must_be_denied(
            "kube-system",
            mint(&keyferry, "kube-system", "reconciler", &["x"]).await,
            POLICY,
        )?;
        must_be_denied(
            "itself",
            mint(&keyferry, "keyferry-system", "keyferry", &["x"]).await,
            POLICY,
        )?;
        let mut long = token_request(&["x"]);
        long["spec"]["expirationSeconds"] = json!(86_401);
        let path = "/api/v1/namespaces/tenant-a/serviceaccounts/reconciler/token";
        must_be_denied("a longer life", keyferry.create(path, &long).await, POLICY)?;
        must_be_denied(
            "a dry run",
            keyferry
                .create(&format!("{path}?dryRun=All"), &token_request(&["a", "b"]))
                .await,
            POLICY,
        )?;
        // The canary tokens, with which Keyferry finds out whose an audience is.
        for audiences in [
            &[] as &[&str],
            &[&own],
            &[AUDIENCE],
            &[SECOND],
            &["keyferry.dev"],
        ] {
            must_pass(
                "the canary",
                mint(&keyferry, "keyferry-system", "keyferry-canary", audiences).await,
            )?;
        }
        // This policy restricts no other account, not even one with a similar name.
        for (namespace, name) in [("keyferry-system", "keyferry-2"), ("keyferry", "keyferry")] {
            let client = people::account(hub, namespace, name).await?;
            let_mint(
                hub,
                name,
                Subject::ServiceAccount(namespace, name),
                "tenant-a",
                &["other"],
            )
            .await?;
            must_pass("another", mint(&client, "tenant-a", "other", &[]).await)?;
        }
    }
    Ok(())
}

/// Keyferry creates and reads Secrets of tenants. It may not create a Secret that the hub's token
/// controller would fill with a token without expiry.
pub(super) async fn secrets(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let keyferry = people::keyferry(hub).await?;
        let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "update", "patch", "delete"] }]);
        people::allow(
            hub,
            "tenant-a",
            "keyferry-secrets",
            ("keyferry-system", "keyferry"),
            rules.clone(),
        )
        .await?;
        let engineer = people::with_rules(hub, "tenant-a", "secret-writer", rules).await?;
        let path = "/api/v1/namespaces/tenant-a/secrets";
        let secret = |name: &str, of_type: &str| {
            let annotations = json!({ "kubernetes.io/service-account.name": "reconciler" });
            let metadata = json!({ "name": name, "annotations": annotations });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": of_type, "data": { "x": "eA==" } })
        };
        stage::until("self-secrets holds", || async {
            let asked = keyferry
                .create(
                    &format!("{path}?dryRun=All"),
                    &secret("tried", "kubernetes.io/service-account-token"),
                )
                .await;
            stage::denied_by(asked, SECRETS)
        })
        .await?;
        let (lasting, bootstrap) = (
            "kubernetes.io/service-account-token",
            "bootstrap.kubernetes.io/token",
        );
        for of_type in [lasting, bootstrap] {
            must_be_denied(
                of_type,
                keyferry.create(path, &secret("lasting", of_type)).await,
                SECRETS,
            )?;
            must_be_denied(
                "a dry run",
                keyferry
                    .create(&format!("{path}?dryRun=All"), &secret("lasting", of_type))
                    .await,
                SECRETS,
            )?;
            let applied = keyferry
                .apply(&format!("{path}/lasting"), &secret("lasting", of_type))
                .await;
            must_be_denied("an apply", applied, SECRETS)?;
        }
        // The types that Keyferry writes pass. A token Secret of another owner may not be changed
        // to another account.
        for of_type in ["Opaque", "cluster.x-k8s.io/secret"] {
            let name = of_type.to_lowercase().replace(['.', '/'], "-");
            must_pass(
                of_type,
                keyferry.create(path, &secret(&name, of_type)).await,
            )?;
        }
        must_pass(
            "an engineer",
            engineer.create(path, &secret("theirs", lasting)).await,
        )?;
        let to_another = json!({ "metadata": { "annotations": { "kubernetes.io/service-account.name": "other" } } });
        must_be_denied(
            "another's name",
            keyferry.patch(&format!("{path}/theirs"), &to_another).await,
            SECRETS,
        )?;
    }
    Ok(())
}

/// Keyferry requests client certificates of the hub's apiserver for its deliveries. It may request
/// no other certificate, whoever would approve it.
pub(super) async fn certificates(stage: Arc<Stage>) -> TestResult {
    let rights = shipped("examples/install/client-certificates/requester.yaml");
    for hub in &stage.hubs {
        apply_manifests(hub, &[&rights]).await?;
        let keyferry = people::keyferry(hub).await?;
        let rules = json!([{ "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"] }]);
        let engineer = people::with_cluster_rules(hub, "requester", rules).await?;
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All";
        let good = certificate_request()?;
        stage::until("self-certificates holds", || async {
            let mut other = good.clone();
            other["spec"]["signerName"] = json!("example.com/signer");
            stage::denied_by(keyferry.create(path, &other).await, CERTIFICATES)
        })
        .await?;
        must_pass("its own request", keyferry.create(path, &good).await)?;
        let wrong: [(&str, Value); 11] = [
            ("signerName", json!("kubernetes.io/kubelet-serving")),
            (
                "signerName",
                json!("kubernetes.io/kube-apiserver-client-kubelet"),
            ),
            ("signerName", json!("example.com/signer")),
            ("usages", json!(["client auth"])),
            ("usages", json!(["digital signature"])),
            ("usages", json!(["client auth", "server auth"])),
            ("usages", json!(["client auth", "key encipherment"])),
            (
                "usages",
                json!(["client auth", "digital signature", "key encipherment"]),
            ),
            ("expirationSeconds", Value::Null),
            ("expirationSeconds", json!(86_401)),
            ("expirationSeconds", json!(31_536_000)),
        ];
        for (field, value) in wrong {
            let what = format!("{field} {value} on {}", hub.name());
            let mut request = good.clone();
            request["spec"][field] = value;
            must_be_denied(&what, keyferry.create(path, &request).await, CERTIFICATES)?;
            if field != "signerName" {
                must_pass(&what, engineer.create(path, &request).await)?;
            }
        }
        let mut of_none = good.clone();
        of_none["metadata"]["annotations"] = Value::Null;
        let asked = keyferry.create(path, &of_none).await;
        must_be_denied("for no access", asked, CERTIFICATES)?;
    }
    Ok(())
}

/// A request as Keyferry makes them, except for its user, which no policy can read.
fn certificate_request() -> Result<Value, TestError> {
    let pem = shipped("broker/client/src/admission_policies/trial_request.pem");
    let spec = json!({
        "request": STANDARD.encode(std::fs::read(pem)?), "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth", "digital signature"], "expirationSeconds": 86_400,
    });
    let metadata = json!({ "name": "keyferry-tried", "annotations": { "keyferry.dev/access": "tenant-a/charts" } });
    Ok(
        json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": metadata, "spec": spec }),
    )
}
