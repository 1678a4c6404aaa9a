//! Caches the exec plugin's tokens on the user's disk: one file for each [`CacheKey`], readable by
//! this user only.
//!
//! Every file that is not exactly as this module writes it is a miss. An unusable cache only costs
//! a call to the server.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use keyferry_core::exec_credential;
use keyferry_keys::json;
use keyferry_keys::jwt::UnverifiedJwt;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

/// The largest entry that is read: a token and an expiry.
const MAX_ENTRY_BYTES: usize = 16 * 1024;
/// How long another process may hold the lock: slightly more than the server's own deadline.
const LOCK_DEADLINE: Duration = Duration::from_secs(35);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Above this number of files, old ones are removed.
const MAX_FILES: usize = 512;
/// The age of removable files. No token lives longer than a day.
const MAX_FILE_AGE: Duration = Duration::from_secs(25 * 3600);

/// A cached token and when to replace it.
#[derive(Debug)]
pub struct CachedToken {
    /// The token.
    pub token: SecretString,
    /// The expiry given to the client, at which it asks again.
    pub expiration: Timestamp,
}

/// The key of an entry, derived from everything that determines its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey(String);

impl CacheKey {
    /// Derives a key from parts, each of which may be absent. Different lists of parts never give
    /// the same key.
    pub fn of_parts(parts: &[Option<&[u8]>]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"keyferry credential 1");
        context.update(&(parts.len() as u64).to_be_bytes());
        for part in parts {
            context.update(&[u8::from(part.is_some())]);
            let part = part.unwrap_or_default();
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self(
            context
                .finish()
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }
}

/// The cache's folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the cache {} is not used: {problem}", path.display())]
pub struct CacheFolderError {
    /// The folder.
    pub path: PathBuf,
    /// The problem with it, and the fix.
    pub problem: CacheFolderProblem,
}

/// Why a folder is not used as a cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheFolderProblem {
    /// The error of the operating system.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Another user owns the folder.
    #[error("it belongs to another user")]
    OtherOwner,
    /// The mode of the folder lets its group or everyone in.
    #[error("others may enter it; chmod 700")]
    OpenToOthers,
}

/// A token could not be stored in the cache.
#[derive(Debug, thiserror::Error)]
#[error("the token is not cached in {}: {error}", path.display())]
pub struct CacheWriteError {
    /// The cache's folder.
    pub path: PathBuf,
    /// The error of the operating system.
    pub error: std::io::Error,
}

/// A cache folder that only this user can enter.
pub struct CredentialCache {
    folder: OwnedFd,
    path: PathBuf,
}

/// The lock of one entry, held by the one process that asks the server. Dropping it lets the next
/// process check the cache.
pub struct CacheLock {
    _file: OwnedFd,
}

impl CredentialCache {
    /// Opens the folder and creates it if needed.
    ///
    /// # Errors
    /// [`CacheFolderError`].
    pub fn open(path: &Path) -> Result<Self, CacheFolderError> {
        let wrong = |problem| CacheFolderError {
            path: path.to_owned(),
            problem,
        };
        Ok(Self {
            folder: own_folder(path).map_err(wrong)?,
            path: path.to_owned(),
        })
    }

    /// Returns the token of a valid entry that has at least 10 s left.
    pub fn get_token(&self, key: &CacheKey, now: Timestamp) -> Option<CachedToken> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, key.0.as_str(), flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        let own = metadata.is_file()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o7777 == 0o600;
        if !own || metadata.len() > MAX_ENTRY_BYTES as u64 {
            return None;
        }
        let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(MAX_ENTRY_BYTES));
        file.take(MAX_ENTRY_BYTES as u64)
            .read_to_end(&mut bytes)
            .ok()?;
        let entry = json::read_object(
            &bytes,
            json::JsonLimits {
                bytes: MAX_ENTRY_BYTES,
                depth: 2,
            },
        )
        .ok()?;
        // A renamed file, or one of another version, does not belong to this key.
        if entry.get("key").and_then(|it| it.as_str()) != Some(&key.0) {
            return None;
        }
        let token = SecretString::from(entry.get("token")?.as_str()?);
        let jwt = UnverifiedJwt::parse(token.expose_secret()).ok()?;
        let expiration = Timestamp::from_second(entry.get("expiration")?.as_i64()?).ok()?;
        // The expiry in the file counts only up to the token's own.
        let left = Duration::try_from(expiration.duration_since(now)).ok()?;
        let expiration = exec_credential::refresh_time(&jwt, left, now)?;
        Some(CachedToken { token, expiration })
    }

    /// Waits for the entry's lock. Returns `None` if another process holds it for longer than a
    /// fetch can take.
    pub fn lock_entry(&self, key: &CacheKey) -> Option<CacheLock> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(
            &self.folder,
            format!("{}.lock", key.0),
            flags,
            Mode::from_raw_mode(0o600),
        )
        .ok()?;
        let mut waited = Duration::ZERO;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(CacheLock { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if waited < LOCK_DEADLINE => {}
                Err(_) => return None,
            }
            std::thread::sleep(LOCK_INTERVAL);
            waited += LOCK_INTERVAL;
        }
    }

    /// Stores an entry atomically.
    ///
    /// # Errors
    /// [`CacheWriteError`].
    pub fn put_token(
        &self,
        key: &CacheKey,
        token: &CachedToken,
        now: Timestamp,
    ) -> Result<(), CacheWriteError> {
        self.try_put(key, token).map_err(|error| CacheWriteError {
            path: self.path.clone(),
            error,
        })?;
        self.remove_old(now);
        Ok(())
    }

    fn try_put(&self, key: &CacheKey, token: &CachedToken) -> std::io::Result<()> {
        let entry = json!({ "key": key.0, "expiration": token.expiration.as_second(), "token": token.token.expose_secret() });
        let bytes = zeroize::Zeroizing::new(entry.to_string());
        // Two processes without the lock must not write the same file.
        let unfinished = format!("{}.{}", key.0, std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _ = unlinkat(&self.folder, unfinished.as_str(), AtFlags::empty());
        let mut file = File::from(openat(
            &self.folder,
            unfinished.as_str(),
            flags,
            Mode::from_raw_mode(0o600),
        )?);
        let written = file
            .write_all(bytes.as_bytes())
            .and_then(|()| file.sync_all());
        let written = written.and_then(|()| {
            Ok(renameat(
                &self.folder,
                unfinished.as_str(),
                &self.folder,
                key.0.as_str(),
            )?)
        });
        if written.is_err() {
            let _ = unlinkat(&self.folder, unfinished.as_str(), AtFlags::empty());
        }
        written?;
        Ok(fsync(&self.folder)?)
    }

    /// Once there are many files, removes entries and locks that were not modified for longer than
    /// a token lives.
    fn remove_old(&self, now: Timestamp) {
        let Ok(files) = std::fs::read_dir(&self.path) else {
            return;
        };
        let files: Vec<_> = files.take(MAX_FILES * 8).flatten().collect();
        if files.len() <= MAX_FILES {
            return;
        }
        let last = i64::try_from(MAX_FILE_AGE.as_secs()).unwrap_or(i64::MAX);
        for file in files {
            let old = file
                .metadata()
                .is_ok_and(|metadata| now.as_second().saturating_sub(metadata.mtime()) > last);
            if old && file.file_name().len() >= 64 {
                let _ = unlinkat(&self.folder, file.file_name(), AtFlags::empty());
            }
        }
    }
}

/// Opens a folder that only this user can enter, and creates it if needed.
fn own_folder(path: &Path) -> Result<OwnedFd, CacheFolderProblem> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(std::io::Error::from)?;
    let folder = File::from(folder);
    let metadata = folder.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(CacheFolderProblem::OtherOwner);
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(CacheFolderProblem::OpenToOthers);
    }
    Ok(folder.into())
}

#[cfg(test)]
mod tests;
