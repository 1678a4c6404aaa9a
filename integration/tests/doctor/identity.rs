//! Tests that the output of `whoami` and `can-i` is true at a real target.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::federation::{AUDIENCE, Federation};

const USER: &str = "hub:system:serviceaccount:tenant-a:developer";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn run(
    it: &Federation,
    arguments: &[&str],
    token: &str,
) -> Result<(Option<i32>, String), TestError> {
    let output = it.ground.binary().run(arguments, &[]).await?;
    let (text, errors) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    for part in token.split('.').filter(|part| part.len() > 8) {
        assert!(
            !text.contains(part) && !errors.contains(part),
            "a token is printed"
        );
    }
    Ok((
        output.status.code(),
        if text.is_empty() { errors } else { text },
    ))
}

/// Creates a role and binds it to a user that only these tests use. The order of the suite's tests
/// is open, and others need a user without rights.
async fn bind(it: &Federation, place: &str, role: &Value) -> TestResult {
    let name = role["metadata"]["name"]
        .as_str()
        .ok_or("a role without a name")?;
    let kind = role["kind"].as_str().ok_or("a role without a kind")?;
    let plural = format!("{}s", kind.to_lowercase());
    it.target
        .admin()
        .create(&format!("{RBAC}{place}/{plural}"), role)
        .await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
    });
    it.target
        .admin()
        .create(
            &format!("{RBAC}{place}/{}bindings", kind.to_lowercase()),
            &binding,
        )
        .await?;
    Ok(())
}

pub(super) async fn whoami_and_can_i(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    federation
        .target
        .restart_with_authentication_config(&federation.configuration)
        .await?;
    federation.until_initialized().await?;
    let token = federation.token("developer", &[AUDIENCE]).await?;
    let path = |name: &str, content: &str| {
        federation
            .file(name, content)
            .map(|path| path.display().to_string())
    };
    let (token_file, file) = (
        path("who-token", &token)?,
        path("who-config.yaml", &federation.configuration)?,
    );
    let flags = [
        federation.target_flags(&federation.target)?,
        vec!["--target-token-file".to_owned(), token_file],
    ]
    .concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let ask = async |first: &[&str]| run(federation, &[first, &flags[..]].concat(), &token).await;

    let (code, text) = ask(&["whoami", "-o", "json", "--auth-config", &file]).await?;
    let answer: Value = serde_json::from_str(&text)?;
    assert_eq!(
        (
            code,
            answer["user"]["username"].as_str(),
            &answer["differences"]
        ),
        (Some(0), Some(USER), &json!([])),
        "{answer:#}"
    );
    assert_eq!(answer["predicted"]["user"]["username"], USER);
    let other = path(
        "who-other.yaml",
        &federation
            .configuration
            .replace("prefix: \"hub:\"", "prefix: \"other:\""),
    )?;
    let (code, text) = ask(&["whoami", "-o", "json", "--auth-config", &other]).await?;
    let answer: Value = serde_json::from_str(&text)?;
    assert_eq!(
        (code, &answer["differences"]),
        (Some(1), &json!(["username"])),
        "{answer:#}"
    );
    let (code, text) = ask(&["whoami", "-o", "json", "--hub-name", "elsewhere"]).await?;
    let answer: Value = serde_json::from_str(&text)?;
    assert_eq!(
        (
            code,
            &answer["differences"],
            &answer["problems"][0]["reason"]
        ),
        (Some(1), &json!(["prefix"]), &json!("IdentityUnexpected"))
    );
    let (code, text) = ask(&["whoami", "--as", "apps:deployer"]).await?;
    assert!(
        code == Some(1) && text.contains("ImpersonationDenied"),
        "{text}"
    );
    let impersonator = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "impersonator" },
        "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"], "verbs": ["impersonate"] }],
    });
    bind(federation, "", &impersonator).await?;
    let answer =
        until(async || ask(&["whoami", "-o", "json", "--as", "apps:deployer"]).await).await?;
    assert_eq!(
        serde_json::from_str::<Value>(&answer)?["impersonated"]["username"],
        "system:serviceaccount:apps:deployer"
    );

    let (code, text) = ask(&["can-i", "get", "pods", "--target-namespace", "default"]).await?;
    let expected = format!(
        "no: {USER} may not get pods in default at {}",
        federation.target.url()
    );
    assert!(code == Some(1) && text.starts_with(&expected), "{text}");
    a_list_has_what_is_granted(federation, &flags, &token).await?;
    let folder = federation.ground.folder().join("apply");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("objects.yaml"), OBJECTS)?;
    let folder = folder.display().to_string();
    let apply = ["can-i", "apply", "-f", folder.as_str(), "-o", "json"];
    let (code, text) = ask(&apply).await?;
    let answer: Value = serde_json::from_str(&text)?;
    assert_eq!(
        (code, answer["undetermined"].as_array().map(Vec::len)),
        (Some(1), Some(1)),
        "{answer:#}"
    );
    assert_eq!(
        answer["missing"].as_array().map(Vec::len),
        Some(16),
        "four verbs for each of four objects: {answer:#}"
    );
    let bindings = answer["bindings"].as_array().ok_or("no bindings")?;
    assert!(
        bindings
            .iter()
            .all(|binding| binding["subjects"][0]["kind"] == "User"
                && binding["subjects"][0]["name"] == USER),
        "{answer:#}"
    );
    assert_eq!(
        bindings.len(),
        answer["roles"].as_array().map_or(0, Vec::len)
    );
    federation.target.create_namespace("apps").await?;
    for role in answer["roles"].as_array().ok_or("no roles")? {
        let place = role["metadata"]["namespace"]
            .as_str()
            .map_or(String::new(), |namespace| {
                format!("/namespaces/{namespace}")
            });
        bind(federation, &place, role).await?;
    }
    // The printed rights suffice, except for the kind that the target does not know.
    let known_objects = OBJECTS
        .split("---\n")
        .filter(|object| !object.contains("Unknown"))
        .collect::<Vec<_>>()
        .join("---\n");
    let known = path("known.yaml", &known_objects)?;
    until(async || ask(&["can-i", "apply", "-f", &known]).await).await?;
    let (code, _) = ask(&apply).await?;
    assert_eq!(
        code,
        Some(3),
        "a kind that the target does not serve is undetermined"
    );
    let built = federation.ground.folder().join("unbuilt");
    std::fs::create_dir_all(&built)?;
    std::fs::copy(&known, built.join("known.yaml"))?;
    let built = built.display().to_string();
    until(async || ask(&["can-i", "apply", "-f", &built]).await).await?;
    std::fs::write(
        format!("{built}/kustomization.yaml"),
        "namePrefix: other-\nresources: [known.yaml]\n",
    )?;
    let (code, text) = ask(&["can-i", "apply", "-f", &built, "-o", "json"]).await?;
    assert!(
        code == Some(3) && text.contains("kustomization.yaml is not built here"),
        "an overlay makes other objects: {code:?} {text}"
    );
    Ok(())
}

/// `can-i --list` in a namespace with a role, and in another one.
async fn a_list_has_what_is_granted(it: &Federation, flags: &[&str], token: &str) -> TestResult {
    let ask = async |first: &[&str]| run(it, &[first, flags].concat(), token).await;
    it.target.create_namespace("listed").await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "listed" },
        "rules": [
            { "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"] },
        ],
    });
    bind(it, "/namespaces/listed", &role).await?;
    let granted = ["can-i", "get", "deployments/scale"];
    let granted = [&granted[..], &["--target-namespace", "listed"]].concat();
    until(async || ask(&granted).await).await?;
    let (code, text) = ask(&["can-i", "--list", "--target-namespace", "listed"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let has = |text: &str, row: [&str; 3]| {
        let rows = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.into_iter().any(|line| line == row.join(" "))
    };
    for row in [
        ["RESOURCE", "NAMES", "VERBS"],
        ["deployments.apps/scale", "-", "get, patch"],
        ["secrets", "one", "get"],
        ["selfsubjectreviews.authentication.k8s.io", "-", "create"],
        ["/livez", "-", "get"],
    ] {
        assert!(has(&text, row), "{row:?}: {text}");
    }
    let (code, text) = ask(&["can-i", "--list"]).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("deployments.apps/scale"), "{text}");
    let (_, text) = ask(&["can-i", "--list", "-o", "json"]).await?;
    let document: Value = serde_json::from_str(&text)?;
    assert_eq!(document["schema"], "keyferry.dev/can-i-list/v1");
    assert_eq!(
        (&document["user"], &document["incomplete"]),
        (&json!(USER), &json!(false))
    );
    Ok(())
}

/// Waits, because the target's authorizer sees RBAC objects a little later than the API.
async fn until<F>(mut ask: impl FnMut() -> F) -> Result<String, TestError>
where
    F: Future<Output = Result<(Option<i32>, String), TestError>>,
{
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(15);
    loop {
        let (code, text) = ask().await?;
        if code == Some(0) {
            return Ok(text);
        }
        if std::time::Instant::now() > limit {
            return Err(format!("still {code:?}: {text}").into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

const OBJECTS: &str = "\
apiVersion: v1
kind: Namespace
metadata: { name: apps }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: apps }
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: things.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { kind: Thing, plural: things }
  versions: [{ name: v1 }]
---
apiVersion: example.com/v1
kind: Thing
metadata: { name: one, namespace: apps }
---
apiVersion: example.com/v1
kind: Unknown
metadata: { name: two }
";
