//! The output formats that most commands have.

use clap::ValueEnum;

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: lines or columns.
    #[value(alias = "table")]
    Text,
    /// JSON with a stable schema.
    Json,
}
