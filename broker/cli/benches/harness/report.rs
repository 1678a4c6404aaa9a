//! The report of every bench: the command and the machine of the run, tables under their titles,
//! and charts.

use std::path::Path;

use super::Outcome;
use super::chart::Chart;
use super::table::Table;

/// The form of a printed report.
#[derive(Clone, Copy)]
pub enum Form {
    /// Aligned with spaces, for the terminal.
    Text,
    /// For `docs/development/benchmarks.md`.
    Markdown,
}

/// All measurements of one run.
pub struct Report {
    machine: String,
    sections: Vec<(String, Table)>,
    charts: Vec<Chart>,
}

impl Report {
    /// A report without tables.
    pub fn of(machine: String) -> Self {
        Self {
            machine,
            sections: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Adds a table under its title.
    pub fn with_section(mut self, title: impl Into<String>, table: Table) -> Self {
        self.sections.push((title.into(), table));
        self
    }

    /// Adds a chart.
    pub fn with_chart(mut self, chart: Chart) -> Self {
        self.charts.push(chart);
        self
    }

    /// Writes the charts that have data beside the published tables.
    pub fn write_charts(&self) -> Outcome<()> {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/development/benchmarks");
        for chart in self.charts.iter().filter(|chart| !chart.bars.is_empty()) {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(chart.file), chart.svg())?;
        }
        Ok(())
    }

    /// The report as text, with the command that made it.
    pub fn render(&self, command: &str, form: Form) -> String {
        let table = |table: &Table| match form {
            Form::Text => table.text(),
            Form::Markdown => table.markdown(),
        };
        let sections: Vec<String> = self
            .sections
            .iter()
            .map(|(title, section)| format!("### {title}\n\n{}", table(section)))
            .collect();
        format!("`{command}`: {}\n\n{}", self.machine, sections.join("\n"))
    }
}
