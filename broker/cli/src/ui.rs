//! Prints everything that `keyferry` writes to a terminal, but for the help and errors of clap.
//!
//! Results go to standard output, everything else to standard error. Errors start in lower case,
//! have no final full stop, and may be followed by one fix. Colour is used only on a terminal.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the one file that prints"
)]

use std::io::{BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use keyferry_api::foreign_text;
use serde::Serialize;

use crate::args::output_format::DocumentFormat;
use crate::command_error::CommandError;
use crate::yaml_document::yaml_of_document;

/// Prints a result line.
///
/// # Errors
/// Standard output was closed.
pub(crate) fn result(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints a result. Returns exit code 1 if standard output is closed.
pub(crate) fn finish(text: &str) -> ExitCode {
    match result(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints an error and its fix, each on one line, whatever text of others they contain.
pub(crate) fn fail(error: &str, fix: Option<&str>) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", plain(error));
    if let Some(fix) = fix {
        let _ = writeln!(std::io::stderr(), "fix: {}", plain(fix));
    }
    ExitCode::FAILURE
}

/// Prints the error with which a command ends: its causes, its fix, and the file that the fix asks
/// for.
pub(crate) fn command_failed(error: &CommandError) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", plain(&error.problem));
    for cause in &error.causes {
        note(cause);
    }
    if let Some(fix) = &error.fix {
        note(&format!("fix: {fix}"));
    }
    if let Some(file) = &error.file {
        note_block(file);
    }
    ExitCode::FAILURE
}

/// Prints an error about the input, such as an unreadable file. Returns exit code 2, as for a wrong
/// flag.
pub(crate) fn command_misused(error: &CommandError) -> ExitCode {
    let _ = command_failed(error);
    ExitCode::from(2)
}

/// Prints an error about the input, such as an unreadable file. Returns exit code 2, as for a wrong
/// flag.
pub(crate) fn misuse(error: &str, fix: Option<&str>) -> ExitCode {
    let _ = fail(error, fix);
    ExitCode::from(2)
}

/// Prints a result and exits with `code`.
pub(crate) fn finish_with(text: &str, code: u8) -> ExitCode {
    match result(text) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints a value as a document for programs and exits with `code`; fails when the value cannot be
/// written.
pub(crate) fn finish_document(
    value: &impl Serialize,
    format: DocumentFormat,
    code: ExitCode,
) -> ExitCode {
    let text = match format {
        DocumentFormat::Json => {
            json(value).map_err(|error| format!("writing the result as JSON: {error}"))
        }
        DocumentFormat::Yaml => yaml_of_document(value).map_err(|error| error.to_string()),
    };
    match text {
        Ok(text) if result(text.trim_end()).is_ok() => code,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail(&error, None),
    }
}

/// Formats a value as indented JSON. Escapes characters that could mislead a person at a terminal,
/// which changes no value.
///
/// # Errors
/// The value cannot be serialised.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(foreign_text::escape_json(&serde_json::to_string_pretty(
        value,
    )?))
}

/// Makes foreign text safe for a terminal: one line, without control and direction characters.
pub(crate) fn plain(text: &str) -> String {
    foreign_text::one_line(text, usize::MAX)
}

/// As [`plain`], but keeps line ends: for lines that Keyferry has put together, where each part
/// that others wrote is on one line already, and for files that a serialiser wrote.
pub(crate) fn block(text: &str) -> String {
    foreign_text::plain_lines(text, usize::MAX)
}

/// Prints a note of one line to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain(text));
}

/// Prints a note of one line, and its fix on a line of its own.
pub(crate) fn note_with_fix(text: &str, fix: &str) {
    note(text);
    note(&format!("fix: {fix}"));
}

/// Asks a yes-or-no question. `None` if standard input is no terminal, so that no person answers.
pub(crate) fn ask(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let _ = write!(std::io::stderr(), "{} [y/N] ", plain(question));
    let mut answer = String::new();
    // Only a whole short line counts as an answer.
    std::io::stdin()
        .lock()
        .take(64)
        .read_line(&mut answer)
        .ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints lines to standard error that a person copies, such as a file; see [`block`].
pub(crate) fn note_block(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", block(text.trim_end()));
}

/// Whether standard output is a terminal, and `NO_COLOR` is not set.
#[cfg(feature = "demo")]
pub(crate) fn uses_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The most characters of a cell that the other cells of its column are padded to: a target decides
/// how long some are, and Rust's formatter panics above 65,535.
const MAX_PADDED_CHARS: usize = 1_000;

/// Aligns columns, two spaces apart. Cells contain foreign text, so each is kept on one line.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let one_line = |row: &Vec<String>| {
        row.iter()
            .map(|cell| foreign_text::one_line(cell, usize::MAX))
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count().min(MAX_PADDED_CHARS))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn foreign_text_does_not_speak_to_the_terminal() {
        let rows = [
            vec!["NAME".to_owned(), "B".to_owned()],
            vec!["x\ny\u{202e}".to_owned(), "z".to_owned()],
        ];
        assert_eq!(
            super::table(&rows).lines().count(),
            2,
            "a cell makes no rows"
        );
        let long = [
            vec!["x".repeat(70_000), "y".to_owned()],
            vec!["z".to_owned(), "y".to_owned()],
        ];
        let lengths: Vec<usize> = super::table(&long).lines().map(str::len).collect();
        assert_eq!(lengths, [70_003, 1_003]);
        let value = serde_json::json!({ "user": "x\u{202e}y\u{e0041}\n" });
        let printed = super::json(&value).unwrap_or_default();
        assert!(printed.contains(r#""x\u202ey\udb40\udc41\n""#), "{printed}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&printed).ok(),
            Some(value)
        );
        let hostile = "a\u{1b}[31m\n\"b\" \u{202e}ä";
        assert_eq!(super::plain(hostile), "a\\u{1b}[31m\\u{a}\"b\" \\u{202e}ä");
        assert_eq!(super::block(hostile), "a\\u{1b}[31m\n\"b\" \\u{202e}ä");
    }
}
