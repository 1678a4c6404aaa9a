//! A table, for the terminal and for Markdown.

use std::fmt::Write;

/// The first column is text, the others are numbers.
pub struct Table {
    /// Of the columns.
    pub head: Vec<&'static str>,
    /// Each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Aligned by spaces.
    pub fn text(&self) -> String {
        self.render("  ", "", |_, width| "-".repeat(width))
    }

    /// A pipe table.
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
