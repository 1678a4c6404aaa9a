//! Formats a table for the terminal and for Markdown.

use std::fmt::Write;

/// A table whose first column is text, and whose other columns are numbers.
pub struct Table {
    /// The titles of the columns.
    pub head: Vec<&'static str>,
    /// The rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The table as text, aligned with spaces.
    pub fn text(&self) -> String {
        self.render("  ", "", |_, width| "-".repeat(width))
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        self.render(" | ", "| ", |column, width| {
            if column == 0 {
                "-".repeat(width)
            } else {
                format!("{}:", "-".repeat(width - 1))
            }
        })
    }

    fn render(&self, between: &str, before: &str, rule: impl Fn(usize, usize) -> String) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| self.width(column))
            .collect();
        let rule = widths
            .iter()
            .enumerate()
            .map(|(column, width)| rule(column, *width))
            .collect();
        let head = self.head.iter().map(|cell| (*cell).to_owned()).collect();
        let after = before.chars().rev().collect::<String>();
        let mut text = String::new();
        for row in [&head, &rule].into_iter().chain(&self.rows) {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            let _ = writeln!(
                text,
                "{before}{}{after}",
                cells.collect::<Vec<_>>().join(between)
            );
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain(self.head.get(column).map(|cell| cell.len()))
            .max()
            .unwrap_or(0)
            .max(3)
    }
}
