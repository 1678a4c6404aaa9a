//! The plain-HTTP listener of the published documents.

use std::sync::Arc;

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::http_client::plain_client;
use keyferry_integration::ports::free_port;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{BrokerSpec, authentication_configuration};
use tokio::process::Command;

use super::stage::Stage;

const METADATA: &str = "/.well-known/openid-configuration";

async fn curl(args: &[&str]) -> Result<String, TestError> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10"])
        .args(args)
        .kill_on_drop(true)
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) async fn plain_http_redirects(stage: Arc<Stage>) -> TestResult {
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let spec =
        BrokerSpec::of_hub("redirect", stage.hub()).with_args(&["--discovery-http-addr", &address]);
    let broker = stage.ground().start_broker(stage.hub(), spec).await?;
    let plain = format!("http://{address}");
    let moved = format!("{}{METADATA}", broker.discovery_url());

    let head = curl(&[
        "--head",
        "-H",
        "Host: evil.example.com",
        &format!("{plain}{METADATA}"),
    ])
    .await?;
    assert!(head.starts_with("HTTP/1.1 301"), "{head}");
    assert!(head.contains(&format!("location: {moved}\r\n")), "{head}");
    let ca = broker.ca_path().display().to_string();
    let document = curl(&["--location", "--cacert", &ca, &format!("{plain}{METADATA}")]).await?;
    let document: serde_json::Value = serde_json::from_str(&document)?;
    assert!(document["jwks_uri"].is_string(), "{document}");

    let client = plain_client()?;
    for (method, path, status) in [
        (reqwest::Method::GET, "/openid/v1/jwks", 301),
        (reqwest::Method::POST, "/openid/v1/jwks", 404),
        (reqwest::Method::GET, "/issuers/none/openid/v1/jwks", 404),
        (reqwest::Method::POST, "/v1/token", 404),
        (reqwest::Method::GET, "/metrics", 404),
        (reqwest::Method::GET, "/", 404),
    ] {
        let answer = client
            .request(
                method.clone(),
                format!("{plain}{path}?x=https://evil.example.com"),
            )
            .body("grant_type=x")
            .send()
            .await?;
        assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        let location = answer.headers().get("location");
        let wanted = (status == 301).then(|| format!("{}{path}", broker.discovery_url()));
        assert_eq!(
            location.and_then(|location| location.to_str().ok()),
            wanted.as_deref(),
            "{method} {path}"
        );
    }
    // The other listeners answer no plain HTTP.
    for url in [broker.discovery_url(), broker.api_url()] {
        let asked = client.get(url.replace("https://", "http://")).send().await;
        assert!(asked.is_err(), "{asked:?}");
    }
    Ok(())
}

/// A target cannot be given the plain URL: kube-apiserver does not start with it.
pub(super) async fn an_apiserver_refuses_http(stage: Arc<Stage>) -> TestResult {
    let configuration = authentication_configuration(
        "https://target.keyferry.test",
        &format!("http://127.0.0.1:{}{METADATA}", free_port()?),
        stage.ground().ca().cert_pem(),
    )?;
    let spec = ControlPlaneSpec {
        authentication_config: Some(configuration),
        ..ControlPlaneSpec::named("plain-target")
    };
    let Err(error) = stage.ground().control_plane(spec).await else {
        return Err("an apiserver started with an http discoveryURL".into());
    };
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&*error);
    while let Some(error) = cause {
        said.push_str(&error.to_string());
        cause = error.source();
    }
    assert!(
        said.contains("discoveryURL") && said.contains("URL scheme must be https"),
        "{said}"
    );
    Ok(())
}
