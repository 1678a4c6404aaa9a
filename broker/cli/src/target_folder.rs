//! Reads the folder with a kubeconfig for each target, and with files of targets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keyferry_api::name::ObjectName;
use keyferry_kube_authn::config::MAX_BYTES;

use crate::command_error::CommandError;
use crate::{local_file, ui};

/// What a file's name ends in, if it is the AuthenticationConfiguration of a target.
const FILE_ENDING: &str = ".authentication.yaml";
/// What the name of a kubeconfig may end in.
const KUBECONFIG_ENDINGS: [&str; 3] = [".yaml", ".kubeconfig", ""];

/// The files of a folder, by their targets.
pub(crate) struct TargetFolder {
    /// A kubeconfig of each.
    pub(crate) kubeconfigs: BTreeMap<ObjectName, PathBuf>,
    /// The AuthenticationConfigurations that lie beside them.
    pub(crate) authentication: BTreeMap<ObjectName, String>,
}

/// Lists the kubeconfigs of a folder, and reads the AuthenticationConfigurations in it. Links are
/// followed, because a mounted Secret consists of links. A file of no target is named in a warning,
/// and not read.
///
/// # Errors
/// The folder, or an AuthenticationConfiguration in it, cannot be read.
pub(crate) fn read_target_folder(
    folder: &Path,
    is_target: impl Fn(&ObjectName) -> bool,
) -> Result<TargetFolder, CommandError> {
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
    let mut read = TargetFolder {
        kubeconfigs: BTreeMap::new(),
        authentication: BTreeMap::new(),
    };
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
            is_target(&target).then_some(target)
        };
        if let Some(target) = target_of(FILE_ENDING) {
            let bytes = local_file::read(&path, "the AuthenticationConfiguration", MAX_BYTES)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            read.authentication.insert(target, text);
            continue;
        }
        let target = KUBECONFIG_ENDINGS
            .iter()
            .find_map(|ending| target_of(ending));
        let problem = match target {
            None => "is of no target that was read",
            Some(target) if read.kubeconfigs.contains_key(&target) => {
                "is a second kubeconfig of its target"
            }
            Some(target) => {
                read.kubeconfigs.insert(target, path);
                continue;
            }
        };
        ui::note(&format!(
            "warning: {} {problem}, and was not used",
            ui::plain(&name)
        ));
    }
    Ok(read)
}
