//! `keyferry verify`: predicts how a target's apiserver judges a token, by its
//! AuthenticationConfiguration.

mod batch;
mod live;
mod subject;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::doctor::diagnosis::{Cause, name_fault};
use keyferry_kube_authn::Minor;
use keyferry_kube_authn::config::{self, Loaded, MAX_BYTES};
use keyferry_kube_authn::lint::{Severity, lint_file};
use keyferry_kube_authn::report::{Answer, Danger, Report};
use keyferry_kube_authn::token::Token;
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Outcome, verify_token};
use keyferry_platform::clock::{Clock, SystemClock};
use subject::Subject;

use crate::args::address_args::AddressArgs;
use crate::args::minor::ApiserverArgs;
use crate::args::names;
use crate::args::output_format::FormatArgs;
use crate::command_error::CommandError;
use crate::local_file::ReadError;
use crate::{inner_file, local_file, ui};

pub(crate) use self::subject::SubjectError;

/// The flags of `keyferry verify`.
#[derive(Args)]
#[command(group = ArgGroup::new("subject").args(["target_token_file", "rest", "service_account", "batch"]))]
pub(crate) struct VerifyArgs {
    /// The target's AuthenticationConfiguration.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "batch",
        conflicts_with = "batch"
    )]
    auth_config: Option<PathBuf>,
    /// The token for the target.
    ///
    /// A file, or - for standard input.
    #[arg(long, alias = "token-file", value_name = "FILE")]
    target_token_file: Option<PathBuf>,
    /// Read the token from standard input.
    // Only `-`. Taken as bytes of any kind, so that a token given by mistake is not repeated in an
    // error. Hidden: --target-token-file takes it too.
    #[arg(value_name = "-", num_args = 0.., hide = true)]
    rest: Vec<std::ffi::OsString>,
    /// A ServiceAccount of the hub.
    ///
    /// Verify a token of it that does not exist yet.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = names::service_account)]
    service_account: Option<ServiceAccount>,
    /// The target's audience [default: the one that the file asks for]
    ///
    /// The only one of the token of --service-account.
    #[arg(
        long,
        value_name = "TEXT",
        requires = "service_account",
        hide_short_help = true
    )]
    audience: Option<String>,
    /// The lifetime of the token of --service-account.
    #[arg(long, value_name = "DURATION", default_value = "1h", requires = "service_account", value_parser = names::lifetime, hide_short_help = true)]
    lifetime: std::time::Duration,
    /// The hub's issuer, which is the iss of its tokens [default: the one that the file names]
    #[arg(
        long,
        value_name = "URL",
        requires = "service_account",
        hide_short_help = true
    )]
    issuer: Option<String>,
    #[command(flatten)]
    apiserver: ApiserverArgs,
    /// The hub's name [default: none]
    ///
    /// The user name must begin with it and a colon. Else only a name without any prefix is
    /// reported as wrong.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "batch",
        hide_short_help = true
    )]
    hub_name: Option<String>,
    /// The issuer's key set, as its jwks_uri gives it [default: none, so signatures are not
    /// checked]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["live", "batch"])]
    jwks: Option<PathBuf>,
    /// Read the issuer's discovery document and keys from where the target would.
    ///
    /// Nothing else uses the network.
    #[arg(long, conflicts_with = "batch")]
    live: bool,
    #[command(flatten)]
    addresses: AddressArgs,
    /// Judge as of this time, in RFC 3339 [default: now]
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "batch",
        hide_short_help = true
    )]
    at: Option<Timestamp>,
    /// Cases as JSON lines, from a file or - for standard input.
    ///
    /// One report per line is printed.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "output",
        hide_short_help = true
    )]
    batch: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Prints the user of each token, or the refusal; returns the exit code.
pub(crate) fn run(args: &VerifyArgs) -> ExitCode {
    if args.rest.iter().any(|given| given != "-") || args.rest.len() > 1 {
        return ui::misuse(
            "reading the arguments: a token is never an argument",
            Some("give it by --target-token-file FILE, or - for standard input"),
        );
    }
    if let Some(path) = &args.batch {
        return batch::run(path);
    }
    match report_verdict(args) {
        Ok((report, about)) => {
            let report = report.for_release(args.apiserver.minor.release());
            let code = if report.problems.is_empty() {
                code(report.verdict)
            } else {
                code(report.verdict).max(1)
            };
            match args.format.output.document() {
                Some(format) => ui::finish_document(&report, format, ExitCode::from(code)),
                None => ui::finish_with(&text::of(&report, &about), code),
            }
        }
        Err(error) => ui::command_misused(&error),
    }
}

fn code(answer: Answer) -> u8 {
    match answer {
        Answer::Accepted => 0,
        Answer::Rejected | Answer::Skipped | Answer::ConfigurationRefused => 1,
        Answer::Undetermined => 3,
    }
}

/// Details for the user beside the report.
struct About {
    target: String,
    file: String,
    subject: String,
    keys: String,
    /// The issuers of the token and of the file, if there is a token.
    compared: String,
}

/// Returns the report, or the problem with the arguments.
fn report_verdict(args: &VerifyArgs) -> Result<(Report, About), CommandError> {
    let path = args
        .auth_config
        .as_ref()
        .ok_or_else(|| CommandError::new("--auth-config is missing"))?;
    let given = local_file::read(path, "the AuthenticationConfiguration", MAX_BYTES + 1)?;
    let inner = inner_file::only(&given, path)?;
    let file = match &inner.inside {
        Some(inside) => format!("{}: {}", path.display(), ui::plain(&inside.location)),
        None => path.display().to_string(),
    };
    let bytes = inner.bytes;
    let about = About {
        target: args.apiserver.minor.description(),
        file,
        subject: String::new(),
        keys: "no keys were given".to_owned(),
        compared: String::new(),
    };
    // For a newer release, the answer of the nearest one becomes a note.
    let minor = args.apiserver.minor.release().nearest_minor();
    let now = args.at.unwrap_or_else(|| SystemClock::start().now().wall);
    let loaded = match config::load_configuration(&bytes, minor) {
        Ok(loaded) => loaded,
        Err(fault) => return Ok((Report::of_load_fault(minor, &fault), about)),
    };
    let compiled =
        match validate_configuration(&loaded.configuration, minor, &args.apiserver.own_issuers) {
            Ok(compiled) => compiled,
            Err(invalid) => return Ok((Report::of_invalid(minor, &invalid), about)),
        };
    let subject = Subject::of(args, &loaded, now)?;
    let about = About {
        subject: subject.description,
        ..about
    };
    let (token, assumed) = match subject.token {
        Ok(token) => (token, subject.assumed),
        Err(undetermined) => return Ok((Report::of_undetermined(minor, &undetermined), about)),
    };
    let (keys, description) = match keys(args, &loaded, &compiled, &token, now) {
        Ok(keys) => keys,
        Err(KeysError::Undetermined(undetermined)) => {
            return Ok((Report::of_undetermined(minor, &undetermined), about));
        }
        Err(KeysError::Read(error)) => return Err(error.into()),
    };
    let mut report = Report::of_verdict(
        &compiled,
        &verify_token(&compiled, &token, &keys, now),
        assumed,
    );
    report.problems = problems(args, &bytes, minor, &report, &token);
    let compared = compared(&loaded, &token);
    Ok((
        report,
        About {
            keys: description,
            compared,
            ..about
        },
    ))
}

/// Returns problems that give rights away, whatever the verdict.
fn problems(
    args: &VerifyArgs,
    file: &[u8],
    minor: Minor,
    report: &Report,
    token: &Token,
) -> Vec<Danger> {
    let danger = |code: Cause, message: String| Danger {
        code: code.name(),
        message,
        fix: code.fix(),
    };
    let mut problems: Vec<Danger> = lint_file(file, minor, &args.apiserver.own_issuers)
        .into_iter()
        .filter(|found| found.severity == Severity::Error)
        .map(|found| {
            danger(
                found.code.into(),
                format!("{}: {}", found.path, found.message),
            )
        })
        .collect();
    // Tokens of other issuers, such as those of people, have other kinds of names.
    let subject = token
        .subject()
        .filter(|subject| args.hub_name.is_some() || subject.starts_with("system:serviceaccount:"));
    if let (Some(user), Some(subject)) = (&report.user, subject) {
        let fault = name_fault(&user.username, Some(subject), args.hub_name.as_deref());
        problems.extend(fault.map(|(cause, detail)| danger(cause, detail)));
    }
    problems
}

/// Shows the token's issuer beside those of the file, for a token that no entry matches.
fn compared(loaded: &Loaded, token: &Token) -> String {
    let theirs: Vec<String> = loaded
        .configuration
        .jwt
        .iter()
        .map(|entry| format!("{:?}", entry.issuer.url))
        .collect();
    token
        .issuer()
        .map(|issuer| {
            format!(
                "the token's iss is {issuer:?}, issuer.url is {}",
                theirs.join(" or ")
            )
        })
        .unwrap_or_default()
}

/// Why there are no keys to verify with.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    /// The file of the keys cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The issuer's keys cannot be read from here.
    #[error(transparent)]
    Undetermined(#[from] config::Undetermined),
}

/// Returns the requested keys, and where they come from.
fn keys(
    args: &VerifyArgs,
    loaded: &Loaded,
    compiled: &Compiled,
    token: &Token,
    now: Timestamp,
) -> Result<(Keys, String), KeysError> {
    if let Some(path) = &args.jwks {
        let body = local_file::read(path, "the key set", live::MAX_BODY)?;
        let keys = Keys::for_all(&body);
        let from = match keys.summary(compiled.minor()) {
            Some(summary) => format!("keys of {} ({summary})", path.display()),
            None => format!("keys of {}", path.display()),
        };
        return Ok((keys, from));
    }
    if !args.live {
        return Ok((Keys::none(), "no keys were given".to_owned()));
    }
    // Only the authenticator whose issuer the token names would fetch keys.
    let outcomes = verify_token(compiled, token, &Keys::none(), now).outcomes;
    let asked = outcomes
        .iter()
        .zip(&loaded.configuration.jwt)
        .find(|(outcome, _)| !matches!(outcome, Outcome::Skipped(_)));
    Ok(match asked {
        None => (
            Keys::none(),
            "no issuer of the file is the token's, so none was asked".to_owned(),
        ),
        Some((_, authenticator)) => {
            live::fetch(&authenticator.issuer, &args.addresses.guard_without_hub())?
        }
    })
}

#[cfg(test)]
mod tests;
