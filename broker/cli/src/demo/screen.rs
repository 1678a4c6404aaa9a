//! Prints the demo: with colour for a terminal, as plain lines otherwise.

use std::io::Result;

use crate::ui;

/// Prints the lines of the demo.
pub(super) struct Screen {
    colour: bool,
}

impl Screen {
    /// Creates a screen with or without colour.
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// Prints the title.
    pub(super) fn title(&self, text: &str) -> Result<()> {
        ui::result(&self.paint("1", text))
    }

    /// Prints the heading of a numbered step.
    pub(super) fn step(&self, number: usize, text: &str) -> Result<()> {
        ui::result(&format!(
            "\n{}",
            self.paint("1;36", &format!("{number}. {text}"))
        ))
    }

    /// Prints what was sent.
    pub(super) fn wire(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("2", text)))
    }

    /// Prints a successful result.
    pub(super) fn outcome(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("32", text)))
    }

    /// Prints a refusal.
    pub(super) fn refusal(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("31", text)))
    }

    /// Prints names and values in columns.
    pub(super) fn facts(&self, facts: &[(&str, String)]) -> Result<()> {
        let rows: Vec<Vec<String>> = facts
            .iter()
            .map(|(name, value)| vec![(*name).to_owned(), value.clone()])
            .collect();
        for line in ui::table(&rows).lines() {
            ui::result(&format!("     {line}"))?;
        }
        Ok(())
    }

    /// Prints a command to copy.
    pub(super) fn command(&self, text: &str) -> Result<()> {
        ui::result(&format!("  {}", self.paint("33", text)))
    }

    /// Prints a plain line.
    pub(super) fn line(&self, text: &str) -> Result<()> {
        ui::result(text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
