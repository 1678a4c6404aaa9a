//! Where the Secrets of a credential go: standard output, or new files that only their owner reads.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use zeroize::Zeroizing;

use crate::command_error::CommandError;
use crate::ui;

/// The files of the output; what has none goes to standard output.
pub(super) struct Output<'a> {
    pub(super) hub_file: Option<&'a Path>,
    pub(super) child_file: Option<&'a Path>,
}

impl Output<'_> {
    /// Writes both Secrets.
    pub(super) fn write(
        &self,
        hub: &Zeroizing<String>,
        child: Option<&Zeroizing<String>>,
    ) -> Result<ExitCode, CommandError> {
        let mut printed: Vec<&str> = Vec::new();
        for (file, text) in [(self.hub_file, Some(hub)), (self.child_file, child)] {
            match (file, text) {
                (_, None) => {}
                (Some(file), Some(text)) => new_file(file, text)?,
                (None, Some(text)) => printed.push(text.trim_end()),
            }
        }
        if printed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let text = Zeroizing::new(printed.join("\n---\n"));
        Ok(ui::finish(&text))
    }
}

fn new_file(path: &Path, text: &str) -> Result<(), CommandError> {
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    created
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            CommandError::with_fix(
                format!("writing {}: {error}", path.display()),
                "name a file that does not exist, in a folder that you can write to",
            )
        })
}
