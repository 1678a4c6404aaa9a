//! A directory whose files change atomically, in the kubelet's layout: `..data` links to a dated
//! directory, and each visible name links through it. A reader sees either the old files or the new
//! ones, never a mix.

mod layout;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fsync, mkdirat, openat, readlinkat,
    renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use layout::{is_dated, read, subfolder};

/// The link to the current dated directory.
const DATA_LINK: &str = "..data";
/// The new link before it replaces [`DATA_LINK`].
const NEXT_DATA_LINK: &str = "..data_tmp";
/// Every file name that such a directory can have.
const FILE_NAMES: [&str; 4] = ["token", "ca.crt", "namespace", "kubeconfig"];
/// The mode bits of a folder for temporary files of all users: sticky, and writable by others.
const SHARED_FOLDER: u32 = 0o1002;
/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;
/// The most entries that are read: more than such a directory has, even after many crashes.
const MAX_ENTRIES: usize = 1000;

/// Permissions of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permission bits of the files.
    pub mode: u32,
    /// Group of the files.
    pub group: Option<u32>,
}

/// The directory cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing {path}: {problem}")]
pub struct TokenDirectoryError {
    /// The directory.
    pub path: PathBuf,
    /// The problem, or the operating system's error.
    pub problem: String,
}

/// An open directory, locked against a second writer until it is dropped.
pub struct TokenDirectory {
    folder: OwnedFd,
    path: PathBuf,
    rights: Rights,
}

impl TokenDirectory {
    /// Opens a directory, creating it and the folders `below` as needed.
    ///
    /// # Errors
    /// [`TokenDirectoryError`]: it is a link, belongs to another user, or is written by another
    /// agent.
    pub fn open_directory(
        path: &Path,
        below: &[&str],
        rights: Rights,
    ) -> Result<Self, TokenDirectoryError> {
        let mut path = path.to_owned();
        let wrong = |path: &Path, problem: &dyn std::fmt::Display| TokenDirectoryError {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let made = match std::fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(wrong(&path, &error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| wrong(&path, &error))?;
        if made {
            rights
                .give(&folder, rights.folder_mode())
                .map_err(|error| wrong(&path, &error))?;
        }
        for name in below {
            path.push(name);
            folder = subfolder(&folder, name, rights).map_err(|error| wrong(&path, &error))?;
        }
        let metadata = folder
            .try_clone()
            .map(File::from)
            .and_then(|folder| folder.metadata())
            .map_err(|error| wrong(&path, &error))?;
        // The root of a volume belongs to root, and all containers of a Pod may write it.
        if metadata.uid() != rustix::process::geteuid().as_raw() && metadata.uid() != 0 {
            return Err(wrong(
                &path,
                &"it belongs to another user; name a directory of your own",
            ));
        }
        // Every user may write /tmp and folders like it. The root of a volume, which all containers of
        // a Pod may write, has no sticky bit.
        if metadata.mode() & SHARED_FOLDER == SHARED_FOLDER {
            return Err(wrong(
                &path,
                &"every user may write there; name a directory of your own, such as one in it",
            ));
        }
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                folder,
                path,
                rights,
            }),
            Err(Errno::WOULDBLOCK) => Err(wrong(&path, &"another agent writes it")),
            Err(error) => Err(wrong(&path, &error)),
        }
    }

    /// Replaces the current files in one atomic step. Returns false if they are already the same.
    ///
    /// # Errors
    /// [`TokenDirectoryError`]. The previous files stay, unless the failure came after the step
    /// itself.
    pub fn replace_files(
        &self,
        files: &[(&str, &[u8])],
        now: Timestamp,
        random: u64,
    ) -> Result<bool, TokenDirectoryError> {
        self.try_replace(files, now, random)
            .map_err(|error| TokenDirectoryError {
                path: self.path.clone(),
                problem: error.to_string(),
            })
    }

    fn try_replace(
        &self,
        files: &[(&str, &[u8])],
        now: Timestamp,
        random: u64,
    ) -> std::io::Result<bool> {
        for (name, _) in files {
            self.check_link(name)?;
        }
        if self.holds_files(files)? {
            self.tidy_entries(files)?;
            return Ok(false);
        }
        let fresh = format!("..{}.{random:016x}", now.strftime("%Y_%m_%d_%H_%M_%S"));
        let folder = self.fresh_folder(&fresh)?;
        for (name, bytes) in files {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&folder, *name, flags, Mode::from_raw_mode(0o600))?);
            file.write_all(bytes)?;
            self.rights
                .give(&file, Mode::from_raw_mode(self.rights.mode))?;
            file.sync_all()?;
        }
        self.rights.give(&folder, self.rights.folder_mode())?;
        fsync(&folder)?;
        match unlinkat(&self.folder, NEXT_DATA_LINK, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        symlinkat(fresh.as_str(), &self.folder, NEXT_DATA_LINK)?;
        renameat(&self.folder, NEXT_DATA_LINK, &self.folder, DATA_LINK)?;
        self.tidy_entries(files)?;
        fsync(&self.folder)?;
        Ok(true)
    }

    /// Creates a directory and verifies that no other user replaced it.
    fn fresh_folder(&self, name: &str) -> std::io::Result<OwnedFd> {
        mkdirat(&self.folder, name, Mode::from_raw_mode(0o700))?;
        let folder = File::from(openat(
            &self.folder,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        let metadata = folder.metadata()?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(std::io::Error::other(
                "another process put a directory in the place of a new one",
            ));
        }
        Ok(folder.into())
    }

    /// Checks that a visible name is free or the agent's own link.
    fn check_link(&self, name: &str) -> std::io::Result<()> {
        match self.link_target(name)? {
            Some(target) if target != format!("{DATA_LINK}/{name}") => {
                Err(std::io::Error::other(format!(
                    "{name} was not created by the agent and is not changed; name an empty \
                     directory"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the target of a link; empty if the entry is not a link.
    fn link_target(&self, name: &str) -> std::io::Result<Option<String>> {
        match readlinkat(&self.folder, name, Vec::new()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::INVAL) => Ok(Some(String::new())),
            Err(error) => Err(error.into()),
        }
    }

    fn holds_files(&self, files: &[(&str, &[u8])]) -> std::io::Result<bool> {
        let Some(current) = self.link_target(DATA_LINK)? else {
            return Ok(false);
        };
        if !is_dated(&current) {
            return Err(std::io::Error::other(format!(
                "{DATA_LINK} was not created by the agent and is not changed; name an empty directory"
            )));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(folder) = openat(&self.folder, current.as_str(), flags, Mode::empty()) else {
            return Ok(false);
        };
        Ok(FILE_NAMES.iter().all(|name| {
            let wanted = files
                .iter()
                .find(|(file, _)| file == name)
                .map(|(_, bytes)| *bytes);
            read(&folder, name, self.rights).as_deref() == wanted
        }))
    }

    /// Creates the visible links, removes dangling ones, and deletes leftovers of earlier rounds.
    fn tidy_entries(&self, files: &[(&str, &[u8])]) -> std::io::Result<()> {
        for name in FILE_NAMES {
            let there = self.link_target(name)?;
            let wanted = files.iter().any(|(file, _)| *file == name);
            if wanted && there.is_none() {
                symlinkat(format!("{DATA_LINK}/{name}"), &self.folder, name)?;
            } else if !wanted && there.is_some_and(|target| target == format!("{DATA_LINK}/{name}"))
            {
                unlinkat(&self.folder, name, AtFlags::empty())?;
            }
        }
        let current = self.link_target(DATA_LINK)?.unwrap_or_default();
        let old = Dir::read_from(&self.folder)?
            .take(MAX_ENTRIES)
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        for name in old.filter(|name| is_dated(name) && *name != current) {
            self.remove_dated(&name);
        }
        Ok(())
    }

    /// Removes a dated directory without following links. What cannot be removed now is retried
    /// next time.
    fn remove_dated(&self, name: &str) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(folder) = openat(&self.folder, name, flags, Mode::empty()) else {
            return;
        };
        for file in FILE_NAMES {
            let _ = unlinkat(&folder, file, AtFlags::empty());
        }
        let _ = unlinkat(&self.folder, name, AtFlags::REMOVEDIR);
    }
}

/// Reads the token of a directory, for a check whether it exists.
///
/// # Errors
/// The operating system's error.
pub fn read_token(path: &Path) -> std::io::Result<secrecy::SecretString> {
    let mut text = String::new();
    File::open(path.join(DATA_LINK).join("token"))?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text.into())
}

#[cfg(test)]
mod tests;
