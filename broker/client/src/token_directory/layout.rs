//! Names, permissions and single files of a token directory.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Gid, Mode, OFlags, fchmod, fchown, mkdirat, openat};
use rustix::io::Errno;

use super::{MAX_BYTES, Rights};

impl Rights {
    /// Users with access to a file must also be able to enter its directory.
    pub(super) fn folder_mode(self) -> Mode {
        Mode::from_raw_mode(if self.mode & 0o040 == 0 { 0o700 } else { 0o750 })
    }

    pub(super) fn give(self, file: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
        if let Some(group) = self.group {
            fchown(&file, None, Some(Gid::from_raw(group)))?;
        }
        fchmod(&file, mode)
    }
}

/// Whether a name is that of a dated directory: `..2026_08_01_10_00_00.0123456789abcdef`.
pub(super) fn is_dated(name: &str) -> bool {
    let pattern = "..dddd_dd_dd_dd_dd_dd.xxxxxxxxxxxxxxxx";
    name.len() == pattern.len()
        && name
            .bytes()
            .zip(pattern.bytes())
            .all(|(byte, wanted)| match wanted {
                b'd' => byte.is_ascii_digit(),
                b'x' => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
                other => byte == other,
            })
}

/// Opens a subdirectory, created with these permissions if needed.
pub(super) fn subfolder(folder: &OwnedFd, name: &str, rights: Rights) -> std::io::Result<OwnedFd> {
    let made = match mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(folder, name, flags, Mode::empty())?;
    if made {
        rights.give(&folder, rights.folder_mode())?;
    }
    Ok(folder)
}

/// Reads a file, if it has the expected permissions.
pub(super) fn read(folder: &OwnedFd, name: &str, rights: Rights) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    let as_asked = metadata.mode() & 0o7777 == rights.mode
        && rights.group.is_none_or(|group| group == metadata.gid());
    if !metadata.is_file() || !as_asked {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
