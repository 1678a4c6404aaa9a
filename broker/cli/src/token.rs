//! `keyferry token`: prints a token for an access.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::args::access::AccessArgs;
use crate::args::output_format::DocumentFormat;
use crate::ui;

#[derive(Args)]
pub(super) struct TokenArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = TokenOutput::Token)]
    output: TokenOutput,
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenOutput {
    /// The token alone.
    Token,
    /// The token and how long it may be used.
    Json,
    /// The same document as YAML.
    Yaml,
}

pub(super) async fn run(args: TokenArgs) -> ExitCode {
    let source = match args.access.source().await {
        Ok(source) => source,
        Err(error) => return ui::command_failed(&error),
    };
    match source.token().await {
        Ok(token) => {
            let document = || json!({ "token": token.token.expose_secret(), "expiresInSeconds": token.remaining_lifetime.as_secs() });
            match args.output {
                TokenOutput::Token => ui::finish(token.token.expose_secret()),
                TokenOutput::Json => ui::finish(&document().to_string()),
                TokenOutput::Yaml => {
                    ui::finish_document(&document(), DocumentFormat::Yaml, ExitCode::SUCCESS)
                }
            }
        }
        Err(error) => ui::command_failed(&error.into()),
    }
}
