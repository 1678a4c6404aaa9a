//! `keyferry lint`: reports the errors of AuthenticationConfiguration files with the apiserver's
//! own messages, and traps that the apiserver does not report.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use keyferry_api::foreign_text;
use keyferry_client::doctor::published;
use keyferry_kube_authn::config::MAX_BYTES;
use keyferry_kube_authn::lint::{self, Finding, Published, Severity};
use keyferry_kube_authn::{Code, Release};
use serde_json::Value;

use crate::args::address_args::AddressArgs;
use crate::args::minor::{ApiserverArgs, MinorArgs};
use crate::args::output_format::DocumentFormat;
use crate::inner_file::{self, InnerFile};
use crate::{local_file, ui};

/// The flags of `keyferry lint`.
#[derive(Args)]
pub(crate) struct LintArgs {
    /// An AuthenticationConfiguration, or a file that holds one; - is standard input (may be
    /// repeated)
    ///
    /// A ConfigMap or a machine configuration holds one.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    apiserver: ApiserverArgs,
    /// Also fetch what the issuers publish.
    ///
    /// Each one's discovery document and keys, as the target would, anonymously, by
    /// certificateAuthority. A file decides which addresses are called; --refuse-target-cidr names
    /// networks of yours in which nothing may be called.
    #[arg(long)]
    network: bool,
    #[command(flatten)]
    addresses: AddressArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = LintOutput::Text)]
    output: LintOutput,
}

#[derive(Clone, Copy, ValueEnum)]
enum LintOutput {
    /// For people.
    Text,
    /// A JSON array with one object per file.
    Json,
    /// The same array as YAML.
    Yaml,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
}

/// A file and its findings, with the lines of the file that was given.
struct Linted<'a> {
    path: &'a Path,
    /// Where the AuthenticationConfiguration is in it, if it is inside another document.
    location: Option<String>,
    findings: Vec<Finding>,
}

/// Prints the findings of each file; returns the exit code.
pub(crate) fn run(args: &LintArgs) -> ExitCode {
    let release = args.apiserver.minor.release();
    let mut linted = Vec::new();
    for path in &args.files {
        // The library itself reports a file that is too large, so reading one byte beyond its limit
        // is enough.
        let bytes = match local_file::read(path, "the AuthenticationConfiguration", MAX_BYTES + 1) {
            Ok(bytes) => bytes,
            Err(error) => return ui::command_misused(&error.into()),
        };
        for file in inner_file::find(&bytes) {
            match published(args, &file.bytes) {
                Ok(published) => {
                    let found = lint::lint_release(
                        &file.bytes,
                        release,
                        &args.apiserver.own_issuers,
                        &published,
                    );
                    linted.push(Linted {
                        path,
                        findings: in_outer_file(found, &file),
                        location: file.inside.map(|inside| inside.location),
                    });
                }
                Err(error) => return ui::fail(&format!("starting: {error}"), None),
            }
        }
    }
    let code = code(&linted);
    match args.output {
        LintOutput::Text => ui::finish_with(&text(&linted, args.apiserver.minor), code),
        LintOutput::Json => {
            ui::finish_document(&json(&linted, release), DocumentFormat::Json, code.into())
        }
        LintOutput::Yaml => {
            ui::finish_document(&json(&linted, release), DocumentFormat::Yaml, code.into())
        }
        LintOutput::Sarif => {
            ui::finish_document(&sarif(&linted), DocumentFormat::Json, code.into())
        }
    }
}

/// Names the lines of the given file, and says what it is if it is something else.
fn in_outer_file(mut findings: Vec<Finding>, file: &InnerFile) -> Vec<Finding> {
    let Some(inside) = &file.inside else {
        let fix = inner_file::fix_for_other_file(&file.bytes);
        for finding in &mut findings {
            let is_about_kind = matches!(
                finding.code,
                Code::KindNotRegistered
                    | Code::OtherKind
                    | Code::KindMissing
                    | Code::ApiVersionMissing
            );
            if let Some(fix) = fix.as_ref().filter(|_| is_about_kind) {
                finding.fix = fix.clone().into();
            }
        }
        return findings;
    };
    for finding in &mut findings {
        let (line, column) = inside.lines.outer_position(finding.line, finding.column);
        (finding.line, finding.column) = (line, column);
        if finding.code == Code::AnonymousNotStated && inside.is_rancher {
            finding.severity = Severity::Warning;
        }
    }
    findings
}

/// Fetches what the issuers publish, if `--network` is given.
fn published(args: &LintArgs, bytes: &[u8]) -> std::io::Result<Vec<Published>> {
    if !args.network {
        return Ok(Vec::new());
    }
    let places = lint::document_places(bytes, args.apiserver.minor.release().nearest_minor());
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(published::published(
            &places,
            &args.addresses.guard_without_hub(),
        )))
}

/// Returns exit code 1 for an error, 3 for an undetermined finding, else 0.
fn code(linted: &[Linted<'_>]) -> u8 {
    let findings = || linted.iter().flat_map(|file| &file.findings);
    if findings().any(|finding| finding.severity == Severity::Error) {
        1
    } else if findings().any(|finding| finding.code.is_undetermined()) {
        3
    } else {
        0
    }
}

/// The most characters of a message in the text output; JSON and SARIF have all of it.
const MAX_MESSAGE: usize = 400;

/// Returns the message as the text output shows it. An apiserver quotes the whole file where it
/// finds no kind; its first line is enough for the reader.
fn shown_message(finding: &Finding) -> Cow<'_, str> {
    let quotes_file = matches!(finding.code, Code::KindMissing | Code::ApiVersionMissing);
    match finding.message.split_once('\n') {
        Some((first, _)) if quotes_file => format!("{first} ...").into(),
        _ => finding.message.as_str().into(),
    }
}

fn text(linted: &[Linted<'_>], minor: MinorArgs) -> String {
    let mut lines = Vec::new();
    for Linted {
        path,
        location: place,
        findings,
    } in linted
    {
        if let Some(place) = place {
            lines.push(format!("{}: {}", path.display(), ui::plain(place)));
        }
        for finding in findings {
            let place: String = [finding.line, finding.column]
                .into_iter()
                .flatten()
                .map(|number| format!("{number}:"))
                .collect();
            let name = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            lines.push(
                format!(
                    "{}:{place} {name} {} {}",
                    path.display(),
                    finding.code,
                    ui::plain(&finding.path)
                )
                .trim_end()
                .to_owned(),
            );
            let message = foreign_text::plain_lines(&shown_message(finding), MAX_MESSAGE);
            lines.push(format!("    {}", message.replace('\n', "\n    ")));
            lines.push(format!("    fix: {}", ui::plain(&finding.fix)));
        }
        let counted = |(severity, noun)| {
            let found = findings
                .iter()
                .filter(|finding| finding.severity == severity);
            match found.count() {
                1 => format!("1 {noun}"),
                many => format!("{many} {noun}s"),
            }
        };
        let counts = [
            (Severity::Error, "error"),
            (Severity::Warning, "warning"),
            (Severity::Note, "note"),
        ];
        let counts = counts.map(counted).join(", ");
        lines.push(format!("{}: {counts}", path.display()));
    }
    lines.push(format!("for {}", minor.description()));
    lines.join("\n")
}

fn json(linted: &[Linted<'_>], release: Release) -> Value {
    let objects = linted.iter().map(|file| {
        let mut object = lint::to_json(release, &file.findings);
        if let Some(members) = object.as_object_mut() {
            members.insert("file".to_owned(), file.path.display().to_string().into());
            if let Some(place) = &file.location {
                members.insert("inside".to_owned(), place.as_str().into());
            }
        }
        object
    });
    objects.collect()
}

/// Renders one SARIF run for all files, because code hosts accept only one run per tool.
fn sarif(linted: &[Linted<'_>]) -> Value {
    let all: Vec<Finding> = linted
        .iter()
        .flat_map(|file| file.findings.iter().cloned())
        .collect();
    let mut document = lint::to_sarif(&all, "", env!("CARGO_PKG_VERSION"));
    let paths = linted
        .iter()
        .flat_map(|file| file.findings.iter().map(|_| file.path));
    let results = document
        .pointer_mut("/runs/0/results")
        .and_then(Value::as_array_mut);
    for (result, path) in results.into_iter().flatten().zip(paths) {
        if let Some(uri) = result.pointer_mut("/locations/0/physicalLocation/artifactLocation/uri")
        {
            *uri = relative_uri(path).into();
        }
    }
    document
}

/// Encodes a path as a URI reference.
fn relative_uri(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    let text = text.strip_prefix("./").unwrap_or(&text);
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| {
            if keep(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
