//! Opens files that a user names: only regular ones, of bounded size, without blocking.
//!
//! Opening a named pipe waits for a writer, and a device may have no end: without this check a
//! command would hang silently.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The error of the operating system.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// A pipe, a device, a socket or a folder.
    #[error("it is not a regular file")]
    NotRegular,
    /// The file exceeds the limit.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
}

/// Opens a regular file of at most `limit` bytes.
///
/// # Errors
/// [`FileError`].
pub fn open_regular_file(path: &Path, limit: u64) -> Result<File, FileError> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY).bits())
        .unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    if metadata.len() > limit {
        Err(FileError::TooLong(limit))
    } else {
        Ok(file)
    }
}

/// Checks that [`open_regular_file`] would accept the file, for a library that opens it itself.
///
/// # Errors
/// [`FileError`].
pub fn check_regular_file(path: &Path, limit: u64) -> Result<(), FileError> {
    open_regular_file(path, limit).map(drop)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// [`FileError`].
pub fn read_regular_file(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    // The file may have grown since its size was checked.
    open_regular_file(path, limit)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(FileError::TooLong(limit))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::{FileError, read_regular_file};

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe, link) = (
            folder.path().join("file"),
            folder.path().join("pipe"),
            folder.path().join("link"),
        );
        std::fs::write(&file, "1234").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_regular_file(&link, 4).unwrap(), b"1234");
        assert!(matches!(
            read_regular_file(&file, 3),
            Err(FileError::TooLong(3))
        ));
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert!(
                matches!(read_regular_file(path, 4), Err(FileError::NotRegular)),
                "{}",
                path.display()
            );
        }
        assert!(matches!(
            read_regular_file(&folder.path().join("none"), 4),
            Err(FileError::System(_))
        ));
    }
}
