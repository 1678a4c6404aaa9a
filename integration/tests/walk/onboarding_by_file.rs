//! Onboards and offboards where the objects are in Keyferry's configuration file, and separates what
//! belongs into it from what is applied.

use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::ISSUER;

use super::onboarding::{Journey, TRUSTS_NOBODY};
use super::place::Here;

/// From nothing to a proven token: the user adds what the command writes to a file.
pub(super) async fn by_configuration_file(
    place: Here,
    plane: std::sync::Arc<ControlPlane>,
) -> TestResult {
    let (name, tenant) = ("by-file", "by-file-one");
    let shell = place.shell(name, &place.by_file, "tenant-b").await?;
    let journey = Journey::new(place, plane, shell, name)?;
    let command = format!(
        "keyferry onboard target {name} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
         --audience https://{name}.example.com --bind pod-reader --bind-cluster-wide --merge present.yaml --discovery-ca ca.crt --config \
         config.yaml --apply"
    );
    let (code, said) = journey
        .run(&format!("{command} --output-dir parts"))
        .await?;
    assert_eq!(code, Some(3), "{said}");
    for wanted in [
        "parts/hub.yaml: written",
        "parts/configuration.yaml: written",
        "NOT PROVEN: the configuration file lacks what is shown",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let read = |file: &str| std::fs::read_to_string(journey.shell.folder().join(file));
    let (hub, lacks) = (read("parts/hub.yaml")?, read("parts/configuration.yaml")?);
    for (kind, in_file) in [
        ("TargetCluster", true),
        ("TargetAccess", true),
        ("Secret", false),
        ("RoleBinding", false),
    ] {
        let line = format!("kind: {kind}\n");
        assert_eq!(lacks.contains(&line), in_file, "{kind}: {lacks}");
        assert_eq!(hub.contains(&line), !in_file, "{kind}: {hub}");
    }
    let (code, said) = journey
        .run("cat parts/configuration.yaml >> config.yaml")
        .await?;
    assert_eq!(code, Some(0), "{said}");
    journey.guided(&command, "by-file").await?;

    // What is taken away is named by its lines.
    let (code, said) = journey
        .run(&format!(
            "keyferry offboard target {name} --config config.yaml"
        ))
        .await?;
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("{tenant}/{name}  app             yes")),
        "{said}"
    );
    let (code, removed) = journey
        .run(&format!(
            "keyferry offboard target {name} --config config.yaml | sed -nE 's/^lines ([0-9]+) to \
             ([0-9]+): .*/\\1,\\2d/p' > lines.sed\nsed -f lines.sed config.yaml > without.yaml\n\
             keyferry targets --config without.yaml"
        ))
        .await?;
    assert_eq!(code, Some(0), "{removed}");
    let without = read("without.yaml")?;
    assert!(!without.contains(tenant), "{without}");
    assert!(removed.contains("tenant-b"), "{removed}");
    let (code, said) = journey
        .run(&format!(
            "keyferry offboard tenant {tenant} --target {name} --config config.yaml --remove"
        ))
        .await?;
    assert_eq!(code, Some(1), "{said}");
    for wanted in [
        "spec.allow of TargetCluster",
        "nothing was removed",
        "fix: ",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    Ok(())
}

/// A managed issuer of a server that reads its objects from its file: only that server can prove it.
pub(crate) async fn onboards_a_managed_issuer_by_file(place: Here) -> TestResult {
    let (name, tenant) = ("managed-file", "managed-file-one");
    let spec = ControlPlaneSpec {
        issuers: vec![ISSUER.to_owned()],
        authentication_config: Some(TRUSTS_NOBODY.to_owned()),
        ..ControlPlaneSpec::named(name)
    };
    let plane = Arc::new(place.world.ground.control_plane(spec).await?);
    let shell = place.shell(name, &place.by_file, "tenant-b").await?;
    let journey = Journey::new(place, plane, shell, name)?;
    // The file that the server has read, and reads again.
    let config = journey.site.by_file.config().display().to_string();
    let command = format!(
        "keyferry onboard target {name} --target-kubeconfig fresh.kubeconfig --tenant {tenant}/app \
         --audience https://{name}.example.com --managed-issuer --merge present.yaml --discovery-ca \
         ca.crt --config {config} --apply"
    );
    let (code, said) = journey
        .run(&format!("{command} --output-dir parts"))
        .await?;
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("+ Role keyferry-issuer-managed-file in keyferry-file"),
        "{said}"
    );
    let (code, said) = journey
        .run(&format!("cat parts/configuration.yaml >> {config}"))
        .await?;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = journey.run(&command).await?;
    assert_eq!(code, Some(1), "{said}");
    for wanted in ["NOT PROVEN: ", "managed issuer", "add --server URL"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    journey.write_file_of_managed_issuer(&said).await?;
    journey.proven_by_the_server(&command).await
}
