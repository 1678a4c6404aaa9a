//! keyferry-self: what Keyferry's own account may ask for, with more rights than its manifests give it.

use std::sync::Arc;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{Subject, let_mint};
use serde_json::json;

use super::people;
use super::stage::{AUDIENCE, Stage, denied_by, must_be_denied, must_pass, token_request};
use super::stage::{SECOND, mint, until};

const POLICY: &str = "keyferry-self";
const SECRETS: &str = "keyferry-self-secrets";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let own = format!("https://{}.keyferry.test", hub.name());
        let account = Subject::ServiceAccount("keyferry-system", "keyferry");
        // Somebody granted too much.
        let_mint(hub, "too-much", account, "kube-system", &["reconciler"]).await?;
        let_mint(hub, "too-much", account, "keyferry-system", &["keyferry", "keyferry-canary"]).await?;
        let keyferry = people::keyferry(hub).await?;
        must_pass("a pair", mint(&keyferry, "tenant-a", "reconciler", &[AUDIENCE]).await)?;
        must_pass("the inert audience", mint(&keyferry, "tenant-a", "other", &["keyferry.dev/inert"]).await)?;
        for audiences in [&[] as &[&str], &[&own], &[&own, "x"], &["a", "b"], &[""], &["https://kubernetes.default.svc.cluster.local"]] {
            let what = format!("{audiences:?} on {}", hub.name());
            must_be_denied(&what, mint(&keyferry, "tenant-a", "reconciler", audiences).await, POLICY)?;
        }
        must_be_denied("kube-system", mint(&keyferry, "kube-system", "reconciler", &["x"]).await, POLICY)?;
        must_be_denied("itself", mint(&keyferry, "keyferry-system", "keyferry", &["x"]).await, POLICY)?;
        let mut long = token_request(&["x"]);
        long["spec"]["expirationSeconds"] = serde_json::json!(86_401);
        let path = "/api/v1/namespaces/tenant-a/serviceaccounts/reconciler/token";
        must_be_denied("a longer life", keyferry.create(path, &long).await, POLICY)?;
        must_be_denied("a dry run", keyferry.create(&format!("{path}?dryRun=All"), &token_request(&["a", "b"])).await, POLICY)?;
        no_token_by_a_secret(hub, &keyferry).await?;
        // The canary, by which it finds out whose an audience is.
        for audiences in [&[] as &[&str], &[&own], &[AUDIENCE], &[SECOND], &["keyferry.dev"]] {
            must_pass("the canary", mint(&keyferry, "keyferry-system", "keyferry-canary", audiences).await)?;
        }
        // Nobody else is held by this one, nor an account of a like name.
        for (namespace, name) in [("keyferry-system", "keyferry-2"), ("keyferry", "keyferry")] {
            let client = people::account(hub, namespace, name).await?;
            let_mint(hub, name, Subject::ServiceAccount(namespace, name), "tenant-a", &["other"]).await?;
            must_pass("another", mint(&client, "tenant-a", "other", &[]).await)?;
        }
    }
    Ok(())
}

/// The hub fills in a Secret of one type with a token of its own that never ends.
async fn no_token_by_a_secret(hub: &ControlPlane, keyferry: &RestClient) -> TestResult {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant-a";
    let metadata = json!({ "name": "keyferry-secrets" });
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "update"] }]);
    let subject = json!({ "kind": "ServiceAccount", "name": "keyferry", "namespace": "keyferry-system" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keyferry-secrets" });
    hub.admin().create(&format!("{rbac}/roles"), &json!({ "metadata": metadata, "rules": rules })).await?;
    hub.admin().create(&format!("{rbac}/rolebindings"), &json!({ "metadata": metadata, "roleRef": role, "subjects": [subject] })).await?;
    let secret = |name: &str, secret_type: &str| {
        let annotations = json!({ "kubernetes.io/service-account.name": "other" });
        json!({ "metadata": { "name": name, "annotations": annotations }, "type": secret_type })
    };
    let path = "/api/v1/namespaces/tenant-a/secrets";
    let legacy = secret("legacy", "kubernetes.io/service-account-token");
    until("it is denied", || async { denied_by(keyferry.create(&format!("{path}?dryRun=All"), &legacy).await, SECRETS) }).await?;
    must_be_denied("a token of the hub's, by a Secret", keyferry.create(path, &legacy).await, SECRETS)?;
    for secret_type in ["Opaque", "cluster.x-k8s.io/secret", "keyferry.dev/issuer-keys"] {
        let name = secret_type.replace('/', "-").to_ascii_lowercase();
        must_pass(secret_type, keyferry.create(path, &secret(&name, secret_type)).await)?;
    }
    Ok(())
}
