//! Reads the folder of a snapshot: regular files alone, up to a limit in all.

use std::path::{Path, PathBuf};

use keyferry_fleet::folder::GapsFile;
use keyferry_platform::regular_file::{self, FileError};
use keyferry_reach::world::{MAX_SNAPSHOT_BYTES, SnapshotNote, World};

use crate::command_error::CommandError;

/// The most files of a snapshot.
const MAX_FILES: usize = 20_000;

/// How many bytes of text are parsed at a time. A larger file is parsed alone.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// The file in which `keyferry snapshot` names the lists that it could not read whole.
const GAPS_FILE: &str = "gaps.yaml";
/// The most bytes of that file.
const MAX_GAPS_BYTES: u64 = 1 << 20;

/// The lists that a snapshot has a file of, and has not read whole.
#[derive(Default)]
struct PartialLists {
    gaps: GapsFile,
}

/// Reads every file of the folder into the world. Returns what its reader should know.
///
/// # Errors
/// A file cannot be read, or has a mistake.
pub(super) fn read(folder: &Path, world: &mut World) -> Result<Vec<String>, CommandError> {
    let mut files = Vec::new();
    for part in ["hub", "targets"] {
        list_files(folder, &PathBuf::from(part), &mut files)?;
    }
    read_files(folder, "", files, world)
}

/// Reads the folders of targets: NAME/FILE and NAME/rbac/FILE.
///
/// # Errors
/// A file cannot be read, or has a mistake.
pub(super) fn read_targets(folder: &Path, world: &mut World) -> Result<Vec<String>, CommandError> {
    let mut files = Vec::new();
    list_files(folder, Path::new(""), &mut files)?;
    read_files(folder, "targets/", files, world)
}

/// Reads files of a folder, whose paths in a snapshot begin with the prefix.
fn read_files(
    folder: &Path,
    prefix: &str,
    mut files: Vec<PathBuf>,
    world: &mut World,
) -> Result<Vec<String>, CommandError> {
    if files.is_empty() {
        return Err(CommandError::with_fix(
            format!("{} has no file below hub or targets", folder.display()),
            "give the folder that has the folder hub, or with --target-files that of the targets",
        ));
    }
    files.sort();
    let partial = PartialLists::read(folder)?;
    let mut left = MAX_SNAPSHOT_BYTES;
    let mut read = |file: PathBuf| -> Result<(String, String), CommandError> {
        let path = folder.join(&file);
        let bytes = regular_file::read_regular_file(&path, left).map_err(|error| match error {
            FileError::TooLong(_) => CommandError::with_fix(
                format!(
                    "{} has more than {} MiB, with {}",
                    folder.display(),
                    MAX_SNAPSHOT_BYTES >> 20,
                    file.display()
                ),
                "write it with keyferry snapshot, which leaves out what no answer needs",
            ),
            error => CommandError::new(format!("reading {}: {error}", path.display())),
        })?;
        left = left.saturating_sub(bytes.len() as u64);
        let text = String::from_utf8(bytes)
            .map_err(|_| CommandError::new(format!("{} is not UTF-8", path.display())))?;
        let path = partial.path_of(&format!("{prefix}{}", file.display()));
        Ok((path, text))
    };
    let mut add = |files: &mut Vec<(String, String)>| -> Result<Vec<String>, CommandError> {
        let notes = world
            .add_files(files)
            .map_err(|error| CommandError::of_quoting_line(&error.to_string()))?;
        files.clear();
        Ok(notes.iter().filter_map(words).collect())
    };
    let (mut batch, mut bytes, mut notes) = (Vec::new(), 0, Vec::new());
    for file in files {
        let file = read(file)?;
        if bytes + file.1.len() > MAX_BATCH_BYTES {
            notes.extend(add(&mut batch)?);
            bytes = 0;
        }
        bytes += file.1.len();
        batch.push(file);
    }
    notes.extend(add(&mut batch)?);
    Ok(notes)
}

impl PartialLists {
    fn read(folder: &Path) -> Result<Self, CommandError> {
        let path = folder.join(GAPS_FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let wrong = |error: &dyn std::fmt::Display| {
            CommandError::new(format!("reading {}: {error}", path.display()))
        };
        let bytes = regular_file::read_regular_file(&path, MAX_GAPS_BYTES)
            .map_err(|error| wrong(&error))?;
        let gaps = GapsFile::read(&bytes).map_err(|error| wrong(&error))?;
        Ok(Self { gaps })
    }

    /// The path by which a file is read. A list that is not whole gets a name of no list: its
    /// objects exist, and nothing follows from what is not in it.
    fn path_of(&self, file: &str) -> String {
        let parts: Vec<&str> = file.split('/').collect();
        match parts.as_slice() {
            ["hub", name] if self.is_partial(None, name) => format!("hub/part-of-{name}"),
            ["targets", target, "rbac", name] if self.is_partial(Some(target), name) => {
                format!("targets/{target}/rbac/part-of-{name}")
            }
            _ => file.to_owned(),
        }
    }

    fn is_partial(&self, target: Option<&str>, file: &str) -> bool {
        let resource = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
        let is_about = |gap: &keyferry_fleet::gap::Gap| {
            gap.target.as_ref().map(|name| name.as_str()) == target
                && resource(&gap.resource) == resource(file)
        };
        (target.is_none() && self.gaps.tenant.is_some()) || self.gaps.gaps.iter().any(is_about)
    }
}

fn words(note: &SnapshotNote) -> Option<String> {
    match note {
        SnapshotNote::Cut(path) => Some(format!(
            "warning: {path} ends before its end, so nothing of it counts"
        )),
        SnapshotNote::SecretData(path) => Some(format!(
            "warning: {path} has the data of Secrets; it was read for names only"
        )),
        SnapshotNote::Skipped(_) => None,
    }
}

/// Lists the files below a folder that may be absent, as paths below the root.
fn list_files(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CommandError> {
    let wrong = |error: std::io::Error| {
        CommandError::new(format!("reading {}: {error}", root.join(folder).display()))
    };
    let entries = match std::fs::read_dir(root.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(wrong(error)),
    };
    for entry in entries {
        let entry = entry.map_err(wrong)?;
        let path = folder.join(entry.file_name());
        // hub/FILE, targets/NAME/FILE and targets/NAME/rbac/FILE.
        if entry.file_type().map_err(wrong)?.is_dir() {
            if path.components().count() <= 3 {
                list_files(root, &path, files)?;
            }
        } else if files.len() < MAX_FILES {
            files.push(path);
        } else {
            return Err(CommandError::with_fix(
                format!("{} has more than {MAX_FILES} files", root.display()),
                "give the lists of a cluster in one file each",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::name::Namespace;

    use super::*;

    #[test]
    fn a_folder_that_is_too_large_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let hub = folder.path().join("hub");
        std::fs::create_dir(&hub).unwrap();
        std::fs::write(
            hub.join("namespaces.yaml"),
            "apiVersion: v1\nitems: []\nkind: List\n",
        )
        .unwrap();
        // It has no blocks on the disk.
        let large = std::fs::File::create(hub.join("pods.yaml")).unwrap();
        large.set_len(MAX_SNAPSHOT_BYTES).unwrap();
        let mut world = World::new(Namespace::new("keyferry-system").unwrap());
        let error = read(folder.path(), &mut world).unwrap_err().to_string();
        let place = folder.path().display();
        let wanted = format!("{place} has more than 256 MiB, with hub/pods.yaml");
        assert!(error.starts_with(&wanted), "{error}");
        large.set_len(0).unwrap();
        read(folder.path(), &mut world).unwrap();
    }

    #[test]
    fn a_list_with_a_gap_is_no_whole_list() {
        let partial = |text: &str| PartialLists {
            gaps: GapsFile::read(text.as_bytes()).unwrap(),
        };
        let whole = partial("schema: keyferry.dev/snapshot/v1\n");
        let refused = partial(
            "schema: keyferry.dev/snapshot/v1\ngaps:\n- {resource: targetclusters.keyferry.dev, cause: Refused}\n",
        );
        let tenant = partial("schema: keyferry.dev/snapshot/v1\ntenant: tenant-a\n");
        for (lists, file, path) in [
            (&whole, "hub/targetclusters.yaml", "hub/targetclusters.yaml"),
            (
                &refused,
                "hub/targetclusters.yaml",
                "hub/part-of-targetclusters.yaml",
            ),
            (
                &refused,
                "hub/targetaccesses.yaml",
                "hub/targetaccesses.yaml",
            ),
            (
                &refused,
                "targets/prod/rbac/roles.yaml",
                "targets/prod/rbac/roles.yaml",
            ),
            (
                &tenant,
                "hub/targetaccesses.yaml",
                "hub/part-of-targetaccesses.yaml",
            ),
            (&tenant, "targets/prod/release", "targets/prod/release"),
        ] {
            assert_eq!(lists.path_of(file), path);
        }
    }
}
