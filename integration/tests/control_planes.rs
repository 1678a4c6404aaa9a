//! Tests the harness itself on real control planes, because every other test here relies on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, StatusCode};
use keyferry_integration::chaos_proxy::{ChaosProxy, Fault, Rule};
use keyferry_integration::control_plane::{
    ControlPlane, ControlPlaneError, ControlPlaneSpec, TokenSigning,
};
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::SigningKeyKind;
use keyferry_integration::rbac::{apply_manifests, service_account_kubeconfig};
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{BoxedSuite, NotStarted, Suite, TestError, TestResult};
use serde_json::{Value, json};

const TENANT: &str = "tenant-a";
const ACCOUNT: &str = "reconciler";
const AUDIENCE: &str = "https://targets.keyferry.test";

pub(crate) fn suite() -> BoxedSuite {
    crate::target_roles::tests(crate::impersonation::tests(Suite::new(start)))
        .test("versions_answer_as_pinned", versions_answer_as_pinned)
        .test("the_hub_mints_by_token_request", the_hub_mints)
        .test(
            "a_target_of_the_newest_minor_accepts_a_hub_token",
            |fleet| a_target_accepts_a_hub_token(fleet, "target-new"),
        )
        .test("a_1_33_target_accepts_a_hub_token", |fleet| {
            a_target_accepts_a_hub_token(fleet, "target-old")
        })
        .test(
            "a_bad_configuration_is_refused",
            a_bad_configuration_is_refused,
        )
        .test("controllers_work", controllers_work)
        .test("requests_are_audited", requests_are_audited)
        .test(
            "a_kubeconfig_of_a_service_account",
            a_service_account_kubeconfig,
        )
        .test("the_chaos_proxy_changes_answers", the_proxy_changes_answers)
        .test(
            "the_chaos_proxy_passes_watches_on",
            the_proxy_passes_watches_on,
        )
        .test_alone("a_restart_keeps_state", a_restart_keeps_state)
        .test_alone(
            "a_restart_swaps_the_configuration",
            a_restart_swaps_the_configuration,
        )
        .test_alone("a_taken_port_is_told", a_taken_port_is_told)
        .test_alone("keys_rotate_by_a_restart", keys_rotate_by_a_restart)
        .test_alone(
            "a_suspended_hub_answers_nothing",
            a_suspended_hub_answers_nothing,
        )
        .boxed()
}

async fn start() -> Result<Fleet, NotStarted> {
    let nobody = trust_in_nobody();
    let target = |name: &str, minor: Minor| ControlPlaneSpec {
        minor,
        signing_key: SigningKeyKind::EcdsaP256,
        authentication_config: Some(nobody.clone()),
        ..ControlPlaneSpec::named(name)
    };
    let hub = ControlPlaneSpec {
        controller_manager: true,
        audit_log: true,
        ..ControlPlaneSpec::named("hub")
    };
    let control_planes = vec![
        hub,
        target("target-new", Minor::newest()),
        target("target-old", Minor::V1_33),
    ];
    Ok(Fleet::start(FleetSpec { control_planes }).await?)
}

async fn versions_answer_as_pinned(fleet: Arc<Fleet>) -> TestResult {
    for plane in fleet.control_planes() {
        let version = plane.admin().get("/version").await?;
        assert_eq!(version["gitVersion"], plane.minor().git_version());
    }
    assert_eq!(fleet.control_planes().count(), 3);
    Ok(())
}

async fn the_hub_mints(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.create_namespace_with_service_account("mints", ACCOUNT)
        .await?;
    let minted = hub
        .token_request("mints", ACCOUNT, &[AUDIENCE], 600)
        .await?;
    assert_eq!(minted.audiences, [AUDIENCE]);
    assert_eq!(minted.token.split('.').count(), 3);
    let own = hub.token_request("mints", ACCOUNT, &[], 600).await?;
    assert_eq!(own.audiences, ["https://hub.keyferry.test"]);
    Ok(())
}

async fn a_target_accepts_a_hub_token(fleet: Arc<Fleet>, target: &'static str) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    let target = fleet.control_plane(target)?;
    hub.create_namespace_with_service_account(TENANT, ACCOUNT)
        .await?;
    let documents = DocumentServer::start(target.ca()).await?;
    let discovery_url = documents.publish(&hub).await?;
    let minted = hub.token_request(TENANT, ACCOUNT, &[AUDIENCE], 600).await?;
    let with_token = target.as_bearer(&minted.token)?;
    assert_eq!(refusal(&with_token).await, Some(401));

    let started = Instant::now();
    target
        .set_authentication_config(&trust(&discovery_url, target.ca_pem()))
        .await?;
    eprintln!("{}: reload took {:?}", target.name(), started.elapsed());
    assert_eq!(
        user_name(&with_token).await?,
        "hub:system:serviceaccount:tenant-a:reconciler"
    );
    let other = hub
        .token_request(TENANT, ACCOUNT, &["https://elsewhere.test"], 600)
        .await?;
    assert_eq!(refusal(&target.as_bearer(&other.token)?).await, Some(401));
    assert!(documents.reads("/hub/keys") > 0);

    let broken = trust(&discovery_url, "not a certificate");
    let refused = target.set_authentication_config(&broken).await;
    assert!(
        matches!(&refused, Err(ControlPlaneError::ReloadRefused { log, .. }) if log.contains("certificateAuthority")),
        "{refused:?}"
    );
    assert!(
        user_name(&with_token).await?.starts_with("hub:"),
        "the last good one is lost"
    );
    // The next test that restarts this target starts with the file that is there.
    target.set_authentication_config(&trust_in_nobody()).await?;
    Ok(())
}

async fn a_bad_configuration_is_refused(fleet: Arc<Fleet>) -> TestResult {
    let spec = ControlPlaneSpec {
        authentication_config: Some(trust("https://127.0.0.1:1/x", "not a certificate")),
        ..ControlPlaneSpec::named("broken")
    };
    let Err(error) = fleet.start_control_plane(spec).await else {
        return Err("a configuration with a broken authority was accepted".into());
    };
    let said = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        said.as_ref()
            .is_some_and(|said| said.contains("certificateAuthority")),
        "the log tail is not in the error: {said:?}"
    );
    Ok(())
}

async fn controllers_work(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.create_namespace("controllers").await?;
    let path = "/api/v1/namespaces/controllers/configmaps/kube-root-ca.crt";
    let deadline = Instant::now() + Duration::from_secs(20);
    let found = loop {
        match hub.admin().get(path).await {
            Ok(found) => break found,
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(found["data"]["ca.crt"].as_str(), Some(hub.ca_pem()));
    Ok(())
}

async fn requests_are_audited(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.create_namespace_with_service_account("audited", ACCOUNT)
        .await?;
    hub.token_request("audited", ACCOUNT, &[AUDIENCE], 600)
        .await?;
    let minted = hub.audit_events()?.into_iter().find(|event| {
        event["objectRef"]["namespace"] == "audited" && event["objectRef"]["subresource"] == "token"
    });
    let event = minted.ok_or("no audit event of the TokenRequest")?;
    assert_eq!(event["user"]["username"], "harness-admin");
    assert!(
        event["annotations"]["authentication.kubernetes.io/issued-credential-id"]
            .as_str()
            .is_some_and(|jti| jti.starts_with("JTI="))
    );
    Ok(())
}

async fn a_service_account_kubeconfig(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    let manifest = fleet.folder().join("manifest.yaml");
    std::fs::write(&manifest, MANIFEST)?;
    apply_manifests(&hub, &[&manifest]).await?;
    let kubeconfig = service_account_kubeconfig(&hub, "rbac", ACCOUNT, 600).await?;
    let may = async |verb: &str| -> Result<String, TestError> {
        let args = ["auth", "can-i", verb, "configmaps", "-n", "rbac"];
        let output = hub.kubectl_with(kubeconfig.path(), &args).await?;
        let said = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    };
    // The Role takes effect only after a moment.
    let started = Instant::now();
    while may("get").await? == "no" && started.elapsed() < Duration::from_secs(20) {}
    assert_eq!(may("get").await?, "yes");
    assert_eq!(may("delete").await?, "no");
    kubeconfig.expire_token().await?;
    assert!(may("get").await?.contains("Unauthorized"));
    kubeconfig.rewrite_token(600).await?;
    assert_eq!(may("get").await?, "yes");
    Ok(())
}

async fn the_proxy_changes_answers(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    for account in [ACCOUNT, "other"] {
        hub.create_namespace_with_service_account("proxied", account)
            .await?;
    }
    hub.bind_user_to_cluster_role("system:serviceaccount:proxied:reconciler", "admin")
        .await?;
    let own = hub.token_request("proxied", ACCOUNT, &[], 600).await?;
    let proxy = ChaosProxy::in_front_of(&hub).await?;
    let client = RestClient::with_bearer(&proxy.url(), proxy.ca_pem(), &own.token)?;
    assert_eq!(
        user_name(&client).await?,
        "system:serviceaccount:proxied:reconciler"
    );

    let time = Duration::from_millis(700);
    let rule = proxy.add(Rule::on(Method::GET, "/version", Fault::Delay(time)));
    let started = Instant::now();
    client.get("/version").await?;
    assert!(started.elapsed() >= time);
    proxy.remove(rule);
    assert_eq!(proxy.count(&Method::GET, "/version"), 1);

    proxy.add(Rule::on_any("/version", too_many()).times(1));
    let refused = client.get("/version").await;
    assert_eq!(refused.err().and_then(|error| error.status()), Some(429));
    client.get("/version").await?;

    proxy.add(
        Rule::on_any(
            "/version",
            Fault::ReplaceBody {
                body: b"{\"gitVersion\":\"v0.0.0\"}".to_vec(),
                content_type: HeaderValue::from_static("application/json"),
            },
        )
        .times(1),
    );
    assert_eq!(client.get("/version").await?["gitVersion"], "v0.0.0");

    proxy.add(Rule::on_any("/version", Fault::Drop).times(1));
    let dropped = client.get("/version").await;
    assert!(dropped.is_err_and(|error| error.status().is_none()));

    proxy.add(Rule::on(
        Method::POST,
        "/token",
        Fault::RewritePath {
            from: format!("/{ACCOUNT}/"),
            to: "/other/".to_owned(),
        },
    ));
    let path = format!("/api/v1/namespaces/proxied/serviceaccounts/{ACCOUNT}/token");
    let request = json!({ "spec": { "audiences": [], "expirationSeconds": 600 } });
    let minted = client.create(&path, &request).await?;
    let token = minted["status"]["token"].as_str().unwrap_or_default();
    let whose = user_name(&hub.as_bearer(token)?).await?;
    assert_eq!(whose, "system:serviceaccount:proxied:other");
    proxy.clear();

    the_proxy_takes_its_time(&proxy, &client).await
}

async fn the_proxy_takes_its_time(proxy: &ChaosProxy, client: &RestClient) -> TestResult {
    // The body `ok` has two bytes.
    proxy.add(Rule::on_any("/readyz", Fault::ByteASecond).times(1));
    let started = Instant::now();
    assert_eq!(client.get_text("/readyz").await?, "ok");
    assert!(started.elapsed() >= Duration::from_secs(2));

    proxy.pause();
    let held = tokio::time::timeout(Duration::from_millis(300), client.get("/version")).await;
    assert!(held.is_err(), "a paused proxy answered");
    proxy.resume();
    client.get("/version").await?;
    Ok(())
}

async fn the_proxy_passes_watches_on(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.create_namespace_with_service_account("watched", ACCOUNT)
        .await?;
    hub.bind_user_to_cluster_role("system:serviceaccount:watched:reconciler", "view")
        .await?;
    let own = hub.token_request("watched", ACCOUNT, &[], 600).await?;
    let proxy = ChaosProxy::in_front_of(&hub).await?;
    let client = RestClient::with_bearer(&proxy.url(), proxy.ca_pem(), &own.token)?;
    let path = "/api/v1/namespaces/watched/serviceaccounts?watch=true&timeoutSeconds=60";
    let mut watch = client.request(Method::GET, path).send().await?;
    assert_eq!(watch.status(), StatusCode::OK);
    hub.create_service_account("watched", "late").await?;
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        let mut text = String::new();
        while !text.contains("\"name\":\"late\"") {
            let Some(chunk) = watch.chunk().await? else {
                break;
            };
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        Ok::<_, reqwest::Error>(text)
    });
    assert!(seen.await??.contains("\"name\":\"late\""));
    Ok(())
}

async fn a_restart_keeps_state(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    let uid = hub
        .create_namespace_with_service_account("kept", ACCOUNT)
        .await?;
    let minted = hub.token_request("kept", ACCOUNT, &[], 600).await?;
    hub.stop().await?;
    assert!(
        hub.admin().get("/version").await.is_err(),
        "it still answers"
    );
    let started = Instant::now();
    hub.restart().await?;
    eprintln!("hub: restart took {:?}", started.elapsed());
    let same = hub.create_service_account("kept", ACCOUNT).await?;
    assert_eq!(same, uid);
    let user = user_name(&hub.as_bearer(&minted.token)?).await?;
    assert_eq!(user, "system:serviceaccount:kept:reconciler");
    Ok(())
}

async fn a_restart_swaps_the_configuration(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    let target = fleet.control_plane("target-old")?;
    hub.create_namespace_with_service_account("swapped", ACCOUNT)
        .await?;
    let documents = DocumentServer::start(target.ca()).await?;
    let discovery_url = documents.publish(&hub).await?;
    let minted = hub
        .token_request("swapped", ACCOUNT, &[AUDIENCE], 600)
        .await?;
    target
        .restart_with_authentication_config(&trust(&discovery_url, target.ca_pem()))
        .await?;
    let client = target.as_bearer(&minted.token)?;
    let deadline = Instant::now() + Duration::from_secs(15);
    let user = loop {
        match user_name(&client).await {
            Ok(user) => break user,
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(user, "hub:system:serviceaccount:swapped:reconciler");
    Ok(())
}

async fn a_taken_port_is_told(fleet: Arc<Fleet>) -> TestResult {
    let target = fleet.control_plane("target-old")?;
    target.stop().await?;
    let address = target.url().replace("https://", "");
    let taken = std::net::TcpListener::bind(address)?;
    let refused = target.restart().await;
    drop(taken);
    assert!(
        refused.is_err_and(|error| error.to_string().contains("address already in use")),
        "the port is not named as the reason"
    );
    target.restart().await?;
    target.admin().get("/version").await?;
    Ok(())
}

async fn keys_rotate_by_a_restart(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.create_namespace_with_service_account("rotated", ACCOUNT)
        .await?;
    let old = hub.token_request("rotated", ACCOUNT, &[], 600).await?;
    let before = hub.signing().await;
    let signing_key = hub.create_signing_key(SigningKeyKind::EcdsaP256, "next")?;
    hub.set_signing(TokenSigning {
        signing_key,
        further_keys: vec![before.signing_key.clone()],
        ..before.clone()
    })
    .await;
    hub.restart().await?;
    let new = hub.token_request("rotated", ACCOUNT, &[], 600).await?;
    for token in [&old.token, &new.token] {
        assert!(user_name(&hub.as_bearer(token)?).await?.ends_with(ACCOUNT));
    }
    assert_eq!(published_keys(&hub).await?, 2);
    assert_ne!(old.token.split('.').next(), new.token.split('.').next());
    hub.set_signing(before).await;
    hub.restart().await?;
    assert_eq!(refusal(&hub.as_bearer(&new.token)?).await, Some(401));
    Ok(())
}

async fn a_suspended_hub_answers_nothing(fleet: Arc<Fleet>) -> TestResult {
    let hub = fleet.control_plane("hub")?;
    hub.suspend().await?;
    let held = tokio::time::timeout(Duration::from_secs(1), hub.admin().get("/version")).await;
    hub.resume().await?;
    assert!(held.is_err(), "a suspended hub answered: {held:?}");
    hub.admin().get("/version").await?;
    Ok(())
}

/// An AuthenticationConfiguration without an issuer.
fn trust_in_nobody() -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [],
    })
    .to_string()
}

/// An AuthenticationConfiguration that trusts the hub's issuer under the prefix `hub:`.
fn trust(discovery_url: &str, certificate_authority: &str) -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": "https://hub.keyferry.test",
                "discoveryURL": discovery_url,
                "certificateAuthority": certificate_authority,
                "audiences": [AUDIENCE],
            },
            "claimMappings": { "username": { "claim": "sub", "prefix": "hub:" } },
        }],
    })
    .to_string()
}

async fn review(client: &RestClient) -> Result<Value, keyferry_integration::rest::RestError> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    client.create(path, &request).await
}

async fn user_name(client: &RestClient) -> Result<String, TestError> {
    let name = review(client).await?["status"]["userInfo"]["username"].clone();
    Ok(name.as_str().unwrap_or_default().to_owned())
}

async fn refusal(client: &RestClient) -> Option<u16> {
    review(client).await.err().and_then(|error| error.status())
}

async fn published_keys(plane: &ControlPlane) -> Result<usize, TestError> {
    let keys = plane.admin().get("/openid/v1/jwks").await?;
    Ok(keys["keys"].as_array().map_or(0, Vec::len))
}

fn too_many() -> Fault {
    Fault::Status {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: vec![(
            HeaderName::from_static("retry-after"),
            HeaderValue::from_static("1"),
        )],
        body: b"{}".to_vec(),
    }
}

const MANIFEST: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: rbac}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reconciler, namespace: rbac}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: rbac}
rules:
- {apiGroups: [\"\"], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: rbac}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reconciler, namespace: rbac}
";
