//! `keyferry trust --output-dir`: writes the parts of the output as files of a folder, each of them
//! whole or not at all.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use keyferry_platform::regular_file::{self, FileError};
use tempfile::NamedTempFile;

use super::distribution::OutputFile;

/// Where a command writes its parts as files.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OutputDirArgs {
    /// A folder for the parts, which are then not printed.
    ///
    /// hub.yaml, authentication.yaml, rbac.yaml and instructions.txt, as far as the command has
    /// them. It is created if missing. A file with other content is not replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Replace files of --output-dir that have other content.
    #[arg(long, requires = "output_dir", hide_short_help = true)]
    pub(crate) force: bool,
}

/// More than `trust` ever prints; a longer file is another one.
const MAX_BYTES: u64 = 16 << 20;

/// A file of the folder cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing {}: {problem}", path.display())]
pub(crate) struct OutputDirError {
    path: PathBuf,
    problem: OutputDirProblem,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
enum OutputDirProblem {
    #[error("it has other content; fix: compare the two, then give --force to replace it")]
    Differs,
    #[error(transparent)]
    File(#[from] FileError),
}

/// What a path of the folder contains before a file is written there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExistingContent {
    Free,
    Same,
    Other,
}

/// Writes the files, and returns one line about each. Nothing is written if any file of the folder
/// has other content, unless `force` is set. A reader sees the old file or the new one, because each
/// is written under another name and then renamed.
///
/// # Errors
/// [`OutputDirError`] names the file. Files that were renamed before stay.
pub(crate) fn write(
    folder: &Path,
    files: &[&OutputFile],
    force: bool,
) -> Result<Vec<String>, OutputDirError> {
    let wrong = |path: &Path, problem: OutputDirProblem| OutputDirError {
        path: path.to_owned(),
        problem,
    };
    let system = |path: &Path, error: std::io::Error| wrong(path, FileError::from(error).into());
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(system(folder, error));
        }
        _ => {}
    }
    let mut lines = Vec::new();
    let mut staged = Vec::new();
    for file in files.iter().copied() {
        let path = folder.join(file.name);
        let place =
            compare_existing_file(&path, &file.text).map_err(|error| wrong(&path, error.into()))?;
        if place == ExistingContent::Other && !force {
            return Err(wrong(&path, OutputDirProblem::Differs));
        }
        if place == ExistingContent::Same {
            lines.push(format!("{}: unchanged", path.display()));
        } else {
            lines.push(format!("{}: written", path.display()));
            staged.push((path, place, file));
        }
    }
    // All of them are written in full before the first takes its name.
    let staged = staged
        .into_iter()
        .map(|(path, place, file)| match temporary(folder, file) {
            Ok(temporary) => Ok((path, place, temporary)),
            Err(error) => Err(system(&path, error)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    for (path, place, temporary) in staged {
        // A file that appeared since the check is not replaced.
        let persisted = match place {
            ExistingContent::Free if !force => temporary.persist_noclobber(&path),
            _ => temporary.persist(&path),
        };
        persisted.map_err(|error| system(&path, error.error))?;
    }
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| system(folder, error))?;
    Ok(lines)
}

fn compare_existing_file(path: &Path, text: &str) -> Result<ExistingContent, FileError> {
    match regular_file::read_regular_file(path, MAX_BYTES) {
        Ok(bytes) if bytes == text.as_bytes() => Ok(ExistingContent::Same),
        Ok(_) | Err(FileError::TooLong(_)) => Ok(ExistingContent::Other),
        Err(FileError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(ExistingContent::Free)
        }
        Err(error) => Err(error),
    }
}

/// Writes a file under a name that no other process uses. It is removed unless it is renamed.
fn temporary(folder: &Path, file: &OutputFile) -> std::io::Result<NamedTempFile> {
    let mut temporary = tempfile::Builder::new()
        .prefix(&format!(".{}.", file.name))
        .suffix(".next")
        // Nothing in it is secret, and kube-apiserver may run as another user.
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    temporary.write_all(file.text.as_bytes())?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn files(text: &str) -> [OutputFile; 2] {
        ["authentication.yaml", "rbac.yaml"].map(|name| OutputFile {
            name,
            text: format!("{name} {text}"),
        })
    }

    fn refs(files: &[OutputFile]) -> Vec<&OutputFile> {
        files.iter().collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_written_once_and_replaced_only_by_force() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("prod");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        write(&folder, &refs(&files("a")), false).unwrap();
        assert_eq!(names(&folder), ["authentication.yaml", "rbac.yaml"]);
        assert_eq!(read("rbac.yaml"), "rbac.yaml a");
        let again = write(&folder, &refs(&files("a")), false).unwrap();
        assert!(
            again.iter().all(|line| line.ends_with("unchanged")),
            "{again:?}"
        );
        // The second file differs, so the first one is not written either.
        std::fs::remove_file(folder.join("authentication.yaml")).unwrap();
        let error = write(&folder, &refs(&files("b")), false).unwrap_err();
        assert!(
            error.to_string().contains("rbac.yaml") && error.to_string().contains("--force"),
            "{error}"
        );
        assert_eq!(names(&folder), ["rbac.yaml"]);
        assert_eq!(read("rbac.yaml"), "rbac.yaml a");
        write(&folder, &refs(&files("b")), true).unwrap();
        assert_eq!(names(&folder), ["authentication.yaml", "rbac.yaml"]);
        assert_eq!(read("rbac.yaml"), "rbac.yaml b");
        let mode = std::fs::metadata(folder.join("rbac.yaml"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o133, 0, "{mode:o}");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("rbac.yaml")).unwrap();
        let error = write(parent.path(), &refs(&files("a")), true).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert_eq!(names(parent.path()), ["rbac.yaml"]);
        let missing = parent.path().join("a/b");
        assert!(
            write(&missing, &refs(&files("a")), false).is_err(),
            "its parent does not exist"
        );
    }
}
