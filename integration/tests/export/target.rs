//! A target that sees only the exported files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::authentication_configuration;
use serde_json::{Value, json};

use super::setup::ExportingHub;
use super::static_server;

const AUDIENCE: &str = "https://by-files.keyferry.test";

pub(super) async fn accepts_a_hub_token_by_exported_files(hub: Arc<ExportingHub>) -> TestResult {
    let account = hub.account("for-files", true, &hub.hub.url()).await?;
    let folder = hub.folder("by-files")?;
    let server = static_server::start(&hub.ca, folder.join("out")).await?;
    let output = hub
        .export(&folder, account.path(), &["--public-url", &server.url()])
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout)?;
    assert!(
        said.trim_end()
            .ends_with(": wrote openid/v1/jwks, .well-known/openid-configuration, manifest.json"),
        "{said}"
    );
    let again = hub
        .export(&folder, account.path(), &["--public-url", &server.url()])
        .await?;
    assert!(
        String::from_utf8(again.stdout)?
            .trim_end()
            .ends_with(": nothing changed")
    );

    let discovery = format!("{}/.well-known/openid-configuration", server.url());
    let document: Value = serde_json::from_slice(&std::fs::read(
        folder.join("out/.well-known/openid-configuration"),
    )?)?;
    assert_eq!(
        document["jwks_uri"],
        format!("{}/openid/v1/jwks", server.url())
    );
    let configuration = authentication_configuration(AUDIENCE, &discovery, hub.ca.cert_pem())?;
    let spec = ControlPlaneSpec {
        authentication_config: Some(configuration),
        ..ControlPlaneSpec::named("by-files-target")
    };
    let target = hub.fleet.start_control_plane(spec).await?;

    // The account that the shipped AuthenticationConfiguration accepts.
    hub.hub
        .create_namespace_with_service_account("tenant-a", "reconciler")
        .await?;
    let token = hub
        .hub
        .token_request("tenant-a", "reconciler", &[AUDIENCE], 3600)
        .await?
        .token;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let limit = Instant::now() + Duration::from_secs(30);
    let user = loop {
        match target
            .as_bearer(&token)?
            .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
            .await
        {
            Ok(answer) => break answer["status"]["userInfo"].clone(),
            // Retry until the target has read the discovery document.
            Err(error) if Instant::now() > limit => {
                return Err(format!("the target refuses the token: {error}").into());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    };
    assert_eq!(
        user["username"],
        "hub:system:serviceaccount:tenant-a:reconciler"
    );
    Ok(())
}
