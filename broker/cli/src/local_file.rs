//! Reads a whole file or standard input, up to a size limit.

use std::io::Read;
use std::path::{Path, PathBuf};

use keyferry_platform::regular_file::{self, FileError};

use crate::command_error::{CommandError, command_errors};

/// The most bytes that [`read_small_file`] reads.
const MAX_SMALL_BYTES: u64 = 1 << 20;

/// A file or standard input cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("reading {content} from {}: {}", path.display(), with_fix(error))]
pub(crate) struct ReadError {
    /// What the file should have.
    content: &'static str,
    path: PathBuf,
    error: FileError,
}

command_errors!(with fix: ReadError);

/// Reads a regular file, or standard input for `-`.
///
/// # Errors
/// [`ReadError`]: it cannot be read, or has more than `limit` bytes.
pub(crate) fn read(path: &Path, what: &'static str, limit: usize) -> Result<Vec<u8>, ReadError> {
    let wrong = |error| ReadError {
        content: what,
        path: path.to_owned(),
        error,
    };
    if path != Path::new("-") {
        return regular_file::read_regular_file(path, limit as u64).map_err(wrong);
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(error.into()))?;
    if bytes.len() > limit {
        Err(wrong(FileError::TooLong(limit as u64)))
    } else {
        Ok(bytes)
    }
}

/// Reads a file, at most 1 MiB: a token, a CA bundle or a configuration is smaller.
pub(crate) fn read_small_file(path: &Path) -> Result<Vec<u8>, CommandError> {
    regular_file::read_regular_file(path, MAX_SMALL_BYTES)
        .map_err(|error| CommandError::new(format!("reading {}: {error}", path.display())))
}

/// Whether a path is in fact a JWT, given instead of its file. If so, no error may repeat it.
pub(crate) fn is_token_itself(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with("ey") && text.matches('.').count() >= 2 && text.len() > 40 && !path.exists()
}

/// Formats the error. For a pipe, adds that standard input is accepted instead.
pub(crate) fn with_fix(error: &FileError) -> String {
    match error {
        FileError::NotRegular => format!("{error}; fix: name a file, or pipe the text into -"),
        error => error.to_string(),
    }
}
