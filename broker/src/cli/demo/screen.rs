//! How the demo looks: colour for a person, plain lines for everything else.

use std::io::Result;

use crate::cli::ui;

/// The demo's lines.
pub(super) struct Screen {
    colour: bool,
}

impl Screen {
    /// With colour or without.
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// The first line.
    pub(super) fn title(&self, text: &str) -> Result<()> {
        ui::result(&self.paint("1", text))
    }

    /// A numbered step.
    pub(super) fn step(&self, number: usize, text: &str) -> Result<()> {
        ui::result(&format!(
            "\n{}",
            self.paint("1;36", &format!("{number}. {text}"))
        ))
    }

    /// What went over the wire.
    pub(super) fn wire(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("2", text)))
    }

    /// What came of it.
    pub(super) fn outcome(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("32", text)))
    }

    /// What was refused.
    pub(super) fn refusal(&self, text: &str) -> Result<()> {
        ui::result(&format!("   {}", self.paint("31", text)))
    }

    /// Names and values, lined up.
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

    /// A command to copy.
    pub(super) fn command(&self, text: &str) -> Result<()> {
        ui::result(&format!("  {}", self.paint("33", text)))
    }

    /// A plain line.
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
