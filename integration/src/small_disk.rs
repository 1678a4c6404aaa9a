//! A small filesystem in memory, which a test fills and frees.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tokio::process::Command;

const FILLER: &str = "filler";

/// Why there is no small filesystem.
#[derive(Debug, thiserror::Error)]
#[error("no filesystem in memory can be mounted here: {0}; run the tests as root")]
pub struct SmallDiskError(String);

/// A mounted filesystem of some KiB. Dropping it unmounts it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts it at a folder, which is created.
    ///
    /// # Errors
    /// This machine does not let the test mount, which counts as a missing part.
    pub async fn mount(folder: &Path, kib: u32) -> Result<Self, SmallDiskError> {
        let failed = |error: io::Error| SmallDiskError(error.to_string());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let output = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={kib}k"),
                "keyferry-test",
            ])
            .arg(folder)
            .output()
            .await
            .map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(SmallDiskError(said));
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Writes until nothing more fits.
    ///
    /// # Errors
    /// Another error than that it is full.
    pub fn fill(&self) -> io::Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(FILLER))?;
        loop {
            match file.write_all(&[0; 1024]) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                written => written?,
            }
        }
    }

    /// Removes what [`Self::fill`] wrote.
    ///
    /// # Errors
    /// The system's error.
    pub fn free(&self) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(FILLER))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process of the test may still have a file open there.
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.folder)
            .status();
    }
}
