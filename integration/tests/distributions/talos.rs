//! Talos, whose machine configuration is one document before 1.14 and several since.

use std::sync::Arc;

use keyferry_integration::parts::Distribution;
use keyferry_integration::runner::TestResult;
use serde::Deserialize;
use serde_json::Value;

use super::apiserver::ApiServer;
use super::stage::Stage;

/// A machine configuration as `talosctl gen config` of Talos 1.14 writes it.
const SEVERAL_DOCUMENTS: &str = "v1.14";
/// The same of Talos 1.13, which also configures newer releases after an upgrade.
const ONE_DOCUMENT: &str = "v1.13";

/// What Talos makes of a machine configuration after a patch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Machine {
    apiserver: ApiServer,
    /// Whether kube-apiserver gets the document `KubeAuthenticationConfig` as its file.
    uses_document: bool,
    /// The configuration of that document.
    document: Value,
    /// What Talos puts there by default.
    default_document: Value,
    files: Vec<MachineFile>,
}

#[derive(Debug, Deserialize)]
struct MachineFile {
    path: String,
    permissions: String,
    content: String,
}

pub(crate) async fn takes_the_document(stage: Arc<Stage>) -> TestResult {
    let form = stage.form("talos", "1.36").await?;
    let machine: Machine = stage
        .read(
            Distribution::Talos,
            &[SEVERAL_DOCUMENTS],
            form.configuration(),
        )
        .await?
        .accepted()?;
    assert!(machine.uses_document);
    let mut expected: Value = serde_saphyr::from_str(&stage.plain_file("1.36").await?)?;
    expected["anonymous"] = machine.default_document["anonymous"].clone();
    assert_eq!(machine.document, expected);

    stage
        .read(
            Distribution::Talos,
            &[SEVERAL_DOCUMENTS],
            &form.misspelt("configuration", "configuraton")?,
        )
        .await?
        .refused_for("configuraton")
}

pub(crate) async fn takes_the_patch(stage: Arc<Stage>) -> TestResult {
    let form = stage.form("talos-legacy", "1.36").await?;
    let machine: Machine = stage
        .read(Distribution::Talos, &[ONE_DOCUMENT], form.configuration())
        .await?
        .accepted()?;
    let [file] = machine.files.as_slice() else {
        return Err(format!("these are not one file: {:?}", machine.files).into());
    };
    assert_eq!(machine.apiserver.file()?, file.path);
    assert_eq!(file.permissions, "0644");
    assert_eq!(file.content, stage.plain_file("1.36").await?);

    for (field, wrong) in [("permissions", "permission"), ("extraVolumes", "volumes")] {
        stage
            .read(
                Distribution::Talos,
                &[ONE_DOCUMENT],
                &form.misspelt(field, wrong)?,
            )
            .await?
            .refused_for(wrong)?;
    }
    Ok(())
}

pub(crate) async fn forms_are_not_interchangeable(stage: Arc<Stage>) -> TestResult {
    let document = stage.form("talos", "1.36").await?;
    let machine: Machine = stage
        .read(
            Distribution::Talos,
            &[ONE_DOCUMENT],
            document.configuration(),
        )
        .await?
        .accepted()?;
    assert!(
        !machine.uses_document && machine.apiserver.authentication_config.is_empty(),
        "Talos ignores the document beside the section cluster.apiServer: {machine:?}"
    );
    let patch = stage.form("talos-legacy", "1.36").await?;
    stage
        .read(
            Distribution::Talos,
            &[SEVERAL_DOCUMENTS],
            patch.configuration(),
        )
        .await?
        .refused_for(".cluster.apiServer")
}
