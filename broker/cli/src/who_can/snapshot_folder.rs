//! Reads the folder of a snapshot: regular files alone, up to a limit in all.

use std::path::{Path, PathBuf};

use keyferry_platform::regular_file;
use keyferry_reach::world::{MAX_SNAPSHOT_BYTES, SnapshotNote, World};

use crate::command_error::CommandError;

/// The most files of a snapshot.
const MAX_FILES: usize = 20_000;

/// Reads every file of the folder into the world. Returns what its reader should know.
///
/// # Errors
/// A file cannot be read, or has a mistake.
pub(super) fn read(folder: &Path, world: &mut World) -> Result<Vec<String>, CommandError> {
    let mut files = Vec::new();
    for part in ["hub", "targets"] {
        list_files(folder, &PathBuf::from(part), &mut files)?;
    }
    if files.is_empty() {
        return Err(CommandError::with_fix(
            format!("{} has no file below hub or targets", folder.display()),
            "give the folder that has the folder hub",
        ));
    }
    files.sort();
    let (mut left, mut notes) = (MAX_SNAPSHOT_BYTES, Vec::new());
    for file in files {
        let path = folder.join(&file);
        let bytes = regular_file::read_regular_file(&path, left)
            .map_err(|error| CommandError::new(format!("reading {}: {error}", path.display())))?;
        left = left.saturating_sub(bytes.len() as u64);
        let text = String::from_utf8(bytes)
            .map_err(|_| CommandError::new(format!("{} is not UTF-8", path.display())))?;
        let added = world
            .add_file(&file.to_string_lossy(), &text)
            .map_err(|error| CommandError::of_line(&error.to_string()))?;
        notes.extend(added.and_then(|note| words(&note)));
    }
    Ok(notes)
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
