//! `keyferry fleet`: one row for each target, worst first, from the hub or from a folder; and
//! `keyferry snapshot`, which writes such a folder.

pub(crate) mod drift;
mod snapshot;
pub(super) mod sources;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use keyferry_api::config::Configuration;
use keyferry_fleet::facts::Fleet;
use keyferry_fleet::judge::{Verdict, judge};
use keyferry_fleet::redact::redact;
use keyferry_fleet::snapshot::Snapshot;
use keyferry_platform::clock::{Clock, SystemClock};

use self::drift::{Desires, LiveArgs};
pub(super) use self::snapshot::{SnapshotArgs, run as run_snapshot};
use crate::args::HubArgs;
use crate::args::output_format::DocumentFormat;
use crate::command_error::CommandError;
use crate::ui;

/// The exit code if something could not be determined, as of `doctor`.
const UNDETERMINED: u8 = 3;

#[derive(Args)]
#[command(
    after_long_help = "Exit codes: 0 if all is well, 1 if something is broken or a target \
                             differs from what it should trust, 2 for a mistake in the call, 3 if nothing is known to be broken and something \
                             could not be determined."
)]
pub(super) struct FleetArgs {
    /// A folder that keyferry snapshot or kubectl wrote.
    ///
    /// Its objects are shown instead of those of the hub.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    snapshot: Option<PathBuf>,
    /// Keyferry's configuration file.
    ///
    /// What it states is shown, and nothing of it is asked. Where it says `objects:
    /// CustomResources`, the hub is read.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Namespace on the hub [default: all]
    ///
    /// Only what its tenant may read: its accesses, and what their statuses say of targets.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Leave out addresses, audiences, users and namespaces.
    ///
    /// For a reader outside. Namespaces and ServiceAccounts get numbers.
    #[arg(long)]
    redact: bool,
    /// Keyferry's audit log.
    ///
    /// For refused requests.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    audit: Option<PathBuf>,
    /// What keyferry keys -o json printed.
    ///
    /// For the lives of the keys.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    keys: Option<PathBuf>,
    /// Judge as of this time, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    at: Option<Timestamp>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = FleetOutput::Table)]
    output: FleetOutput,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    hub: HubArgs,
}

/// How the facts are printed.
#[derive(Clone, Copy, ValueEnum)]
enum FleetOutput {
    /// One row for each target.
    Table,
    /// A JSON object with all facts.
    Json,
    /// The same object as YAML.
    Yaml,
    /// One HTML file with every page, to send or to print.
    Html,
}

pub(super) async fn run(args: FleetArgs) -> ExitCode {
    let now = SystemClock::start().now().wall;
    let snapshot = match read_snapshot(&args, now).await {
        Ok(snapshot) => snapshot,
        Err(error) => return ui::command_failed(&error),
    };
    let fleet = judge(&snapshot, args.at.unwrap_or(now));
    let fleet = match args.redact {
        true => redact(fleet),
        false => fleet,
    };
    print_fleet(&fleet, args.output)
}

async fn read_snapshot(args: &FleetArgs, now: Timestamp) -> Result<Snapshot, CommandError> {
    let files = FleetFiles {
        folder: args.snapshot.as_deref(),
        config: args.config.as_deref(),
        audit: args.audit.as_deref(),
        keys: args.keys.as_deref(),
    };
    let namespace = args.namespace.as_deref();
    let (mut snapshot, configuration) = read_objects(&args.hub, namespace, &files, now).await?;
    if let Some(folder) = &args.live.target_kubeconfigs {
        let desires = Desires::of_files(configuration);
        drift::compare_live(args, folder, &mut snapshot, desires, now).await?;
    }
    add_files(&mut snapshot, &files, namespace)?;
    Ok(snapshot)
}

/// Files that are read instead of the hub, or for what its objects do not say.
pub(crate) struct FleetFiles<'a> {
    /// The folder of a snapshot.
    pub(crate) folder: Option<&'a Path>,
    /// Keyferry's configuration file.
    pub(crate) config: Option<&'a Path>,
    /// Keyferry's audit log.
    pub(crate) audit: Option<&'a Path>,
    /// What `keyferry keys -o json` printed.
    pub(crate) keys: Option<&'a Path>,
}

/// Reads a fleet for a command that shows it: from a folder, a configuration file with its objects,
/// or the hub.
///
/// # Errors
/// The hub does not answer, or a file cannot be read.
pub(crate) async fn read_fleet(
    hub: &HubArgs,
    namespace: Option<&str>,
    files: &FleetFiles<'_>,
    now: Timestamp,
) -> Result<Snapshot, CommandError> {
    let (mut snapshot, _) = read_objects(hub, namespace, files, now).await?;
    add_files(&mut snapshot, files, namespace)?;
    Ok(snapshot)
}

/// Reads the objects, and the configuration file if it has them.
async fn read_objects(
    hub: &HubArgs,
    namespace: Option<&str>,
    files: &FleetFiles<'_>,
    now: Timestamp,
) -> Result<(Snapshot, Option<Configuration>), CommandError> {
    let configuration = files
        .config
        .map(sources::read_config)
        .transpose()?
        .flatten();
    let snapshot = match (files.folder, &configuration, files.config) {
        (Some(folder), ..) => drift::read_compared_folder(folder)?,
        (None, Some(configuration), Some(path)) => {
            Snapshot::of_policy(&configuration.policy, &path.display().to_string(), now)
        }
        _ => sources::read_hub(hub, namespace, now).await?,
    };
    Ok((snapshot, configuration))
}

/// Adds what the files say, and leaves out what is not of the namespace.
fn add_files(
    snapshot: &mut Snapshot,
    files: &FleetFiles<'_>,
    namespace: Option<&str>,
) -> Result<(), CommandError> {
    if let Some(path) = files.audit {
        sources::add_audit_log(snapshot, path)?;
    }
    if let Some(path) = files.keys {
        sources::add_keys(snapshot, path)?;
    }
    if let Some(namespace) = namespace {
        snapshot.keep_namespace(&sources::namespace(namespace)?);
    }
    sources::note_missing_files(snapshot);
    Ok(())
}

/// Prints facts. Each further format is one arm here.
fn print_fleet(fleet: &Fleet, output: FleetOutput) -> ExitCode {
    let code = exit_code(fleet.verdict());
    let format = match output {
        FleetOutput::Table => return ui::finish_with(&table::render(fleet), code),
        FleetOutput::Html => return ui::finish_with(&keyferry_pages::whole_file(fleet), code),
        FleetOutput::Json => DocumentFormat::Json,
        FleetOutput::Yaml => DocumentFormat::Yaml,
    };
    ui::finish_document(fleet, format, ExitCode::from(code))
}

fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Working => 0,
        Verdict::Broken => 1,
        Verdict::Undetermined => UNDETERMINED,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
