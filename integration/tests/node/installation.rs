//! Installs, updates and removes Keyferry in the two ways of docs/guides/hub.md.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::until_gone;
use keyferry_integration::world::shipped;
use serde_json::json;

use super::installed::{GROUP, access, pods};
use super::setup::{Cluster, IMAGE, PREVIOUS_IMAGE, SYSTEM};
use crate::install::overlay::overlay_of;

const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// The two ways of docs/guides/hub.md.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Chart,
    Base,
}

/// A version of Keyferry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Previous,
    This,
}

impl Version {
    pub(crate) fn image(self) -> &'static str {
        match self {
            Self::Previous => PREVIOUS_IMAGE,
            Self::This => IMAGE,
        }
    }
}

/// Whether the admission policies are part of the Helm release. The base never has them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policies {
    With,
    Without,
}

/// What to install.
#[derive(Clone, Copy)]
pub(crate) struct Installation<'a> {
    pub(crate) way: Way,
    pub(crate) version: Version,
    pub(crate) policies: Policies,
    /// An annotation of the Pods. A change of it replaces them.
    pub(crate) annotation: &'a str,
}

impl Installation<'_> {
    /// Installs it, or updates what is installed.
    pub(crate) async fn apply(&self, cluster: &Cluster) -> TestResult {
        let checkout = match self.version {
            Version::Previous => cluster.previous()?.tree.clone(),
            Version::This => shipped(""),
        };
        match self.way {
            Way::Chart => self.apply_chart(cluster, &checkout).await,
            Way::Base => self.apply_base(cluster, &checkout).await,
        }
    }

    async fn apply_chart(&self, cluster: &Cluster, checkout: &Path) -> TestResult {
        let chart = checkout
            .join("examples/helm/keyferry")
            .display()
            .to_string();
        let (repository, tag) = self.image()?;
        let mut values = vec![
            format!("image.repository={repository}"),
            format!("image.tag={tag}"),
            "hubName=hub".to_owned(),
            format!("publicURL=https://{}", cluster.discovery),
            "crds.enabled=true".to_owned(),
            "rbac.tenantNamespaces={tenant-a}".to_owned(),
        ];
        if self.policies == Policies::With {
            values.push("admissionPolicies.enabled=true".to_owned());
            values.push(format!(
                "admissionPolicies.hubAudiences={{{}}}",
                super::setup::ISSUER
            ));
        }
        let note = format!("podAnnotations.example\\.com/update={}", self.annotation);
        let mut args = vec!["upgrade", "--install", "keyferry", &chart, "-n", SYSTEM];
        for value in &values {
            args.extend(["--set", value]);
        }
        args.extend(["--set-string", &note]);
        helm(cluster, &args).await
    }

    async fn apply_base(&self, cluster: &Cluster, checkout: &Path) -> TestResult {
        let folder = cluster.ground.folder().join("overlay");
        std::fs::create_dir_all(&folder)?;
        let config = checkout.join("examples/install/base/config.yaml");
        let own = format!("https://{}", cluster.discovery);
        let config = std::fs::read_to_string(config)?.replace("https://keyferry.example.com", &own);
        std::fs::write(folder.join("config.yaml"), config)?;
        let (repository, tag) = self.image()?;
        let annotation = self.annotation;
        let text = format!(
            "resources: [examples/install/base, examples/install/tenant]\n\
             configMapGenerator: [{{ name: keyferry-config, namespace: keyferry-system, behavior: replace, \
             files: [config.yaml] }}]\n\
             images: [{{ name: keyferry, newName: {repository}, newTag: {tag} }}]\n\
             patches:\n- target: {{ kind: Deployment, name: keyferry }}\n  patch: |-\n    \
             {{ apiVersion: apps/v1, kind: Deployment, metadata: {{ name: keyferry }}, spec: {{ template: {{ metadata: \
             {{ annotations: {{ example.com/update: \"{annotation}\" }} }} }} }} }}\n"
        );
        overlay_of(checkout, &cluster.hub, &folder, &text).await?;
        let folder = folder.display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &folder];
        cluster.kubectl(&apply).await?;
        Ok(())
    }

    fn image(&self) -> Result<(&'static str, &'static str), TestError> {
        let image = self.version.image().rsplit_once(':');
        Ok(image.ok_or("the image has no tag")?)
    }
}

/// Returns a Helm release to its first revision.
pub(crate) async fn roll_back(cluster: &Cluster) -> TestResult {
    helm(cluster, &["rollback", "keyferry", "1", "-n", SYSTEM]).await
}

/// Removes Keyferry as docs/guides/hub.md says: its objects first, and the admission policies before
/// the definitions.
pub(crate) async fn remove(cluster: &Cluster, way: Way) -> TestResult {
    let admin = cluster.hub.admin();
    for name in ["prod", "stage"] {
        // A drained access would stay until its delivered token has expired.
        let immediate = json!({ "spec": { "deletionPolicy": "Immediate" } });
        admin.patch(&access(name), &immediate).await?;
        admin.delete(&access(name)).await?;
        until_gone(admin, &access(name)).await?;
        let target = format!("{GROUP}/targetclusters/{name}");
        admin.delete(&target).await?;
        until_gone(admin, &target).await?;
    }
    match way {
        Way::Chart => helm(cluster, &["uninstall", "keyferry", "-n", SYSTEM, "--wait"]).await?,
        Way::Base => {
            super::policies::remove(cluster).await?;
            let folder = cluster.ground.folder().join("overlay");
            let folder = folder.display().to_string();
            cluster.kubectl(&["delete", "-k", &folder]).await?;
        }
    }
    until("no Pod is left", WAIT_LIMIT, || async {
        Ok(pods(cluster).await?.is_empty())
    })
    .await
}

async fn helm(cluster: &Cluster, args: &[&str]) -> TestResult {
    let program = cluster.ground.parts().locate(Part::Helm).await?;
    let folder = cluster.ground.folder();
    let mut command = tokio::process::Command::new(program);
    command
        .args(args)
        .arg("--kubeconfig")
        .arg(cluster.hub.admin_kubeconfig())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, folder.join("helm"));
    }
    let output = tokio::time::timeout(WAIT_LIMIT, command.output()).await??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("helm {}: {said}", args.join(" ")).into());
    }
    Ok(())
}
