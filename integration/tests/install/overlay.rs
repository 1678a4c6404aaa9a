//! Renders overlays of the examples with the real kubectl, as a user writes them.

use std::collections::BTreeMap;
use std::path::Path;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::pod_process::DataByName;
use keyferry_integration::runner::TestError;
use keyferry_integration::world::shipped;

use super::manifests::{Objects, objects};
use super::setup::kubectl;

/// Writes an overlay into a folder and renders it. Paths that begin with `examples/` are those of
/// the repository.
pub(crate) async fn overlay(
    plane: &ControlPlane,
    folder: &Path,
    text: &str,
) -> Result<Objects, TestError> {
    overlay_of(&shipped(""), plane, folder, text).await
}

/// As [`overlay`], with the examples of another checkout.
pub(crate) async fn overlay_of(
    checkout: &Path,
    plane: &ControlPlane,
    folder: &Path,
    text: &str,
) -> Result<Objects, TestError> {
    std::fs::create_dir_all(folder)?;
    // kustomize takes folders by relative paths only.
    let examples = format!("{}/examples/", relative(folder, checkout)?);
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{}",
        text.replace("examples/", &examples)
    );
    std::fs::write(folder.join("kustomization.yaml"), text)?;
    let folder = folder.display().to_string();
    objects(&kubectl(plane, &["kustomize", &folder]).await?)
}

/// The data of rendered ConfigMaps by their names.
pub(crate) fn config_maps(rendered: &Objects) -> DataByName {
    let found = rendered
        .iter()
        .filter(|((kind, ..), _)| kind == "ConfigMap");
    found
        .map(|((_, _, name), object)| {
            let data = object["data"].as_object().into_iter().flatten();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let data: BTreeMap<_, _> = data
                .map(|(key, value)| (key.clone(), text(value)))
                .collect();
            (name.clone(), data)
        })
        .collect()
}

/// The way from one absolute folder to another.
fn relative(from: &Path, to: &Path) -> Result<String, TestError> {
    let (from, to) = (from.canonicalize()?, to.canonicalize()?);
    let up = "../".repeat(from.components().count().saturating_sub(1));
    let down = to.strip_prefix("/")?.display().to_string();
    Ok(format!("{up}{down}"))
}
