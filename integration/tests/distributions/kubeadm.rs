//! kubeadm, and the two that hand it a configuration: kind and Cluster API.

use std::sync::Arc;

use keyferry_integration::parts::Distribution;
use keyferry_integration::runner::TestResult;
use serde::Deserialize;

use super::apiserver::{ApiServer, Mount, at_host};
use super::form::misspelt;
use super::stage::Stage;

pub(crate) async fn takes_both_versions(stage: Arc<Stage>) -> TestResult {
    for (minor, version) in [("1.36", "v1beta4"), ("1.30", "v1beta3")] {
        let form = stage.form("kubeadm", minor).await?;
        assert!(form.configuration().contains(version), "{form:?}");
        let (place, file) = form.file()?;
        assert_eq!(file, stage.plain_file(minor).await?);
        let apiserver: ApiServer = stage
            .read(Distribution::Kubeadm, &[], &whole(form.configuration()))
            .await?
            .accepted()?;
        assert_eq!(apiserver.file()?, place);

        for (field, wrong) in [("extraArgs", "extraArg"), ("pathType", "type")] {
            let text = whole(&form.misspelt(field, wrong)?);
            stage
                .read(Distribution::Kubeadm, &[], &text)
                .await?
                .refused_for(&format!("{wrong}\""))?;
        }
    }
    Ok(())
}

/// What kind makes of a Cluster.
#[derive(Debug, Deserialize)]
struct KindNode {
    /// The configuration of kubeadm for the node.
    kubeadm: String,
    /// The folders of this machine in the node.
    mounts: Vec<Mount>,
}

pub(crate) async fn kind_takes_it(stage: Arc<Stage>) -> TestResult {
    let form = stage.form("kind", "1.36").await?;
    let (place, file) = form.file()?;
    assert_eq!(file, stage.plain_file("1.36").await?);
    for (node, version) in [("v1.35.0", "v1beta3"), ("v1.36.3", "v1beta4")] {
        let made: KindNode = stage
            .read(Distribution::Kind, &[node], form.configuration())
            .await?
            .accepted()?;
        assert!(made.kubeadm.contains(version), "{}", made.kubeadm);
        let apiserver: ApiServer = stage
            .read(Distribution::Kubeadm, &[], &made.kubeadm)
            .await?
            .accepted()?;
        assert_eq!(at_host(&apiserver.file()?, &made.mounts)?, place);

        stage
            .read(
                Distribution::Kind,
                &[node],
                &form.misspelt("extraMounts", "extraMount")?,
            )
            .await?
            .refused_for("extraMount")?;
        // kind does not know the fields inside the patch, kubeadm does.
        let made: KindNode = stage
            .read(
                Distribution::Kind,
                &[node],
                &form.misspelt("extraVolumes", "extraVolume")?,
            )
            .await?
            .accepted()?;
        stage
            .read(Distribution::Kubeadm, &[], &made.kubeadm)
            .await?
            .refused_for("extraVolume\"")?;
    }
    Ok(())
}

/// What Cluster API makes of a KubeadmControlPlane.
#[derive(Debug, Deserialize)]
struct ClusterApiMachine {
    /// The ClusterConfiguration for the machine.
    kubeadm: String,
    /// The files that it writes.
    files: Vec<WrittenFile>,
}

#[derive(Debug, Deserialize)]
struct WrittenFile {
    path: String,
    permissions: String,
    content: String,
}

pub(crate) async fn cluster_api_takes_it(stage: Arc<Stage>) -> TestResult {
    let form = stage.form("capi", "1.36").await?;
    let made: ClusterApiMachine = stage
        .read(Distribution::ClusterApi, &["1.36.3"], form.configuration())
        .await?
        .accepted()?;
    let apiserver: ApiServer = stage
        .read(Distribution::Kubeadm, &[], &whole(&made.kubeadm))
        .await?
        .accepted()?;
    let [file] = made.files.as_slice() else {
        return Err(format!("these are not one file: {:?}", made.files).into());
    };
    assert_eq!(apiserver.file()?, file.path);
    assert_eq!(file.permissions, "0644");
    assert_eq!(file.content, stage.plain_file("1.36").await?);

    for (field, wrong) in [("permissions", "permission"), ("extraArgs", "extraArg")] {
        stage
            .read(
                Distribution::ClusterApi,
                &["1.36.3"],
                &misspelt(form.configuration(), field, wrong)?,
            )
            .await?
            .refused_for(wrong)?;
    }
    Ok(())
}

/// A ClusterConfiguration with what kubeadm would otherwise look up on the internet and on this
/// machine.
fn whole(configuration: &str) -> String {
    let configuration = configuration.trim_end();
    let version = configuration
        .lines()
        .find(|line| line.starts_with("apiVersion:"))
        .unwrap_or_default();
    let release = if configuration.contains("\nkubernetesVersion:") {
        ""
    } else {
        "kubernetesVersion: v1.36.3\n"
    };
    format!(
        "{configuration}\n{release}---\n{version}\nkind: InitConfiguration\nlocalAPIEndpoint:\n  advertiseAddress: 192.0.2.1\n\
         nodeRegistration:\n  name: node\n"
    )
}
