//! `--batch`: reads JSON lines and writes JSON lines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use keyferry_kube_authn::batch::Batch;
use keyferry_platform::regular_file;

use super::ui;
use crate::local_file::with_fix;

/// The longest line: enough for a configuration, a token and a few key sets.
const MAX_LINE: u64 = 16 << 20;

/// Answers every line. The exit code is 0 whatever the verdicts are, because the reports contain
/// them.
pub(super) fn run(path: &Path) -> ExitCode {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        // Read line by line, so there is no limit on the whole file.
        match regular_file::open_regular_file(path, u64::MAX) {
            Ok(file) => Box::new(file),
            Err(error) => {
                return ui::misuse(
                    &format!(
                        "reading the cases from {}: {}",
                        path.display(),
                        with_fix(&error)
                    ),
                    None,
                );
            }
        }
    };
    let mut lines = BufReader::new(source);
    let mut batch = Batch::new();
    let mut number = 0_u64;
    loop {
        number += 1;
        let mut line = Vec::new();
        match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 >= MAX_LINE => {
                return ui::misuse(
                    &format!("reading line {number}: it is longer than {MAX_LINE} bytes"),
                    None,
                );
            }
            Ok(_) => {}
            Err(error) => return ui::misuse(&format!("reading line {number}: {error}"), None),
        }
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() && ui::result(&batch.report_line(text.trim())).is_err() {
            return ExitCode::FAILURE;
        }
    }
}
