//! Files that a command reads whole, or standard input, with a bound.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// A line that names the file: it cannot be read, or has more than `limit` bytes.
pub(super) fn read(path: &Path, what: &str, limit: usize) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("reading {what} from {}: {error}", path.display());
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(File::open(path).map_err(wrong)?) };
    let mut bytes = Vec::new();
    source.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() > limit {
        return Err(format!("reading {what} from {}: it is longer than {limit} bytes", path.display()));
    }
    Ok(bytes)
}
