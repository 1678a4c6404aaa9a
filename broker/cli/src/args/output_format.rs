//! The flag `-o` of commands whose result is text, JSON or YAML, and of those that print objects.

use clap::{Args, ValueEnum};

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: lines or columns.
    #[value(alias = "table")]
    Text,
    /// JSON with a stable schema.
    Json,
    /// The same document as YAML.
    Yaml,
}

/// How a document for programs is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentFormat {
    Json,
    Yaml,
}

impl OutputFormat {
    /// Returns the format of a document; `None` for text.
    pub(crate) fn document(self) -> Option<DocumentFormat> {
        match self {
            Self::Text => None,
            Self::Json => Some(DocumentFormat::Json),
            Self::Yaml => Some(DocumentFormat::Yaml),
        }
    }
}

/// How the result is printed.
#[derive(Args, Clone, Copy)]
pub(crate) struct FormatArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

/// Accepts `-o yaml`, which kubectl's users write, where objects are printed as YAML anyway.
#[derive(Args, Default)]
pub(crate) struct ManifestFormatArgs {
    /// Output format.
    #[arg(short = 'o', long = "output", value_parser = ["yaml"], hide = true)]
    _output: Option<String>,
}
