//! The only file that speaks to the terminal.
//!
//! Results go to standard output, everything else to standard error. Errors start in lower case,
//! end without a full stop and may be followed by one hint. No colour unless a person looks at a
//! terminal.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the one file that prints"
)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use keyferry_core::foreign_text;
use serde::Serialize;

/// Prints a result line.
///
/// # Errors
/// Standard output was closed.
pub fn result(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Prints a result and turns a closed output into a failure.
pub fn finish(text: &str) -> ExitCode {
    match result(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints an error and its hint.
pub fn fail(error: &str, hint: Option<&str>) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", plain(error));
    if let Some(hint) = hint {
        let _ = writeln!(std::io::stderr(), "hint: {}", plain(hint));
    }
    ExitCode::FAILURE
}

/// Prints an error of what was asked for, like an unreadable file: exit code 2, as for a wrong
/// flag.
pub fn misuse(error: &str, hint: Option<&str>) -> ExitCode {
    let _ = fail(error, hint);
    ExitCode::from(2)
}

/// Prints a result, and leaves with that code.
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

/// A value as indented JSON. Characters that could mislead a person at a terminal are escaped,
/// which changes no value.
///
/// # Errors
/// The value cannot be serialised.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(foreign_text::json(&serde_json::to_string_pretty(value)?))
}

/// Foreign text, so that it cannot speak to the terminal: control and direction characters are
/// written out, line ends stay.
pub fn plain(text: &str) -> String {
    foreign_text::lines(text, usize::MAX)
}

/// Prints a line for the person who watches.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain(text));
}

/// Whether a person looks at standard output.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Lines up columns, two spaces apart. Cells hold text from elsewhere, and each stays on its line.
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
