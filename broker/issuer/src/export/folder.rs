//! Writes files below one open folder. No path leads out of the folder, and no reader sees a
//! half-written file.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::ExportError;

/// The temporary name of a file. One export writes at a time, so one name is enough.
const UNFINISHED_FILE: &str = ".keyferry-export-unfinished";
/// The size limit, larger than any file of an export.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// An open folder, locked until this is dropped.
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, ExportError> {
        let wrong = |source: std::io::Error| ExportError::Open {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path).map_err(wrong)?;
        let folder: OwnedFd = File::open(path).map_err(wrong)?.into();
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(folder)),
            Err(Errno::WOULDBLOCK) => Err(ExportError::Busy(path.to_owned())),
            Err(error) => Err(wrong(error.into())),
        }
    }

    /// Reads a file; `None` if there is none.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ExportError> {
        read_file(&self.0, path).map_err(|source| ExportError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Replaces a file by these bytes atomically. Returns false if it already has them.
    pub(super) fn replace(&self, path: &str, bytes: &[u8]) -> Result<bool, ExportError> {
        self.try_replace(path, bytes)
            .map_err(|source| ExportError::Write {
                path: path.to_owned(),
                source,
            })
    }

    fn try_replace(&self, path: &str, bytes: &[u8]) -> std::io::Result<bool> {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folder = self.0.try_clone()?;
        for name in folders.split('/').filter(|name| !name.is_empty()) {
            folder = open_subfolder(&folder, name)?;
        }
        if read_file(&folder, name)?.is_some_and(|there| there == bytes) {
            return Ok(false);
        }
        // A leftover of a killed export: the folder is locked, so no other process writes it.
        match unlinkat(&self.0, UNFINISHED_FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(
            &self.0,
            UNFINISHED_FILE,
            flags,
            Mode::from_raw_mode(0o644),
        )?);
        file.write_all(bytes)?;
        file.sync_all()?;
        renameat(&self.0, UNFINISHED_FILE, &folder, name)?;
        // Only this makes the new name durable.
        fsync(&folder)?;
        Ok(true)
    }
}

fn open_subfolder(folder: &OwnedFd, name: &str) -> std::io::Result<OwnedFd> {
    match mkdirat(folder, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => fsync(folder)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Reads a file; `None` if it does not exist or is a link, which is replaced and not followed.
fn read_file(folder: impl AsFd, name: &str) -> std::io::Result<Option<Vec<u8>>> {
    // A pipe with this name must not block the read.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
