//! Prints everything that `keyferry` writes to a terminal, but for the help and errors of clap.
//!
//! Results go to standard output, everything else to standard error. Errors start in lower case,
//! have no final full stop, and may be followed by one fix. Colour is used only on a terminal.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the one file that prints"
)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use keyferry_api::foreign_text;
use serde::Serialize;

use crate::command_error::CommandError;

/// Prints a result line.
///
/// # Errors
/// Standard output was closed.
pub fn result(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints a result. Returns exit code 1 if standard output is closed.
pub fn finish(text: &str) -> ExitCode {
    match result(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints an error and its fix.
pub fn fail(error: &str, fix: Option<&str>) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", plain(error));
    if let Some(fix) = fix {
        let _ = writeln!(std::io::stderr(), "fix: {}", plain(fix));
    }
    ExitCode::FAILURE
}

/// Prints the error with which a command ends.
pub fn command_failed(error: &CommandError) -> ExitCode {
    fail(&error.problem, error.fix)
}

/// Prints an error about the input, such as an unreadable file. Returns exit code 2, as for a wrong
/// flag.
pub fn misuse(error: &str, fix: Option<&str>) -> ExitCode {
    let _ = fail(error, fix);
    ExitCode::from(2)
}

/// Prints a result and exits with `code`.
pub fn finish_with(text: &str, code: u8) -> ExitCode {
    match result(text) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints a value as JSON and exits with `code`; fails when the value cannot be written.
pub fn finish_json(value: &impl Serialize, code: ExitCode) -> ExitCode {
    match json(value) {
        Ok(text) if result(&text).is_ok() => code,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail(&format!("writing the result as JSON: {error}"), None),
    }
}

/// Formats a value as indented JSON. Escapes characters that could mislead a person at a terminal,
/// which changes no value.
///
/// # Errors
/// The value cannot be serialised.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(foreign_text::json(&serde_json::to_string_pretty(value)?))
}

/// Makes foreign text safe for a terminal: escapes control and direction characters, and keeps line
/// ends.
pub fn plain(text: &str) -> String {
    foreign_text::lines(text, usize::MAX)
}

/// Prints a note to standard error.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain(text));
}

/// Whether standard output is a terminal, and `NO_COLOR` is not set.
pub fn uses_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Aligns columns, two spaces apart. Cells contain foreign text, so each is kept on one line.
pub fn table(rows: &[Vec<String>]) -> String {
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
            .map(|cell| cell.chars().count())
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
        let value = serde_json::json!({ "user": "x\u{202e}y\u{e0041}\n" });
        let printed = super::json(&value).unwrap_or_default();
        assert!(printed.contains(r#""x\u202ey\udb40\udc41\n""#), "{printed}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&printed).ok(),
            Some(value)
        );
        assert_eq!(
            super::plain("a\u{1b}[31m\n\"b\" \u{202e}ä"),
            "a\\u{1b}[31m\n\"b\" \\u{202e}ä"
        );
    }
}
