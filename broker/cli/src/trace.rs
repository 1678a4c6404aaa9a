//! `keyferry trace`: follows tokens through the audit logs of the hub, of Keyferry and of targets.

mod text;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ipnet::IpNet;
use keyferry_fleet::trail::{MAX_TOKEN_ID_BYTES, RecordKind, TraceOptions, TraceReport, Trail};
use keyferry_platform::regular_file;

use crate::args::output_format::FormatArgs;
use crate::command_error::CommandError;
use crate::fleet::sources::read_keys;
use crate::{local_file, ui};

/// The exit code if nothing was found, and something is not known.
const UNDETERMINED: u8 = 3;
/// How much of a file is read at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// The flags of `keyferry trace`.
#[derive(Args)]
#[command(
    after_long_help = "Exit codes: 0 if nothing wrong was found, 1 if something was, 2 for a mistake in the call, 3 if \
                       nothing wrong was found and something could not be determined."
)]
pub(crate) struct TraceArgs {
    /// The token's jti [default: all tokens that were used wrongly]
    #[arg(value_name = "JTI")]
    token: Option<String>,
    /// An audit log of the hub's kube-apiserver, for TokenRequests (may be repeated)
    #[arg(long, value_name = "FILE")]
    hub_audit: Vec<PathBuf>,
    /// Keyferry's audit log (may be repeated)
    ///
    /// For issuances. Give the files of all replicas, and those that were rotated.
    #[arg(long, value_name = "FILE")]
    audit: Vec<PathBuf>,
    /// An audit log of a target's kube-apiserver, for uses (may be repeated)
    #[arg(long, value_name = "FILE")]
    target_audit: Vec<PathBuf>,
    /// What keyferry keys -o json printed.
    ///
    /// For the keys that were revoked.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The hub's name [default: none]
    ///
    /// Users at a target that begin with it and a colon are the hub's. Else those are that have any
    /// prefix before system:serviceaccount.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    hub_name: Option<String>,
    /// A user on the hub that may request tokens without Keyferry, as Flux may (may be repeated)
    #[arg(long, value_name = "USER", hide_short_help = true)]
    minter: Vec<String>,
    /// A network whose addresses count as one (may be repeated)
    ///
    /// Else addresses with the same first 24 bits do, and with the same first 64 bits of IPv6.
    #[arg(long, value_name = "CIDR", hide_short_help = true)]
    same_network: Vec<IpNet>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Prints what the records say; returns the exit code.
pub(crate) fn run(args: &TraceArgs) -> ExitCode {
    let report = match traced(args) {
        Ok(report) => report,
        Err(error) => return ui::command_misused(&error),
    };
    let code = match (report.has_findings, report.has_undetermined) {
        (true, _) => 1,
        (false, true) => UNDETERMINED,
        (false, false) => 0,
    };
    match args.format.output.document() {
        Some(format) => ui::finish_document(&report, format, ExitCode::from(code)),
        None => ui::finish_with(&text::of(&report, args.token.is_some()), code),
    }
}

fn traced(args: &TraceArgs) -> Result<TraceReport, CommandError> {
    if args.token.is_none() && args.target_audit.is_empty() {
        return Err(CommandError::with_fix(
            "reading the arguments: there is neither a JTI nor an audit log of a target",
            "name uses with --target-audit FILE, or one token",
        ));
    }
    let token = args.token.as_deref().map(token_id).transpose()?;
    let mut trail = Trail::new(TraceOptions {
        token,
        hub_name: args.hub_name.clone(),
        minters: args.minter.iter().cloned().collect::<BTreeSet<_>>(),
        networks: args.same_network.clone(),
        keys: args.keys.as_deref().map(read_keys).transpose()?,
    });
    for (record, paths) in [
        (RecordKind::Target, &args.target_audit),
        (RecordKind::Keyferry, &args.audit),
        (RecordKind::Hub, &args.hub_audit),
    ] {
        for path in paths {
            read_log(&mut trail, record, path)?;
        }
    }
    Ok(trail.finish())
}

/// Returns the `jti` of an argument, which may be written as kube-apiservers do.
fn token_id(argument: &str) -> Result<String, CommandError> {
    let id = argument.strip_prefix("JTI=").unwrap_or(argument);
    // A token itself has dots, and no error may repeat it.
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if id.is_empty() || id.len() > MAX_TOKEN_ID_BYTES || !id.chars().all(is_plain) {
        return Err(CommandError::with_fix(
            "reading the arguments: the JTI is none",
            "write the jti claim of the token, which keyferry inspect prints, and never the token",
        ));
    }
    Ok(id.to_owned())
}

/// Reads a log to its end, in pieces.
fn read_log(trail: &mut Trail, record: RecordKind, path: &Path) -> Result<(), CommandError> {
    let failed = |problem: String| {
        CommandError::with_fix(
            format!("reading the audit log from {}: {problem}", path.display()),
            "name a file with a JSON object a line; pipe a compressed one into -",
        )
    };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let file: File = regular_file::open_regular_file(path, u64::MAX)
            .map_err(|error| failed(local_file::with_fix(&error)))?;
        Box::new(file)
    };
    trail.begin_file(record, &path.display().to_string());
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    loop {
        let bytes = source
            .fill_buf()
            .map_err(|error| failed(error.to_string()))?;
        let length = bytes.len();
        if length == 0 {
            return Ok(());
        }
        trail.add_bytes(bytes);
        source.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::token_id;

    #[test]
    fn a_jti_is_no_token_and_no_text() {
        for (argument, expected) in [
            ("6f2ee0f7-1ab9", Some("6f2ee0f7-1ab9")),
            ("JTI=6f2ee0f7-1ab9", Some("6f2ee0f7-1ab9")),
            ("JTI=", None),
            ("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", None),
            ("a b", None),
            ("a\n", None),
            (&"a".repeat(129), None),
        ] {
            assert_eq!(token_id(argument).ok().as_deref(), expected, "{argument:?}");
        }
        let error = token_id("eyJh.hunter2.c2ln").err();
        assert!(error.is_some_and(|error| !format!("{error:?}").contains("hunter2")));
    }
}
