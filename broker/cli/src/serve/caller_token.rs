//! Says which rule of `externalIssuers` accepts a caller's token, for
//! `keyferry serve --check --caller-token`.

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use keyferry_api::config::ServerConfiguration;
use keyferry_core::caller::external::token_report::report_token;

use crate::command_error::CommandError;
use crate::token_source::read_token;
use crate::ui;

/// Compares the token with the rules. It proves nothing about the caller, because the signature is
/// not checked; and the token itself is not printed.
///
/// # Errors
/// The exit code of a file without a token, or of one that no rule accepts.
pub(super) fn check_caller_token(
    path: &Path,
    server: &ServerConfiguration,
    now: Timestamp,
) -> Result<(), ExitCode> {
    let jwt = read_token(path).map_err(|error| ui::command_failed(&CommandError::from(error)))?;
    let accepted = report_token(&jwt, &server.external_issuers, now).map_err(|refused| {
        let problem = format!(
            "{} (signature not checked): {}",
            path.display(),
            refused.problem
        );
        ui::fail(&problem, Some(refused.fix))
    })?;
    ui::note(&format!(
        "{} (signature not checked): {} accepts it for ServiceAccount {}",
        path.display(),
        accepted.rule,
        accepted.account
    ));
    if let Some(error) = accepted.untimely {
        ui::note(&format!("warning: the server would refuse it now: {error}"));
    }
    Ok(())
}
