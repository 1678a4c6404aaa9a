//! An audit log file that survives rotation, and can rotate itself.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use keyferry_api::config::{AuditFile, AuditRotation};

/// A log file that is reopened when its path names another file or none: records must not get lost
/// in a rotated file.
pub(super) struct LogFile {
    settings: AuditFile,
    file: File,
    /// In bytes.
    size: u64,
    /// The last line of an earlier process is incomplete: its disk was full, or it was killed. A
    /// line break keeps the next record apart, which would be unreadable otherwise.
    is_torn: bool,
}

impl LogFile {
    pub(super) fn open(settings: AuditFile) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let file = options.open(&settings.path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            is_torn: ends_within_line(&settings.path, size),
            size,
            settings,
            file,
        })
    }

    fn is_in_place(&self) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (here, there) = (
            self.file.metadata().map(identity),
            std::fs::metadata(&self.settings.path).map(identity),
        );
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }

    /// Renames the full file to `.1`, that one to `.2`, and so on. The oldest is overwritten. The
    /// full file is moved first: if that fails, no other file has moved.
    fn rotate_files(&self, rotation: AuditRotation) -> std::io::Result<()> {
        // Left by a rotation that failed halfway: moving the full file there would lose its records.
        if self.backup_path(0).is_file() {
            self.shift_files(rotation)?;
        }
        std::fs::rename(&self.settings.path, self.backup_path(0))?;
        self.shift_files(rotation)
    }

    /// Renames `.0` to `.1`, and what is in its way to the next number.
    fn shift_files(&self, rotation: AuditRotation) -> std::io::Result<()> {
        let most = rotation.max_backups.get();
        let free = (1..most).find(|&number| !self.backup_path(number).exists());
        for number in (0..free.unwrap_or(most)).rev() {
            std::fs::rename(self.backup_path(number), self.backup_path(number + 1))?;
        }
        Ok(())
    }

    fn backup_path(&self, number: u32) -> PathBuf {
        let mut name = self.settings.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Whether a file of this size ends within a line. If it cannot be read, it may: an empty line costs
/// less than a record.
fn ends_within_line(path: &Path, size: u64) -> bool {
    let read_last_byte = || -> std::io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(size.saturating_sub(1)))?;
        let mut last_byte = [0];
        file.read_exact(&mut last_byte)?;
        let [last_byte] = last_byte;
        Ok(last_byte)
    };
    size > 0 && !matches!(read_last_byte(), Ok(b'\n'))
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if !self.is_in_place() {
            *self = Self::open(self.settings.clone())?;
        }
        if let Some(rotation) = self.settings.rotation
            && self.size > 0
            && self.size + text.len() as u64 > rotation.max_size
        {
            self.rotate_files(rotation)?;
            *self = Self::open(self.settings.clone())?;
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.size += 1;
            self.is_torn = false;
        }
        let written = self.file.write(text)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
