//! The errors that an admin sees before a target has a managed issuer.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, TENANT, caller_token};

use super::stage::{CLUSTER_DEFAULT, Stage, TARGETS};

pub(super) async fn the_hubs_issuer_collides_and_both_fixes_are_told(
    stage: Arc<Stage>,
) -> TestResult {
    let caller = caller_token(&stage.hub, TENANT, ACCOUNT).await?;
    for target in TARGETS {
        let answer = stage
            .broker
            .exchange(&caller, &format!("{TENANT}/{target}-by-hub"))
            .await?;
        assert_eq!(answer.status, 503, "{}", answer.body);
        let description = answer.json()?["error_description"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let fixes = [
            "--service-account-issuer first",
            "keep the old one second",
            "--enable-keyferry-issuer",
            "issuer: Keyferry",
        ];
        for part in ["IssuerCollision", CLUSTER_DEFAULT]
            .into_iter()
            .chain(fixes)
        {
            assert!(
                description.contains(part),
                "{part:?} is not in {description:?}"
            );
        }
        assert_eq!(
            stage.broker.audit_of(&answer.request_id)?["reason"],
            "IssuerCollision"
        );
    }
    Ok(())
}

pub(super) async fn managed_issuers_are_off_until_enabled(stage: Arc<Stage>) -> TestResult {
    let on = std::fs::read_to_string(stage.broker.config())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, on.replace("managedIssuers:\n  enabled: true\n", ""))?;
    let file = file.display().to_string();
    let check = ["serve", "--config", &file, "--check"];
    let refused = stage.binary.run(&check, &[]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert_eq!(
        said.matches("spec.issuer").count(),
        TARGETS.len() + 1,
        "{said}"
    );
    assert!(
        said.contains("not enabled") && said.contains("--enable-keyferry-issuer"),
        "{said}"
    );
    let by_flag = stage
        .binary
        .run(&[&check[..], &["--enable-keyferry-issuer"]].concat(), &[])
        .await?;
    assert_eq!(
        by_flag.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&by_flag.stderr)
    );
    let variable = "KEYFERRY_ENABLE_KEYFERRY_ISSUER";
    assert_eq!(
        stage
            .binary
            .run(&check, &[(variable, "true")])
            .await?
            .status
            .code(),
        Some(0)
    );
    let against = stage
        .binary
        .run(
            &[&check[..], &["--enable-keyferry-issuer=false"]].concat(),
            &[(variable, "true")],
        )
        .await?;
    assert_eq!(
        against.status.code(),
        Some(1),
        "a flag goes before its variable"
    );
    Ok(())
}
