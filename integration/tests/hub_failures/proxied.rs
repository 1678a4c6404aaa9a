//! The hub behind a proxy. The proxy of the environment leads to the hub and to nothing else, so it
//! sees every connection that goes elsewhere by mistake.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use keyferry_integration::ci_issuer::{CiAlgorithm, CiIssuer};
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::forward_proxy::ForwardProxy;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    AUDIENCE_A, World, authentication_configuration, caller_token, make_tenant,
};
use serde_json::{Value, json};

use super::setup::{ACCOUNT, spec};

const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";
const CREDENTIALS: &str = "relay:canary-password";
/// A name that only the proxy resolves, and that the hub's certificate has.
const HUB: &str = "kubernetes.default.svc";
const JOBS: &str = "https://jobs.keyferry.test";

/// The variables of a program behind a proxy. Programs read both spellings.
fn variables(proxy: &ForwardProxy) -> Vec<(&'static str, String)> {
    let url = format!("http://{CREDENTIALS}@{}", proxy.address());
    [
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HTTP_PROXY",
        "http_proxy",
    ]
    .map(|name| (name, url.clone()))
    .to_vec()
}

/// The admin's kubeconfig, with the hub's name in the place of its address.
fn kubeconfig(
    folder: &Path,
    hub: &ControlPlane,
    proxy_url: Option<&str>,
) -> Result<PathBuf, TestError> {
    let text = std::fs::read(hub.admin_kubeconfig())?;
    let mut document: Value = serde_json::from_slice(&text)?;
    let cluster = &mut document["clusters"][0]["cluster"];
    cluster["server"] = json!(hub_url(hub));
    if let Some(url) = proxy_url {
        cluster["proxy-url"] = json!(url);
    }
    let path = folder.join("kubeconfig");
    std::fs::write(&path, document.to_string())?;
    Ok(path)
}

fn hub_url(hub: &ControlPlane) -> String {
    format!("https://{HUB}:{}", hub.port())
}

/// A server and its external issuer, on both minors.
pub(super) async fn the_server_sends_to_its_proxy_what_is_for_the_hub(
    world: Arc<World>,
) -> TestResult {
    let issuer = CiIssuer::start(world.ca(), CiAlgorithm::Es256).await?;
    let url = issuer.publish("/jobs");
    let claims = json!({ "repository_id": "42", "ref": "refs/heads/main" });
    let hub = world.hub();
    let tenant = "proxied";
    make_tenant(hub, tenant, &[ACCOUNT]).await?;
    let entry = json!({
        "url": url, "audience": JOBS, "certificateAuthority": world.ca().cert_pem(),
        "rules": [{ "claims": claims }],
        "serviceAccount": { "namespace": tenant, "name": ACCOUNT },
    });
    let proxy = ForwardProxy::start(Some(CREDENTIALS))?;
    let mut server = spec(&world, hub, tenant, 300, &["one"])
        .through(&hub_url(hub))
        .with_server_lines(&format!("externalIssuers:\n  - {entry}\n"));
    for (name, value) in variables(&proxy) {
        server = server.with_variable(name, &value);
    }
    let broker = world.start_broker(hub, server).await?;
    let by_hub = caller_token(hub, tenant, ACCOUNT).await?;
    let answer = broker.exchange_in_time(&by_hub, "proxied/one").await?;
    answer.token()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut job = json!({
        "iss": url, "aud": JOBS, "iat": now, "nbf": now - 5, "exp": now + 300, "jti": "one",
        "run_id": "99", "sub": "repo:example/app", "event_name": "push", "repository": "example/app",
    });
    for (name, value) in claims.as_object().into_iter().flatten() {
        job[name] = value.clone();
    }
    let answer = broker.exchange(&issuer.token(&job)?, "proxied/one").await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(proxy.asked(), [format!("CONNECT {HUB}:{}", hub.port())]);
    assert!(!broker.log()?.contains("canary"), "{}", broker.log()?);
    Ok(())
}

/// `whoami` reads the hub, then asks the target; `lint` reads an issuer and its keys.
pub(super) async fn commands_send_to_their_proxy_what_is_for_the_hub(
    world: Arc<World>,
) -> TestResult {
    let folder = tempfile::tempdir()?;
    let hub = world.hub();
    let config = world.broker().config().display().to_string();
    let hub_place = format!("{HUB}:{}", hub.port());
    let by_variable = ForwardProxy::start(Some(CREDENTIALS))?;
    let socks = ForwardProxy::start(None)?;
    let variables = variables(&by_variable);
    let env: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let whoami = async |kubeconfig: &Path, env: &[(&str, &str)]| {
        let kubeconfig = kubeconfig.display().to_string();
        let args = [
            "whoami",
            "tenant-a/a",
            "--config",
            &config,
            "--kubeconfig",
            &kubeconfig,
        ];
        let output = world.binary().run(&args, env).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("canary"), "{said}");
        Ok::<_, TestError>((output.status.success(), said))
    };
    let plain = kubeconfig(folder.path(), hub, None)?;
    let (succeeded, said) = whoami(&plain, &env).await?;
    assert!(succeeded && said.contains(AT_TARGET), "{said}");
    assert_eq!(by_variable.asked(), [format!("CONNECT {hub_place}")]);

    let network = folder.path().join("authentication.yaml");
    let discovery = format!(
        "{}/.well-known/openid-configuration",
        world.broker().discovery_url()
    );
    let trusting = authentication_configuration(AUDIENCE_A, &discovery, world.ca().cert_pem())?;
    std::fs::write(&network, trusting)?;
    let lint = ["lint", "--network", &network.display().to_string()];
    let output = world.binary().run(&lint, &env).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(by_variable.asked(), [format!("CONNECT {hub_place}")]);

    // A name that nobody resolves, without a proxy and with one that refuses.
    let exempt = [env.as_slice(), &[("NO_PROXY", ".svc")]].concat();
    let (succeeded, said) = whoami(&plain, &exempt).await?;
    assert!(!succeeded && said.contains("host not found"), "{said}");
    let stranger = format!("http://stranger:canary@{}", by_variable.address());
    let (succeeded, said) = whoami(&plain, &[("HTTPS_PROXY", &stranger)]).await?;
    let refused = format!("the proxy {} led to no answer", by_variable.address());
    assert!(!succeeded && said.contains(&refused), "{said}");

    // The kubeconfig's own proxy counts before the environment, whatever NO_PROXY says.
    let url = format!("socks5://{}", socks.address());
    let own = kubeconfig(folder.path(), hub, Some(&url))?;
    let before = by_variable.asked();
    let (succeeded, said) = whoami(&own, &exempt).await?;
    assert!(succeeded && said.contains(AT_TARGET), "{said}");
    assert_eq!(socks.asked(), [format!("SOCKS {hub_place}")]);
    assert_eq!(by_variable.asked(), before);
    Ok(())
}
