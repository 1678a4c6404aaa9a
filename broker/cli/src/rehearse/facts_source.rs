//! Reads the facts that `rehearse` starts from: those of the hub, or of a folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::name::Namespace;
use keyferry_fleet::facts::Fleet;
use keyferry_fleet::folder::FolderReader;
use keyferry_fleet::judge::judge;
use keyferry_fleet::snapshot::Snapshot;

use super::SceneArgs;
use crate::command_error::CommandError;
use crate::local_file;
use crate::ui;

/// The deepest folder below a snapshot: targets/NAME/rbac.
const MAX_DEPTH: usize = 3;

/// Reads the facts, judged at `now`.
///
/// # Errors
/// The folder cannot be read, or the hub does not answer.
pub(super) async fn read_fleet(
    scene: &SceneArgs,
    _max_age: Duration,
    now: Timestamp,
) -> Result<Fleet, CommandError> {
    let snapshot = match &scene.snapshot {
        Some(folder) => read_folder(folder)?,
        None => return Err(CommandError::new("reading the hub is not wired")),
    };
    let mut fleet = judge(&snapshot, now);
    if let Some(namespace) = &scene.namespace {
        keep_namespace(&mut fleet, namespace);
    }
    Ok(fleet)
}

/// Leaves the accesses of one namespace, as if no other had been read.
fn keep_namespace(fleet: &mut Fleet, namespace: &Namespace) {
    fleet
        .accesses
        .retain(|access| access.name.namespace == *namespace);
    fleet
        .tenants
        .retain(|tenant| tenant.namespace == *namespace);
    fleet.reading.tenant = Some(namespace.clone());
}

/// Reads a folder that `keyferry snapshot` or kubectl wrote.
fn read_folder(folder: &Path) -> Result<Snapshot, CommandError> {
    let name = folder.display().to_string();
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::with_fix(
            format!("reading the snapshot {name}: {error}"),
            "name a folder with hub/targetclusters.yaml and hub/targetaccesses.yaml, as kubectl get \
             -o yaml prints them, and keys.json of keyferry keys -o json",
        )
    };
    let mut files = BTreeMap::new();
    list_files(folder, "", 0, &mut files).map_err(|error| failed(&error))?;
    let mut reader = FolderReader::new(&name);
    let mut oldest: Option<Timestamp> = None;
    for (file, (size, modified_at)) in files {
        if !reader
            .accept_file(&file, size)
            .map_err(|error| failed(&error))?
        {
            continue;
        }
        let limit = usize::try_from(size).unwrap_or(usize::MAX);
        let bytes = local_file::read(&folder.join(&file), "a part of the snapshot", limit)
            .map_err(|error| failed(&error))?;
        reader.add_file(&file, &bytes);
        oldest = Some(oldest.map_or(modified_at, |oldest| oldest.min(modified_at)));
    }
    let reading = reader
        .finish(oldest.unwrap_or(Timestamp::UNIX_EPOCH))
        .map_err(|error| failed(&error))?;
    for warning in &reading.warnings {
        ui::note(warning);
    }
    Ok(reading.snapshot)
}

/// Lists the regular files below a folder, by their path with `/`, with size and time. Follows no
/// link.
fn list_files(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut BTreeMap<String, (u64, Timestamp)>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if metadata.is_dir() && depth < MAX_DEPTH {
            list_files(&entry.path(), &format!("{name}/"), depth + 1, files)?;
        } else if metadata.is_file() {
            let modified_at =
                Timestamp::try_from(metadata.modified()?).unwrap_or(Timestamp::UNIX_EPOCH);
            files.insert(name, (metadata.len(), modified_at));
        }
    }
    Ok(())
}
