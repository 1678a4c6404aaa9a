//! Configurations with which the server must not start.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::BrokerSpec;

use super::stage::Stage;

/// The hub's issuer is known only once the hub has answered, because the file does not pin it.
pub(crate) async fn an_issuer_that_is_the_hubs_is_refused_at_start(
    stage: Arc<Stage>,
) -> TestResult {
    let good = stage.lines();
    let [github, ..] = stage.shapes()?;
    let github = github.claims["iss"].to_string();
    for (name, lines, said) in [
        (
            "hubs-issuer",
            good.replace(&github, "\"https://hub.keyferry.test/\""),
            "is the hub's own issuer",
        ),
        (
            "no-ref",
            good.replacen(
                r#""repository_id":"42","ref":"refs/heads/main""#,
                r#""repository_id":"42""#,
                1,
            ),
            "has neither ref nor environment",
        ),
        (
            "no-id",
            good.replacen(
                r#""repository_id":"42","ref":"refs/heads/main""#,
                r#""repository":"a/b","ref":"refs/heads/main""#,
                1,
            ),
            "has neither repository_id nor project_id",
        ),
        (
            "no-certificate",
            good.replace("-----BEGIN CERTIFICATE-----", "-----BEGIN NOTHING-----"),
            "no CA certificates in PEM",
        ),
    ] {
        assert_ne!((name, &lines), (name, &good));
        let spec = BrokerSpec::of_hub(name, &stage.hub).with_server_lines(&lines);
        let (config, kubeconfig) = stage.ground.files(&stage.hub, &spec).await?;
        let output = stage
            .ground
            .binary()
            .run(
                &[
                    "serve",
                    "--config",
                    &config.display().to_string(),
                    "--kubeconfig",
                    &kubeconfig.path().display().to_string(),
                ],
                &[],
            )
            .await?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name} started");
        assert!(told.contains(said), "{name}: {told}");
    }
    Ok(())
}
