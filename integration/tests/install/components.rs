//! Tests the components of examples/install, as overlays of the base have them.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::shipped;

use super::helm::template;
use super::manifests::{assert_same, of_kinds, without_packaging};
use super::overlay::overlay;
use super::rendered::{charted, kustomized};
use super::setup::{Hubs, NAMESPACE, values};

pub(crate) async fn the_certificate_approver_is_the_same_objects(hubs: Arc<Hubs>) -> TestResult {
    let text =
        "resources: [examples/install/base]\ncomponents: [examples/install/certificate-approver]\n";
    let folder = hubs.fleet().folder().join("certificate-approver");
    let mut base = without_packaging(overlay(&hubs.base, &folder, text).await?)?;
    base.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
    let minimal = values("minimal");
    let on = "crds.enabled=true,rbac.clientCertificates=true,certificateApprover.enabled=true";
    let chart = without_packaging(charted(&hubs, &["-f", &minimal, "--set", on]).await?)?;
    assert_same(&base, &chart);
    for name in [
        "keyferry-client-certificates",
        "keyferry-certificate-approver",
    ] {
        let role = ("ClusterRole".to_owned(), String::new(), name.to_owned());
        assert!(chart.contains_key(&role), "{name}");
    }
    // Only the second account may approve.
    let roles = of_kinds(&chart, &["ClusterRole"]);
    let approve = roles
        .iter()
        .filter(|(_, role)| role.to_string().contains("\"approve\""));
    let approve: Vec<&str> = approve.map(|((_, _, name), _)| name.as_str()).collect();
    assert_eq!(approve, ["keyferry-certificate-approver"]);
    let alone = template(
        hubs.fleet(),
        &["-f", &minimal, "--set", "certificateApprover.enabled=true"],
    )
    .await?;
    assert!(!alone.good && alone.stderr.contains("needs rbac.clientCertificates"));
    Ok(())
}

/// Every folder of examples/install renders: by itself, or as a component of an overlay of the base.
pub(crate) async fn every_folder_renders(hubs: Arc<Hubs>) -> TestResult {
    let mut components = 0;
    for entry in std::fs::read_dir(shipped("examples/install"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(entry.path().join("kustomization.yaml")) else {
            continue;
        };
        if !text.contains("kind: Component") {
            assert!(!kustomized(&hubs, &name).await?.is_empty(), "{name}");
            continue;
        }
        components += 1;
        // The Deployment that a component of Flux's kustomization changes.
        let flux = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: kustomize-controller\n  namespace: flux-system\n";
        let folder = hubs.fleet().folder().join(format!("renders-{name}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("flux.yaml"), flux)?;
        let below = if name == "sidecar" {
            "flux.yaml, examples/install/sidecar/base"
        } else {
            "examples/install/base"
        };
        let text = format!("resources: [{below}]\ncomponents: [examples/install/{name}]\n");
        assert!(
            !overlay(&hubs.base, &folder, &text).await?.is_empty(),
            "{name}"
        );
    }
    assert_eq!(components, 11);
    Ok(())
}
