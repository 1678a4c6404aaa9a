//! `--state-dir`: keeps the last valid key journal on local disk, so that a process that restarts
//! while the hub is unreachable publishes the same keys.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use keyferry_keys::key_journal::{KeyJournal, MAX_JOURNAL_BYTES};
use parking_lot::Mutex;

const JOURNAL_FILE: &str = "keys.json";
const NEXT_JOURNAL_FILE: &str = "keys.json.next";

/// A directory with the last key journal.
pub struct StateDirectory {
    directory: PathBuf,
    written: Mutex<Vec<u8>>,
}

impl StateDirectory {
    /// Uses `directory`, which must exist.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            written: Mutex::default(),
        }
    }

    /// Reads the last written key journal; `None` if it is absent or not valid.
    pub fn read_journal(&self) -> Option<KeyJournal> {
        let path = self.directory.join(JOURNAL_FILE);
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_JOURNAL_BYTES)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        File::open(&path)
            .ok()?
            .take(limit)
            .read_to_end(&mut bytes)
            .ok()?;
        match KeyJournal::from_bytes(&bytes) {
            Ok(journal) => Some(journal),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the state directory's record is not used");
                None
            }
        }
    }

    /// Replaces the key journal atomically. An unchanged journal is not written again.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn write_journal(&self, journal: &KeyJournal) -> std::io::Result<()> {
        let bytes = journal.to_bytes().map_err(std::io::Error::other)?;
        let mut written = self.written.lock();
        if *written == bytes {
            return Ok(());
        }
        let next = self.directory.join(NEXT_JOURNAL_FILE);
        match fs::remove_file(&next) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&next, self.directory.join(JOURNAL_FILE))?;
        File::open(&self.directory)?.sync_all()?;
        *written = bytes;
        Ok(())
    }
}
