//! `keyferry inspect`: decodes a token on this machine. It asks no cluster and no issuer.

mod document;
mod span_text;
mod text;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use keyferry_platform::clock::{Clock, SystemClock};

use crate::args::output_format::FormatArgs;
use crate::command_error::CommandError;
use crate::token_source::read_token;
use crate::ui;

use self::document::{SignatureState, TokenDocument};

pub(crate) use self::document::KeySetError;

/// The flags of `keyferry inspect`.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// A file with a token or an ExecCredential, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// More words, which are refused without being repeated: one may be a token.
    #[arg(num_args = 0.., hide = true)]
    rest: Vec<OsString>,
    /// The issuer's key set, as its jwks_uri gives it [default: none, so signatures are not
    /// checked]
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// Judge as of this time, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    at: Option<Timestamp>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Prints what a token says. The exit code is 1 if the given keys did not sign it.
pub(crate) fn run(args: &InspectArgs) -> ExitCode {
    match decoded(args) {
        Ok(document) => {
            let code = exit_code(&document.signature.state);
            match args.format.output.document() {
                Some(format) => ui::finish_document(&document, format, ExitCode::from(code)),
                None => ui::finish_with(&text::of(&document), code),
            }
        }
        Err(error) => ui::command_misused(&error),
    }
}

fn decoded(args: &InspectArgs) -> Result<TokenDocument, CommandError> {
    if !args.rest.is_empty() {
        return Err(CommandError::with_fix(
            "reading the arguments: there is more than one file",
            "name one file, or - for standard input; a token is never an argument",
        ));
    }
    let token = read_token(&args.file)?;
    let now = args.at.unwrap_or_else(|| SystemClock::start().now().wall);
    let document = TokenDocument::of(&token, now);
    match &args.jwks {
        Some(path) => Ok(document.checked_against(&token, path)?),
        None => Ok(document),
    }
}

fn exit_code(state: &SignatureState) -> u8 {
    match state {
        SignatureState::NotChecked | SignatureState::Valid => 0,
        SignatureState::KeyNotInSet | SignatureState::Invalid => 1,
    }
}

#[cfg(test)]
mod tests;
