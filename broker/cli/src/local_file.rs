//! Reads a whole file or standard input, up to a size limit.

use std::io::Read;
use std::path::Path;

use keyferry_hub::regular_file::{self, FileError};

/// Reads a regular file, or standard input for `-`.
///
/// # Errors
/// A line that names the file: it cannot be read, or has more than `limit` bytes.
pub(super) fn read(path: &Path, what: &str, limit: usize) -> Result<Vec<u8>, String> {
    let wrong = |problem: &dyn std::fmt::Display| {
        format!("reading {what} from {}: {problem}", path.display())
    };
    if path != Path::new("-") {
        return regular_file::read(path, limit as u64).map_err(|error| wrong(&with_fix(&error)));
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    if bytes.len() > limit {
        Err(wrong(&FileError::TooLong(limit as u64)))
    } else {
        Ok(bytes)
    }
}

/// Formats the error. For a pipe, adds that standard input is accepted instead.
pub(super) fn with_fix(error: &FileError) -> String {
    match error {
        FileError::NotRegular => format!("{error}; fix: name a file, or pipe the text into -"),
        error => error.to_string(),
    }
}
