//! The flag `-o` of commands whose result is text or JSON.

use clap::{Args, ValueEnum};

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: lines or columns.
    #[value(alias = "table")]
    Text,
    /// JSON with a stable schema.
    Json,
}

/// How the result is printed.
#[derive(Args, Clone, Copy)]
pub(crate) struct FormatArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}
