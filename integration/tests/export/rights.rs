//! Tests the rights that an export needs on the hub, and its messages when it cannot continue.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use serde_json::Value;

use super::setup::ExportingHub;

/// Without rights, the export writes nothing. With `get` on the two paths it writes everything,
/// with the address and the max-age of the configuration.
pub(super) async fn two_paths_are_all(hub: Arc<ExportingHub>) -> TestResult {
    let account = hub.account("two-paths", false, &hub.hub.url()).await?;
    let folder = hub.folder("two-paths")?;
    let output = hub.export(&folder, account.path(), &[]).await?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: reading the hub's discovery documents: "),
        "{said}"
    );
    assert!(
        said.contains("fix: bind ClusterRole system:service-account-issuer-discovery"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(folder.join("out"))?.count(),
        0,
        "nothing is written after a failure"
    );

    hub.bind("two-paths").await?;
    let output = hub.export(&folder, account.path(), &[]).await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.join("out/manifest.json"))?)?;
    assert_eq!(
        (&manifest["issuer"], &manifest["publicURL"]),
        (
            &"https://hub.keyferry.test".into(),
            &"https://keyferry.example.com".into()
        )
    );
    assert_eq!(manifest["files"][0]["cacheControl"], "public, max-age=60");
    let document: Value = serde_json::from_slice(&std::fs::read(
        folder.join("out/.well-known/openid-configuration"),
    )?)?;
    assert_eq!(
        document["jwks_uri"],
        "https://keyferry.example.com/openid/v1/jwks"
    );
    Ok(())
}

pub(super) async fn mistakes_are_told(hub: Arc<ExportingHub>) -> TestResult {
    let account = hub.account("mistaken", true, &hub.hub.url()).await?;
    let folder = hub.folder("mistaken")?;
    let output = hub
        .export(
            &folder,
            account.path(),
            &["--public-url", "https://keys.example.com/path"],
        )
        .await?;
    let said = String::from_utf8(output.stderr)?;
    assert!(
        output.status.code() == Some(1)
            && said.starts_with("error: --public-url is not an https origin"),
        "{said}"
    );

    // A file is in the place of the folder.
    std::fs::write(folder.join("out"), "")?;
    let output = hub.export(&folder, account.path(), &[]).await?;
    let said = String::from_utf8(output.stderr)?;
    assert!(
        output.status.code() == Some(1) && said.starts_with("error: opening the folder "),
        "{said}"
    );

    let elsewhere = hub
        .account("unreachable", true, "https://127.0.0.1:1")
        .await?;
    std::fs::remove_file(folder.join("out"))?;
    let output = hub.export(&folder, elsewhere.path(), &[]).await?;
    let said = String::from_utf8(output.stderr)?;
    assert!(
        output.status.code() == Some(1)
            && said.starts_with("error: reading the hub's discovery documents: "),
        "{said}"
    );
    Ok(())
}
