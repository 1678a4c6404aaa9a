//! Consumers of the delivered Secret: the kubeconfig in it, byte for byte, in the Kubernetes
//! clients of Python and JavaScript.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{NotStarted, TestError, TestResult};
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, renew_with_lifetime, secret_path};
use serde_json::{Value, json};
use tokio::process::Command;

use super::written::open_target;

const CLIENTS: [Client; 2] = [Client::PythonKubernetes, Client::JavaScriptKubernetes];
const TENANT: &str = "tenant-a";
const SECRET: &str = "languages-kubeconfig";
const LIMIT: Duration = Duration::from_secs(60);

/// Starts the hub and installs the clients if this machine can, because that takes longer than a
/// test may. Otherwise the test that needs them reports it.
pub(crate) async fn start() -> Result<OnHub, NotStarted> {
    let world = OnHub::start().await?;
    for client in CLIENTS {
        let _ = world.ground.parts().install(client).await;
    }
    Ok(world)
}

pub(crate) async fn the_secrets_kubeconfig_in_python_and_javascript(
    world: Arc<OnHub>,
) -> TestResult {
    open_target(&world, "target-a", &json!({})).await?;
    let deliveries = json!({ "deliveries": [{ "name": "clients", "type": "KubeConfigSecret" }] });
    world
        .put_access(TENANT, "languages", "target-a", &deliveries)
        .await?;
    world
        .until_access(TENANT, "languages", "Ready", "True", "Ready")
        .await?;
    let reader = reader(&world).await?;
    let folder = tempfile::tempdir()?;

    let (first, first_file) = taken(&reader, folder.path(), "first").await?;
    for client in CLIENTS {
        assert_eq!(
            who_is(&world, client, &first_file).await?,
            at_target(&first),
            "{client:?}"
        );
    }

    // Renewed early, with another token: a consumer that re-reads the Secret has the new one.
    renew_with_lifetime(&world.hub, TENANT, "languages", SECRET, "2h").await?;
    let path = secret_path(TENANT, SECRET);
    world
        .until(&path, "with another token", |secret| {
            token_id(secret) != first
        })
        .await?;
    let (second, second_file) = taken(&reader, folder.path(), "second").await?;
    assert_ne!(first, second);
    for client in CLIENTS {
        assert_eq!(
            who_is(&world, client, &second_file).await?,
            at_target(&second),
            "{client:?}"
        );
        assert_eq!(
            who_is(&world, client, &first_file).await?,
            at_target(&first),
            "{client:?}: what was read before is good until its end"
        );
    }

    // The clients depend on the token and the CA in the file: with another value for either one
    // they fail.
    let text = std::fs::read_to_string(&second_file)?;
    let config: Value = serde_saphyr::from_str(&text)?;
    let token = config["users"][0]["user"]["token"]
        .as_str()
        .ok_or("no token in the kubeconfig")?;
    let ca = config["clusters"][0]["cluster"]["certificate-authority-data"]
        .as_str()
        .ok_or("no CA in the kubeconfig")?;
    let (no_token, others_ca) = (
        token.chars().rev().collect::<String>(),
        STANDARD.encode(world.hub.ca_pem()),
    );
    for (what, changed, said) in [
        ("token", text.replace(token, &no_token), "401"),
        ("CA", text.replace(ca, &others_ca), "certificate"),
    ] {
        std::fs::write(&second_file, changed)?;
        for client in CLIENTS {
            let output = run(&world, client, &second_file).await?;
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && why.contains(said),
                "{client:?} with another {what}: {why}"
            );
        }
    }
    Ok(())
}

/// The identity that runs the clients: an account of the tenant that may read only this one Secret
/// on the hub.
async fn reader(world: &OnHub) -> Result<RestClient, TestError> {
    let (hub, name) = (&world.hub, "secret-reader");
    let (api, collection) = (
        "rbac.authorization.k8s.io",
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}"),
    );
    hub.create_service_account(TENANT, name).await?;
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"] }]);
    let named = json!({ "name": name, "namespace": TENANT });
    let role = json!({ "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": named, "rules": rules });
    hub.admin()
        .apply(&format!("{collection}/roles/{name}"), &role)
        .await?;
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": named,
        "roleRef": { "apiGroup": api, "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": TENANT }],
    });
    hub.admin()
        .apply(&format!("{collection}/rolebindings/{name}"), &binding)
        .await?;
    let reader = hub.as_bearer(&hub.token_request(TENANT, name, &[], 600).await?.token)?;
    let path = secret_path(TENANT, SECRET);
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while reader
        .get(&path)
        .await
        .is_err_and(|error| error.status() == Some(403))
    {
        assert!(
            tokio::time::Instant::now() < limit,
            "the binding does not count"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The account whose token is in the Secret does not thereby get the right to read the Secret.
    let other = hub.as_bearer(&hub.token_request(TENANT, RECONCILER, &[], 600).await?.token)?;
    assert_eq!(
        other
            .get(&path)
            .await
            .err()
            .and_then(|error| error.status()),
        Some(403)
    );
    Ok(reader)
}

/// Writes the Secret's key `value` unchanged to a file, and returns the ID of its token.
async fn taken(
    reader: &RestClient,
    folder: &Path,
    name: &str,
) -> Result<(String, PathBuf), TestError> {
    let secret = reader.get(&secret_path(TENANT, SECRET)).await?;
    let bytes = STANDARD.decode(
        secret["data"]["value"]
            .as_str()
            .ok_or("the Secret has no value")?,
    )?;
    let file = folder.join(name);
    std::fs::write(&file, bytes)?;
    Ok((token_id(&secret), file))
}

fn token_id(secret: &Value) -> String {
    secret["metadata"]["annotations"]["keyferry.dev/token-id"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The user name that the target gives the tenant's ServiceAccount, and the ID of its token.
fn at_target(token_id: &str) -> (String, String) {
    (
        format!("hub:system:serviceaccount:{TENANT}:{RECONCILER}"),
        format!("JTI={token_id}"),
    )
}

/// The identity that the target sees for this client.
async fn who_is(
    world: &OnHub,
    client: Client,
    kubeconfig: &Path,
) -> Result<(String, String), TestError> {
    let output = run(world, client, kubeconfig).await?;
    if !output.status.success() {
        return Err(format!("{client:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let user: Value = serde_json::from_slice(&output.stdout)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((
        text(&user["username"]),
        text(&user["extra"]["authentication.kubernetes.io/credential-id"][0]),
    ))
}

/// Runs a client with only PATH from the environment: no other kubeconfig, no proxy.
async fn run(world: &OnHub, client: Client, kubeconfig: &Path) -> Result<Output, TestError> {
    let installed = world.ground.parts().install(client).await?;
    let mut command = Command::new(&installed.program);
    command.args(&installed.arguments);
    if client == Client::JavaScriptKubernetes {
        command.arg("kubeconfig");
    }
    command
        .arg(kubeconfig)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(tokio::time::timeout(LIMIT, command.output()).await??)
}
