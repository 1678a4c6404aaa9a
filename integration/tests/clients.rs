//! What clients make of it: the kubeconfig in the real kubectl and in client-go, and Keyferry's own command line, through a server
//! and without one.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::parts::Part;
use keyferry_integration::pki::CertifiedKey;
use keyferry_integration::rbac::service_account_kubeconfig;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{Suite, TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, AUDIENCE_B, Subject, TENANT, World, caller_token, claims, let_mint, shipped};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// The tenant's ServiceAccount as the target names it.
const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";

fn main() -> ExitCode {
    Suite::new(World::start)
        .test("kubectl_takes_the_kubeconfig_as_it_is", kubectl_takes_the_kubeconfig_as_it_is)
        .test("client_go_takes_the_kubeconfig_as_it_is", client_go_takes_the_kubeconfig_as_it_is)
        .test("the_client_key_beside_the_ca_goes_nowhere", the_client_key_beside_the_ca_goes_nowhere)
        .test("a_token_by_the_command_line_through_a_server", a_token_by_the_command_line_through_a_server)
        .test("a_kubeconfig_by_the_command_line_through_a_server", a_kubeconfig_by_the_command_line_through_a_server)
        .test("exec_runs_the_command_and_leaves_nothing", exec_runs_the_command_and_leaves_nothing)
        .test("the_command_line_without_a_server", the_command_line_without_a_server)
        .test("without_a_server_the_users_own_rights_count", without_a_server_the_users_own_rights_count)
        .test("targets_lists_what_the_file_allows", targets_lists_what_the_file_allows)
        .test("errors_name_the_mend_and_nothing_secret", errors_name_the_mend_and_nothing_secret)
        .run()
}

async fn kubeconfig_file(world: &World) -> Result<(TempDir, PathBuf), TestError> {
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let answer = world.broker().kubeconfig_of(&caller, TENANT, "a").await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.headers.get("content-type").and_then(|value| value.to_str().ok()), Some("application/yaml"));
    assert_eq!(answer.headers.get("cache-control").and_then(|value| value.to_str().ok()), Some("no-store"));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    std::fs::write(&path, answer.body)?;
    Ok((folder, path))
}

async fn kubectl_takes_the_kubeconfig_as_it_is(world: Arc<World>) -> TestResult {
    let (_folder, path) = kubeconfig_file(&world).await?;
    let target = world.target_a();
    let output = target.kubectl_with(&path, &["auth", "whoami", "-o", "json"]).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let review: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(review["status"]["userInfo"]["username"], AT_TARGET);
    assert_eq!(review["status"]["userInfo"]["groups"], json!(["system:authenticated"]));

    // The target's own RBAC decides what this user may do: nothing, until somebody there binds it.
    let listing = ["get", "namespaces", "-o", "name"];
    let output = target.kubectl_with(&path, &listing).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("Forbidden") && said.contains(AT_TARGET), "{said}");
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "namespace-reader" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }],
    });
    target.admin().apply("/apis/rbac.authorization.k8s.io/v1/clusterroles/namespace-reader", &reader).await?;
    target.bind_user_to_cluster_role(AT_TARGET, "namespace-reader").await?;
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let output = target.kubectl_with(&path, &listing).await?;
        if output.status.success() {
            assert!(String::from_utf8_lossy(&output.stdout).contains("namespace/kube-system"));
            return Ok(());
        }
        assert!(Instant::now() < limit, "the binding does not count: {}", String::from_utf8_lossy(&output.stderr));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn client_go_takes_the_kubeconfig_as_it_is(world: Arc<World>) -> TestResult {
    let (_folder, path) = kubeconfig_file(&world).await?;
    let program = world.fleet().parts().locate(Part::ClientGo).await?;
    let output = Command::new(program).arg(path).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await??;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let user: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(user["username"], AT_TARGET);
    assert_eq!(user["groups"], json!(["system:authenticated"]));
    Ok(())
}

async fn the_client_key_beside_the_ca_goes_nowhere(world: Arc<World>) -> TestResult {
    let secret = world.hub().admin().get("/api/v1/namespaces/keyferry-system/secrets/target-a-ca").await?;
    let entry = |name: &str| -> Result<String, TestError> {
        Ok(String::from_utf8(STANDARD.decode(secret["data"][name].as_str().unwrap_or_default())?)?)
    };
    let (certificate, key, ca) = (entry("tls.crt")?, entry("tls.key")?, entry("ca.crt")?);
    // A key worth stealing: its certificate makes the target's admin.
    let pair = CertifiedKey { cert_pem: certificate.clone(), key_pem: key.clone(), cert_path: PathBuf::new(), key_path: PathBuf::new() };
    let thief = RestClient::with_certificate(&world.target_a().url(), world.target_a().ca_pem(), &pair)?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let user = thief.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?["status"]["userInfo"].take();
    assert!(user["groups"].as_array().is_some_and(|groups| groups.contains(&json!("system:masters"))), "{user}");

    let (_folder, path) = kubeconfig_file(&world).await?;
    let output = world.target_a().kubectl_with(&path, &["config", "view", "--raw", "-o", "json"]).await?;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let bundle = document["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap_or_default();
    let bundle = String::from_utf8(STANDARD.decode(bundle)?)?;
    assert_eq!(bundle.matches("BEGIN").count(), 1, "one CA certificate and nothing else: {bundle}");
    assert_eq!(base64_of(&bundle), base64_of(&ca));
    let user = document["users"][0]["user"].as_object().ok_or("a user")?;
    assert_eq!(user.keys().collect::<Vec<_>>(), ["token"]);

    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let exchange = world.broker().exchange(&caller, "tenant-a/a").await?;
    let denied = world.broker().exchange(&caller, "tenant-a/b").await?;
    let metrics = world.broker().http().get(format!("{}/metrics", world.broker().health_url())).send().await?.text().await?;
    let audit = world.broker().audit()?.iter().map(Value::to_string).collect::<String>();
    let everything = [std::fs::read_to_string(&path)?, bundle, exchange.body, denied.body, metrics, audit, world.broker().log()?];
    for pem in [&certificate, &key] {
        // As it is, and as base64 of the whole PEM, wherever in a text that begins. A certificate names its CA as the CA does itself.
        let own_lines = pem.lines().filter(|line| line.len() > 20 && !line.starts_with("-----") && !ca.contains(line));
        let lines: Vec<String> = own_lines.map(str::to_owned).collect();
        assert!(lines.len() > 1);
        let again = (0..3).map(|shift| {
            let encoded = STANDARD.encode(pem.get(shift..).unwrap_or_default());
            // The signature of the certificate, the end of the key: beginnings are all alike.
            encoded.get(encoded.len() - 140..encoded.len() - 80).unwrap_or_default().to_owned()
        });
        for needle in lines.into_iter().chain(again) {
            assert!(everything.iter().all(|text| !text.contains(&needle)), "{needle} left Keyferry");
        }
    }
    Ok(())
}

fn base64_of(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with("-----")).collect()
}

/// What a command said.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn keyferry(world: &World, args: &[&str], env: &[(&str, &str)]) -> Result<Said, TestError> {
    let output = world.binary().run(args, env).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

fn succeeded(said: Said) -> Result<String, TestError> {
    if said.code != Some(0) || !said.stderr.is_empty() {
        return Err(format!("exit {:?}: {}", said.code, said.stderr).into());
    }
    Ok(said.stdout)
}

/// The flags by which a command finds the server.
fn server(world: &World) -> [String; 4] {
    let ca = world.broker().ca_path().display().to_string();
    ["--server".to_owned(), world.broker().api_url(), "--certificate-authority".to_owned(), ca]
}

fn with<'a>(first: &[&'a str], further: &'a [String], last: &[&'a str]) -> Vec<&'a str> {
    first.iter().copied().chain(further.iter().map(String::as_str)).chain(last.iter().copied()).collect()
}

/// A file that holds the tenant's caller token, as a projected volume does.
async fn token_file(world: &World) -> Result<(TempDir, String), TestError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    std::fs::write(&path, caller_token(world.hub(), TENANT, ACCOUNT).await?)?;
    Ok((folder, path.display().to_string()))
}

fn is_for_target_a(token: &str) -> TestResult {
    let claims = claims(token.trim_end())?;
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("system:serviceaccount:tenant-a:reconciler"), &json!([AUDIENCE_A])));
    Ok(())
}

async fn a_token_by_the_command_line_through_a_server(world: Arc<World>) -> TestResult {
    let (server, (_folder, file)) = (server(&world), token_file(&world).await?);
    let by_flag = succeeded(keyferry(&world, &with(&["token", "tenant-a/a"], &server, &["--token-file", &file]), &[]).await?)?;
    is_for_target_a(&by_flag)?;
    assert_eq!(by_flag.lines().count(), 1);
    let env = [("KEYFERRY_TOKEN_FILE", file.as_str()), ("KEYFERRY_NAMESPACE", TENANT)];
    is_for_target_a(&succeeded(keyferry(&world, &with(&["token", "a"], &server, &[]), &env).await?)?)?;
    let env = [("KEYFERRY_SERVER", server[1].as_str()), ("KEYFERRY_CERTIFICATE_AUTHORITY", server[3].as_str()), env[0]];
    is_for_target_a(&succeeded(keyferry(&world, &["token", "a", "-n", TENANT], &env).await?)?)?;

    let json = with(&["token", "tenant-a/a", "-o", "json"], &server, &["--token-file", &file]);
    let answer: Value = serde_json::from_str(&succeeded(keyferry(&world, &json, &[]).await?)?)?;
    is_for_target_a(answer["token"].as_str().unwrap_or_default())?;
    assert!(answer["expiresInSeconds"].as_u64().is_some_and(|seconds| (3000..=3540).contains(&seconds)));

    // A person who may mint for the ServiceAccount, by a kubeconfig of the hub.
    world.hub().create_namespace_with_service_account("people", "deployer").await?;
    let_mint(world.hub(), "people", Subject::ServiceAccount("people", "deployer"), TENANT, &[ACCOUNT]).await?;
    let person = service_account_kubeconfig(world.hub(), "people", "deployer", 600).await?;
    let person = person.path().display().to_string();
    let minting = with(&["token", "tenant-a/a"], &server, &["--service-account", ACCOUNT, "--kubeconfig", &person]);
    is_for_target_a(&succeeded(keyferry(&world, &minting, &[]).await?)?)?;
    let minting = with(&["token", "tenant-a/a"], &server, &["--service-account", "default", "--kubeconfig", &person]);
    let said = failed(&world, &minting, &[]).await?;
    assert!(said.contains("minting a caller token for ServiceAccount tenant-a/default") && said.contains("cannot create"), "{said}");
    Ok(())
}

async fn a_kubeconfig_by_the_command_line_through_a_server(world: Arc<World>) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let document = keyferry(&world, &with(&["kubeconfig", "tenant-a/a"], &server, &["--token-file", &file]), &[]).await?;
    let path = folder.path().join("config");
    std::fs::write(&path, succeeded(document)?)?;
    assert_eq!(whoami(&world, &path).await?, AT_TARGET);
    Ok(())
}

async fn whoami(world: &World, kubeconfig: &Path) -> Result<String, TestError> {
    let output = world.target_a().kubectl_with(kubeconfig, &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

async fn exec_runs_the_command_and_leaves_nothing(world: Arc<World>) -> TestResult {
    let (server, (_folder, file)) = (server(&world), token_file(&world).await?);
    let temporary = tempfile::tempdir()?;
    let place = temporary.path().display().to_string();
    let env = [("TMPDIR", place.as_str()), ("KEYFERRY_TOKEN_FILE", file.as_str())];
    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?.display().to_string();
    let run = |command: &'static [&'static str]| keyferry_exec(&world, &server, command, &env);

    let last = ["--", kubectl.as_str(), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let said = keyferry(&world, &with(&["exec", "tenant-a/a"], &server, &last), &env).await?;
    assert_eq!(succeeded(said)?, AT_TARGET);

    let shown = succeeded(run(&["sh", "-c", "stat -c %a \"$KUBECONFIG\" \"$(dirname \"$KUBECONFIG\")\"; echo \"$KUBECONFIG\""]).await?)?;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.get(..2), Some(["600", "700"].as_slice()), "for this user alone");
    let path = lines.get(2).copied().unwrap_or_default();
    assert!(path.starts_with(&place), "the file was where temporary files belong: {path}");

    let said = run(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await?;
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(7), "out\n", "err\n"));
    let said = run(&["sh", "-c", "kill -s TERM $$"]).await?;
    assert_eq!(said.code, Some(128 + 15), "as a shell says it");
    let said = run(&["/no/such/program"]).await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(said.stderr.starts_with("error: starting /no/such/program"), "{}", said.stderr);

    let denied = with(&["exec", "tenant-a/b"], &server, &["--", "sh", "-c", "echo ran"]);
    let said = keyferry(&world, &denied, &env).await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "the command is not run without a credential");
    assert_eq!(std::fs::read_dir(temporary.path())?.count(), 0, "a file is left");
    Ok(())
}

async fn keyferry_exec(world: &World, server: &[String; 4], command: &[&str], env: &[(&str, &str)]) -> Result<Said, TestError> {
    keyferry(world, &with(&["exec", "tenant-a/a"], server, &[&["--"], command].concat()), env).await
}

/// The flags by which a command decides by itself.
fn direct(world: &World, kubeconfig: &Path) -> [String; 4] {
    let config = world.broker().config().display().to_string();
    ["--config".to_owned(), config, "--kubeconfig".to_owned(), kubeconfig.display().to_string()]
}

async fn the_command_line_without_a_server(world: Arc<World>) -> TestResult {
    let direct = direct(&world, world.hub().admin_kubeconfig());
    let before = world.broker().audit()?.len();
    is_for_target_a(&succeeded(keyferry(&world, &with(&["token", "tenant-a/a"], &direct, &[]), &[]).await?)?)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    let document = succeeded(keyferry(&world, &with(&["kubeconfig", "a", "-n", TENANT], &direct, &[]), &[]).await?)?;
    assert!(!document.contains("client-key") && !document.contains("exec:"), "the Secret's client key stays where it is");
    std::fs::write(&path, document)?;
    assert_eq!(whoami(&world, &path).await?, AT_TARGET);
    let kubectl = world.fleet().parts().locate(Part::Kubectl).await?.display().to_string();
    let last = ["--", kubectl.as_str(), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let said = keyferry(&world, &with(&["exec", "tenant-a/a"], &direct, &last), &[]).await?;
    assert_eq!(succeeded(said)?, AT_TARGET);
    // Other tests call the server meanwhile, but none of them through this file's accesses by this name.
    let written = world.broker().audit()?;
    assert!(written.iter().skip(before).all(|record| record["caller"] != "harness-admin"), "no server was asked");
    Ok(())
}

async fn without_a_server_the_users_own_rights_count(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    hub.create_namespace_with_service_account("people", "viewer").await?;
    // May read what the decision needs, and not mint.
    hub.bind_user_to_cluster_role("system:serviceaccount:people:viewer", "view").await?;
    let viewer = service_account_kubeconfig(hub, "people", "viewer", 600).await?;
    let direct_as_viewer = direct(&world, viewer.path());
    let limit = Instant::now() + Duration::from_secs(20);
    let said = loop {
        let said = failed(&world, &with(&["token", "tenant-a/a"], &direct_as_viewer, &[]), &[]).await?;
        // The binding takes a moment to count.
        if !said.contains("reading the ServiceAccount") || Instant::now() > limit {
            break said;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(said.contains("getting a token for tenant-a/a: MintForbidden: your own account may not create tokens"), "{said}");
    // The file decides first: what it does not allow is not minted for an admin either.
    let direct_as_admin = direct(&world, hub.admin_kubeconfig());
    let said = failed(&world, &with(&["token", "tenant-a/b"], &direct_as_admin, &[]), &[]).await?;
    assert!(said.contains("TargetNotGranted") && said.contains("`keyferry targets`"), "{said}");
    Ok(())
}

async fn targets_lists_what_the_file_allows(world: Arc<World>) -> TestResult {
    let config = world.broker().config().display().to_string();
    let table = succeeded(keyferry(&world, &["targets", "--config", &config], &[]).await?)?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let (a, b) = (world.target_a().url(), world.target_b().url());
    let expected = [
        vec!["NAMESPACE", "ACCESS", "SERVICEACCOUNT", "TARGET", "ADDRESS", "AUDIENCE", "ALLOWED"],
        vec![TENANT, "a", ACCOUNT, "target-a", &a, AUDIENCE_A, "yes"],
        vec![TENANT, "b", ACCOUNT, "target-b", &b, AUDIENCE_B, "no"],
    ];
    assert_eq!(rows, expected);
    let list = succeeded(keyferry(&world, &["targets", "--config", &config, "-n", TENANT, "-o", "json"], &[]).await?)?;
    let list: Value = serde_json::from_str(&list)?;
    let first = json!({
        "namespace": TENANT, "access": "a", "serviceAccount": ACCOUNT, "target": "target-a",
        "address": a, "audience": AUDIENCE_A, "allowed": "yes",
    });
    assert_eq!((list.as_array().map(Vec::len), &list[0]), (Some(2), &first));
    let none = succeeded(keyferry(&world, &["targets", "--config", &config, "-n", "nobody", "-o", "json"], &[]).await?)?;
    assert_eq!(serde_json::from_str::<Value>(&none)?, json!([]));
    let example = shipped("examples/in-cluster/config.yaml").display().to_string();
    assert!(succeeded(keyferry(&world, &["targets", "--config", &example], &[]).await?)?.contains("https://prod.example.com"));
    Ok(())
}

/// Runs what must fail, and gives back what it said for people.
async fn failed(world: &World, args: &[&str], env: &[(&str, &str)]) -> Result<String, TestError> {
    let said = keyferry(world, args, env).await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{args:?}: {}", said.stderr);
    let first = said.stderr.lines().next().unwrap_or_default();
    let text = first.strip_prefix("error: ").ok_or_else(|| format!("no error is named: {}", said.stderr))?;
    assert!(!text.ends_with('.') && !said.stderr.contains("panicked"), "{}", said.stderr);
    Ok(said.stderr)
}

async fn errors_name_the_mend_and_nothing_secret(world: Arc<World>) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let [_, url, _, ca] = &server;
    let caller = std::fs::read_to_string(&file)?;
    let wrong_audience = folder.path().join("wrong-audience").display().to_string();
    std::fs::write(&wrong_audience, world.hub().token_request(TENANT, ACCOUNT, &[AUDIENCE_A], 600).await?.token)?;
    let broken = folder.path().join("broken").display().to_string();
    std::fs::write(&broken, format!("apiVersion: v1\nkind: Config\nusers:\n- name: x\n  user: {{token: {caller}\n"))?;
    let admin = world.hub().admin_kubeconfig().display().to_string();
    let config = world.broker().config().display().to_string();
    let plain_url = url.replace("https://", "http://");
    let cases: &[(&[&str], &[&str])] = &[
        (&["token", "tenant-a/a"], &["no server and no configuration file", "hint: give --server URL, or --config FILE"]),
        (&["token", "a", "--server", url], &["the access", "hint: write NAME with -n NAMESPACE, or NAMESPACE/NAME"]),
        (&["token", "tenant-a/a", "--server", url], &["give --token-file, or --service-account with a hub kubeconfig"]),
        (&["token", "tenant-a/a", "--server", url, "--token-file", "/no/such/file"], &["/no/such/file", "does not exist"]),
        (&["token", "tenant-a/a", "--server", url, "--token-file", &broken], &["it does not hold a token"]),
        (&["token", "tenant-a/a", "--server", url, "--token-file", &file], &["check the address and --certificate-authority"]),
        (&["token", "tenant-a/a", "--server", url, "--certificate-authority", &file, "--token-file", &file], &["must be a PEM file"]),
        (&["token", "tenant-a/a", "--server", &plain_url, "--token-file", &file], &["the address is not an https URL"]),
        (
            &["token", "tenant-a/a", "--server", "https://127.0.0.1:1", "--certificate-authority", ca, "--token-file", &file],
            &["https://127.0.0.1:1", "the connection failed"],
        ),
        (
            &["token", "tenant-a/b", "--server", url, "--certificate-authority", ca, "--token-file", &file],
            &["400 invalid_target", "hint: the server does not say whether the access exists"],
        ),
        (
            &["kubeconfig", "tenant-a/b", "--server", url, "--certificate-authority", ca, "--token-file", &file],
            &["403 access_denied", "ask its admin for the audit record"],
        ),
        (
            &["token", "tenant-a/a", "--server", url, "--certificate-authority", ca, "--token-file", &wrong_audience],
            &["400 invalid_request", "hint: the caller's token must be for Keyferry's audience alone"],
        ),
        (
            &["kubeconfig", "tenant-a/a", "--server", url, "--certificate-authority", ca, "--token-file", &wrong_audience],
            &["401 invalid_token", "hint: the caller's token must be for Keyferry's audience alone"],
        ),
        (&["token", "tenant-a/a", "--config", "/no/such/config", "--kubeconfig", &admin], &["/no/such/config"]),
        (&["token", "tenant-a/a", "--config", &config, "--kubeconfig", &broken], &["reading the kubeconfig", "not a kubeconfig"]),
        (&["token", "tenant-a/a", "--config", &config, "--kubeconfig", &admin, "--context", "none"], &["its context names no usable"]),
        (&["token", "tenant-a/a", "--config", &config], &["give --kubeconfig"]),
        (&["targets", "--config", &broken], &["mistake"]),
    ];
    for (args, parts) in cases {
        let said = failed(&world, args, &[]).await?;
        for part in *parts {
            assert!(said.contains(part), "{args:?} does not say {part:?} but: {said}");
        }
        let signature = caller.rsplit('.').next().unwrap_or_default();
        assert!(!said.contains(signature), "{args:?} prints a token");
    }
    Ok(())
}
