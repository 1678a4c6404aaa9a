//! keyferry-self: limits the requests of Keyferry's own account, even when it has more rights than
//! its manifests grant.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Subject, let_mint, shipped};
use serde_json::{Value, json};

use super::stage::{AUDIENCE, KEYFERRY, Stage, must_be_denied, must_pass, token_request};
use super::stage::{SECOND, mint};
use super::{people, stage};

const POLICY: &str = "keyferry-self";
const SECRETS: &str = "keyferry-self-secrets";
const DELIVERIES: &str = "keyferry-self-deliveries";
const TARGETS: &str = "keyferry-self-targets";
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
        // The types that Keyferry writes pass.
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
        // A token Secret of another owner may not be changed to another account. Two policies
        // refuse that.
        let to_another = json!({ "metadata": { "annotations": { "kubernetes.io/service-account.name": "other" } } });
        let refused = keyferry.patch(&format!("{path}/theirs"), &to_another).await;
        let refused = refused.map(drop).map_err(|error| error.to_string());
        assert!(
            matches!(&refused, Err(text) if text.contains(SECRETS) || text.contains(DELIVERIES)),
            "{refused:?}"
        );
    }
    Ok(())
}

/// With `resourceNames` in ClusterRole keyferry-audiences, Keyferry gets a token for these audiences
/// alone, even if it lists another in the AudiencePairing.
pub(super) async fn audiences(stage: Arc<Stage>) -> TestResult {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/keyferry-audiences";
    for hub in &stage.hubs {
        let keyferry = people::keyferry(hub).await?;
        let asked = mint(&keyferry, "tenant-a", "reconciler", &["vault"]).await;
        must_pass("any audience, as shipped", asked)?;
        let named = json!([{
            "apiGroups": ["keyferry.dev"], "resources": ["audiences"], "verbs": ["mint"],
            "resourceNames": [AUDIENCE],
        }]);
        hub.admin().patch(role, &json!({ "rules": named })).await?;
        stage::until("the role is limited", || async {
            let asked = mint(&keyferry, "tenant-a", "reconciler", &["vault"]).await;
            stage::denied_by(asked, POLICY)
        })
        .await?;
        // Keyferry writes this object itself.
        stage::write_pairing(hub, &["vault".to_owned()]).await?;
        for audience in ["vault", "sts.amazonaws.com", SECOND] {
            let what = format!("{audience} on {}", hub.name());
            let asked = mint(&keyferry, "tenant-a", "reconciler", &[audience]).await;
            must_be_denied(&what, asked, POLICY)?;
        }
        for (account, audience) in [
            ("reconciler", AUDIENCE),
            ("reconciler", "keyferry.dev/inert"),
            ("other", "keyferry.dev/inert"),
        ] {
            let asked = mint(&keyferry, "tenant-a", account, &[audience]).await;
            must_pass(audience, asked)?;
        }
        let asked = mint(
            &keyferry,
            "keyferry-system",
            "keyferry-canary",
            &["vault-2"],
        )
        .await;
        must_pass("the canary", asked)?;
        let root = people::cluster_admin(hub).await?;
        let asked = mint(&root, "tenant-a", "other", &["sts.amazonaws.com"]).await;
        must_pass("another user", asked)?;
        let widened = keyferry.patch(role, &json!({ "rules": [] })).await;
        assert!(widened.is_err(), "Keyferry may not change its own role");
        stage::write_pairing(hub, &[]).await?;
        stage::apply(hub, &stage::admission_policy("rights")).await?;
        stage::until("the role is as shipped", || async {
            mint(&keyferry, "tenant-a", "reconciler", &["vault"])
                .await
                .is_ok()
        })
        .await?;
    }
    Ok(())
}

/// Keyferry may update and delete every Secret and ConfigMap of a bound namespace by RBAC. The
/// policy leaves it those that it delivered.
pub(super) async fn deliveries(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let (admin, keyferry) = (hub.admin(), people::keyferry(hub).await?);
        let access = owner(hub).await?;
        for namespace in ["tenant-a", "keyferry-system"] {
            let rules = json!([{
                "apiGroups": [""], "resources": ["secrets", "configmaps"],
                "verbs": ["create", "get", "update", "patch", "delete"],
            }]);
            let account = ("keyferry-system", "keyferry");
            people::allow(hub, namespace, "keyferry-deliveries", account, rules).await?;
        }
        let controller = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "name": "owner", "uid": access, "controller": true });
        let changed = |field: &str, value: Value| {
            let mut reference = controller.clone();
            reference[field] = value;
            json!([reference])
        };
        let foreign = [
            ("no-owner", json!([])),
            ("no-controller", changed("controller", json!(false))),
            ("another-kind", changed("kind", json!("Thing"))),
            (
                "another-group",
                changed("apiVersion", json!("example.com/v1")),
            ),
        ];
        let change = json!({ "data": { "x": "eQ==" } });
        let adopt = json!({ "metadata": { "ownerReferences": [controller] } });
        for (kind, plural) in [("Secret", "secrets"), ("ConfigMap", "configmaps")] {
            let path = format!("/api/v1/namespaces/tenant-a/{plural}");
            let object = |name: &str, owners: &Value| {
                let metadata = json!({ "name": name, "ownerReferences": owners });
                json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": { "x": "eA==" } })
            };
            for (name, owners) in &foreign {
                let what = format!("{plural}/{name} on {}", hub.name());
                let there = format!("{path}/{name}");
                admin.create(&path, &object(name, owners)).await?;
                stage::until("self-deliveries holds", || async {
                    let asked = keyferry
                        .patch(&format!("{there}?dryRun=All"), &change)
                        .await;
                    stage::denied_by(asked, DELIVERIES)
                })
                .await?;
                must_be_denied(&what, keyferry.patch(&there, &change).await, DELIVERIES)?;
                must_be_denied(&what, keyferry.patch(&there, &adopt).await, DELIVERIES)?;
                let whole = object(name, &json!([controller]));
                must_be_denied(&what, keyferry.replace(&there, &whole).await, DELIVERIES)?;
                must_be_denied(&what, keyferry.delete(&there).await, DELIVERIES)?;
                must_pass("its owner", admin.patch(&there, &change).await)?;
            }
            let ours = format!("{path}/ours-{plural}");
            let delivered = object(&format!("ours-{plural}"), &json!([controller]));
            must_pass("a delivery", keyferry.create(&path, &delivered).await)?;
            must_pass("its change", keyferry.patch(&ours, &change).await)?;
            must_pass("its deletion", keyferry.delete(&ours).await)?;
        }
        // Its own records, by name and only in its own namespace.
        for (namespace, plural, name, may) in [
            ("keyferry-system", "secrets", "keyferry-keys", true),
            ("keyferry-system", "secrets", "keyferry-issuer-prod", true),
            ("keyferry-system", "secrets", "prod-ca", false),
            ("keyferry-system", "secrets", "keyferry-seal", false),
            ("keyferry-system", "configmaps", "keyferry-keys", false),
            ("tenant-a", "secrets", "keyferry-keys", false),
            ("tenant-a", "secrets", "keyferry-issuer-prod", false),
        ] {
            let what = format!("{plural}/{name} in {namespace} on {}", hub.name());
            let kind = if plural == "secrets" {
                "Secret"
            } else {
                "ConfigMap"
            };
            let path = format!("/api/v1/namespaces/{namespace}/{plural}");
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
            admin.create(&path, &object).await?;
            let there = format!("{path}/{name}");
            let written = keyferry.patch(&there, &change).await;
            match may {
                true => drop(must_pass(&what, written)?),
                false => must_be_denied(&what, written, DELIVERIES)?,
            }
            admin.delete(&there).await?;
        }
    }
    Ok(())
}

/// Creates a TargetAccess that can own objects, and returns its UID.
async fn owner(hub: &ControlPlane) -> Result<Value, TestError> {
    let path = format!("{KEYFERRY}/namespaces/tenant-a/targetaccesses/owner");
    let access = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": { "name": "owner", "namespace": "tenant-a" },
        "spec": { "targetClusterRef": { "name": "owned" }, "serviceAccountName": "reconciler" },
    });
    Ok(hub.admin().apply(&path, &access).await?["metadata"]["uid"].clone())
}

/// Keyferry may patch TargetClusters and TargetAccesses by RBAC. The policy leaves it its finalizer.
pub(super) async fn targets(stage: Arc<Stage>) -> TestResult {
    let verbs = json!(["create", "get", "update", "patch", "delete"]);
    let rules = json!([{
        "apiGroups": ["keyferry.dev"], "resources": ["targetclusters", "targetaccesses"],
        "verbs": verbs,
    }]);
    let account = "system:serviceaccount:keyferry-system:keyferry";
    for hub in &stage.hubs {
        let keyferry = people::keyferry(hub).await?;
        people::with_cluster_rules(hub, "keyferry-objects", rules.clone()).await?;
        hub.bind_user_to_cluster_role(account, "keyferry-objects")
            .await?;
        hub.until_it_counts(Whom::User(account), "", &rules[0])
            .await?;
        owner(hub).await?;
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "owned" },
            "spec": { "address": "https://owned.example.com", "audience": "https://owned.example.com" },
        });
        let clusters = format!("{KEYFERRY}/targetclusters");
        hub.admin()
            .apply(&format!("{clusters}/owned"), &target)
            .await?;
        let access = format!("{KEYFERRY}/namespaces/tenant-a/targetaccesses/owner");
        for there in [format!("{clusters}/owned"), access.clone()] {
            let dry = format!("{there}?dryRun=All");
            stage::until("self-targets holds", || async {
                stage::denied_by(keyferry.delete(&dry).await, TARGETS)
            })
            .await?;
            let gone = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000" });
            for change in [
                json!({ "ownerReferences": [gone] }),
                json!({ "labels": { "x": "y" } }),
                json!({ "annotations": { "keyferry.dev/requestedAt": "now" } }),
                json!({ "finalizers": ["example.com/theirs"] }),
                json!({ "finalizers": ["foregroundDeletion", "keyferry.dev/drain"] }),
            ] {
                let what = format!("{change} of {there} on {}", hub.name());
                let change = json!({ "metadata": change });
                must_be_denied(&what, keyferry.patch(&dry, &change).await, TARGETS)?;
                must_be_denied(&what, keyferry.patch(&there, &change).await, TARGETS)?;
            }
            let finalizers = |names: &[&str]| json!({ "metadata": { "finalizers": names } });
            let ours = finalizers(&["keyferry.dev/drain"]);
            must_pass("its finalizer", keyferry.patch(&there, &ours).await)?;
            let both = finalizers(&["example.com/theirs", "keyferry.dev/drain"]);
            hub.admin().patch(&there, &both).await?;
            let emptied = keyferry.patch(&there, &finalizers(&[])).await;
            must_be_denied("another's finalizer", emptied, TARGETS)?;
            let theirs = finalizers(&["example.com/theirs"]);
            must_pass("without its own", keyferry.patch(&there, &theirs).await)?;
            hub.admin().patch(&there, &finalizers(&[])).await?;
        }
        let suspended = json!({ "spec": { "suspend": true } });
        let changed = keyferry.patch(&access, &suspended).await;
        must_be_denied("a tenant's spec", changed, TARGETS)?;
        let mut another = target.clone();
        another["metadata"]["name"] = json!("another");
        let created = keyferry
            .create(&format!("{clusters}?dryRun=All"), &another)
            .await;
        // It lacks the verbs for that too, which other policies ask for.
        assert!(created.is_err(), "Keyferry creates no TargetCluster");
        hub.admin().delete(&format!("{clusters}/owned")).await?;
    }
    Ok(())
}

/// `onboard` binds the right to mint to Keyferry's account. A status, which a stolen account could
/// write, does not choose its namespace.
pub(super) async fn a_status_steers_no_binding(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "misled" },
            "spec": { "address": "https://misled.example.com", "audience": "https://misled.example.com" },
        });
        let path = format!("{KEYFERRY}/targetclusters/misled");
        hub.admin().apply(&path, &target).await?;
        let status = json!({ "status": { "clusterResourceNamespace": "evil" } });
        hub.admin()
            .patch(&format!("{path}/status"), &status)
            .await?;
        let kubeconfig = hub.admin_kubeconfig().display().to_string();
        let command = [
            "onboard",
            "tenant",
            "tenant-misled",
            "--service-account",
            "reconciler",
            "--target",
            "misled",
            "--kubeconfig",
            &kubeconfig,
        ];
        let output = stage.binary.run(&command, &[]).await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            said.contains("keyferry-minter") && said.contains("keyferry-system"),
            "on {}: {said}",
            hub.name()
        );
        assert!(!said.contains("evil"), "on {}: {said}", hub.name());
        hub.admin().delete(&path).await?;
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
