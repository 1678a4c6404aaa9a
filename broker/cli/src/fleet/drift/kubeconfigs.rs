//! Reads the folder with a kubeconfig for each target, and with files of targets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keyferry_api::name::ObjectName;
use keyferry_fleet::snapshot::Snapshot;
use keyferry_kube_authn::config::MAX_BYTES;

use crate::command_error::CommandError;
use crate::{local_file, ui};

/// What a file's name ends in, if it is the AuthenticationConfiguration of a target.
const FILE_ENDING: &str = ".authentication.yaml";
/// What the name of a kubeconfig may end in.
const KUBECONFIG_ENDINGS: [&str; 3] = [".yaml", ".kubeconfig", ""];

/// Lists the kubeconfigs of a folder, and reads the files of targets in it into the snapshot. Links
/// are followed, because a mounted Secret consists of links. A file of no target is named in a
/// warning, and not read.
///
/// # Errors
/// The folder, or an AuthenticationConfiguration in it, cannot be read.
pub(super) fn read_target_folder(
    folder: &Path,
    snapshot: &mut Snapshot,
) -> Result<BTreeMap<ObjectName, PathBuf>, CommandError> {
    let failed = |error: std::io::Error| {
        let shown = ui::plain(&folder.display().to_string());
        CommandError::with_fix(
            format!("reading the folder of --target-kubeconfigs {shown}: {error}"),
            "name a folder with one kubeconfig for each target, such as prod.yaml",
        )
    };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    let mut kubeconfigs = BTreeMap::new();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('.') || path.is_dir() {
            continue;
        }
        let target_of = |ending: &str| {
            let target = ObjectName::new(name.strip_suffix(ending)?).ok()?;
            snapshot.targets.contains_key(&target).then_some(target)
        };
        if let Some(target) = target_of(FILE_ENDING) {
            let bytes = local_file::read(&path, "the AuthenticationConfiguration", MAX_BYTES)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            snapshot
                .target_files
                .entry(target)
                .or_default()
                .authentication = Some(text);
            continue;
        }
        let target = KUBECONFIG_ENDINGS
            .iter()
            .find_map(|ending| target_of(ending));
        let problem = match target {
            None => "is of no target that was read",
            Some(target) if kubeconfigs.contains_key(&target) => {
                "is a second kubeconfig of its target"
            }
            Some(target) => {
                kubeconfigs.insert(target, path);
                continue;
            }
        };
        ui::note(&format!(
            "warning: {} {problem}, and was not used",
            ui::plain(&name)
        ));
    }
    Ok(kubeconfigs)
}
