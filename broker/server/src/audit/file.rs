//! An audit log file that survives rotation.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A log file that is reopened when its path names another file or none: records must not get lost
/// in a rotated file.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        Ok(Self {
            path: path.to_owned(),
            file: options.open(path)?,
        })
    }

    fn is_in_place(&self) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (here, there) = (
            self.file.metadata().map(identity),
            std::fs::metadata(&self.path).map(identity),
        );
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if !self.is_in_place() {
            *self = Self::open(&self.path)?;
        }
        self.file.write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
