//! `keyferry who-can` and `keyferry reach`: who can do what at which target, by which way, from the
//! hub or from a snapshot of it and its targets.

mod live;
mod reach;
mod snapshot_folder;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use keyferry_api::name::{NameError, ObjectName};
use keyferry_kube_rbac::{Attributes, ResourceRequest};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_reach::answer::{Answers, Question, answer_question};
use keyferry_reach::report::{CONFIGURATION_STAYS, Report};
use keyferry_reach::world::World;

pub(crate) use self::reach::{ReachArgs, run as run_reach};
use crate::args::names::keyferry_namespace;
use crate::args::output_format::DocumentFormat;
use crate::args::{HubArgs, TARGET};
use crate::command_error::CommandError;
use crate::fleet::sources::read_config;
use crate::ui;

/// The exit code if an answer is not decided.
const UNDETERMINED: u8 = 3;

/// The flags of `keyferry who-can`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("where").args(["at", "all"]).required(true))]
pub(crate) struct WhoCanArgs {
    /// The verb, such as get.
    verb: String,
    /// The resource in the plural: RESOURCE[.GROUP][/SUBRESOURCE], or a path such as /metrics.
    resource: String,
    /// The object's name [default: none, as for a create or a list]
    #[arg(long, value_name = "NAME")]
    resource_name: Option<String>,
    /// Namespace at the target [default: the whole cluster]
    #[arg(
        long,
        short_alias = 'n',
        value_name = "NAMESPACE",
        help_heading = TARGET
    )]
    target_namespace: Option<String>,
    /// The TargetCluster (may be repeated)
    ///
    /// The answers are about it alone.
    #[arg(id = "at", long = "target", value_name = "NAME", value_parser = target_name, help_heading = TARGET)]
    targets: Vec<ObjectName>,
    /// Answer about every target.
    #[arg(long, help_heading = TARGET)]
    all: bool,
    #[command(flatten)]
    snapshot: SnapshotArgs,
}

/// Where the facts come from, and how the answers are printed.
#[derive(Args)]
pub(crate) struct SnapshotArgs {
    /// A folder that keyferry snapshot or kubectl wrote.
    ///
    /// hub/RESOURCE.yaml for each list, and targets/NAME/ with authentication.yaml, release and
    /// rbac/RESOURCE.yaml. A list without its file is not known, so it decides nothing.
    ///
    /// Without it, the hub is read.
    #[arg(long, value_name = "DIR")]
    snapshot: Option<PathBuf>,
    /// Keyferry's configuration file.
    ///
    /// Its targets and accesses count, unless it says `objects: CustomResources`: then those of the
    /// hub do.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A folder with one kubeconfig per target, named after it.
    ///
    /// Their RBAC and release are read. No API has an AuthenticationConfiguration, so that is
    /// NAME.authentication.yaml beside it. A kubeconfig whose user runs a command is refused.
    #[arg(long, value_name = "DIR", help_heading = TARGET)]
    target_kubeconfigs: Option<PathBuf>,
    /// A folder with NAME/authentication.yaml, NAME/release and NAME/rbac/RESOURCE.yaml of targets.
    #[arg(long, value_name = "DIR", help_heading = TARGET, conflicts_with = "snapshot")]
    target_files: Option<PathBuf>,
    /// Compare a sample of a snapshot's answers with the hub.
    ///
    /// It is always compared where the hub is read. Your rights need create on
    /// subjectaccessreviews.
    #[arg(long, requires = "snapshot")]
    check_live: bool,
    /// Keyferry's own namespace on the hub.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "keyferry-system",
        hide_short_help = true
    )]
    keyferry_namespace: String,
    /// The hub's issuer, which is the iss of its tokens [default: the one that the statuses name]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    issuer: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = ReachFormat::Tree)]
    output: ReachFormat,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReachFormat {
    /// For people: each subject with its ways.
    #[value(alias = "text")]
    Tree,
    /// One row a subject and target.
    Table,
    /// JSON with a stable schema.
    Json,
    /// The same document as YAML.
    Yaml,
    /// One HTML file with the ways, to send or to print.
    Html,
}

/// Prints who can; returns the exit code.
pub(crate) async fn run(args: WhoCanArgs) -> ExitCode {
    let request = match request(&args) {
        Ok(request) => request,
        Err(error) => return ui::command_misused(&error),
    };
    let question = Question {
        request: Some(request),
        targets: args.targets.iter().cloned().collect(),
        subject: None,
        is_thorough: !args.all,
        now: SystemClock::start().now().wall,
    };
    print_answers(&args.snapshot, &question).await
}

/// Parses the name of a TargetCluster.
fn target_name(text: &str) -> Result<ObjectName, NameError> {
    ObjectName::new(text)
}

fn request(args: &WhoCanArgs) -> Result<Attributes, CommandError> {
    let name = args.resource_name.clone().unwrap_or_default();
    if args.resource.starts_with('/') {
        if args.target_namespace.is_some() || !name.is_empty() {
            return Err(CommandError::with_fix(
                "a path has no namespace and no name",
                "leave --target-namespace and --resource-name out",
            ));
        }
        return Ok(Attributes::path(&args.verb, &args.resource));
    }
    let (resource, subresource) = args
        .resource
        .split_once('/')
        .unwrap_or((&args.resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    if resource.is_empty() || subresource.contains('/') {
        return Err(CommandError::with_fix(
            format!("{:?} is no resource", args.resource),
            "write RESOURCE[.GROUP][/SUBRESOURCE], such as deployments.apps/scale",
        ));
    }
    Ok(Attributes::resource(
        &args.verb,
        ResourceRequest {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: args.target_namespace.clone().unwrap_or_default(),
            name,
        },
    ))
}

/// Reads the facts, answers the question and prints the answers.
async fn print_answers(args: &SnapshotArgs, question: &Question) -> ExitCode {
    match report_answers(args, question).await {
        Ok((report, code)) => print_report(&report, args.output, code),
        Err(error) if args.snapshot.is_some() => ui::command_misused(&error),
        Err(error) => ui::command_failed(&error),
    }
}

async fn report_answers(
    args: &SnapshotArgs,
    question: &Question,
) -> Result<(Report, u8), CommandError> {
    let mut world = World::new(keyferry_namespace(&args.keyferry_namespace)?);
    world.hub.issuer.clone_from(&args.issuer);
    let configuration = args.config.as_deref().map(read_config).transpose()?;
    if let Some(configuration) = configuration.flatten() {
        let server = configuration.server;
        world.hub.caller_audience = server.caller_audience.to_string();
        let pinned = server.hub_issuer.map(|issuer| issuer.to_string());
        world.hub.issuer = world.hub.issuer.or(pinned);
        world.use_configuration(configuration.policy);
    }
    let folder = args.snapshot.as_deref();
    let is_live = folder.is_none() || args.check_live;
    let hub = if is_live {
        Some(live::connect(&args.hub).await?)
    } else {
        None
    };
    let bytes_left = live::read_budget();
    let notes = match (folder, &args.target_files, &hub) {
        (Some(folder), ..) => snapshot_folder::read(folder, &mut world)?,
        (None, files, Some((client, own_namespace))) => {
            live::read_hub(client, own_namespace, &mut world, &bytes_left).await?;
            let files = files.as_deref();
            files.map_or(Ok(Vec::new()), |files| {
                snapshot_folder::read_targets(files, &mut world)
            })?
        }
        (None, _, None) => Vec::new(),
    };
    for note in notes {
        ui::note(&note);
    }
    if let Some(folder) = &args.target_kubeconfigs {
        live::read_targets(folder, &mut world, &bytes_left).await?;
    }
    let mut answers = answer_question(&world, question);
    if let Some(error) = unknown_target(&answers, question) {
        return Err(error);
    }
    let check = match &hub {
        Some((client, _)) => live::check_answers(client, &mut world, question, &mut answers).await,
        None => live::LiveCheck::default(),
    };
    let mut report = Report::of(question, &answers);
    check.add_to(&mut report);
    if world.hub.is_configured() {
        report.assumptions.push(CONFIGURATION_STAYS);
    }
    let code = if answers.has_undetermined() {
        UNDETERMINED
    } else {
        0
    };
    Ok((report, code))
}

fn print_report(report: &Report, format: ReachFormat, code: u8) -> ExitCode {
    match format {
        ReachFormat::Tree => ui::finish_with(&text::tree(report), code),
        ReachFormat::Table => ui::finish_with(&text::table(report), code),
        ReachFormat::Html => ui::finish_with(&keyferry_pages::reach_file(report), code),
        ReachFormat::Json => ui::finish_document(report, DocumentFormat::Json, code.into()),
        ReachFormat::Yaml => ui::finish_document(report, DocumentFormat::Yaml, code.into()),
    }
}

/// Reads the folder of a snapshot, and notes what its reader should know.
///
/// # Errors
/// A file cannot be read, or has a mistake.
pub(crate) fn read_folder(
    folder: &Path,
    namespace: &str,
    issuer: Option<&String>,
) -> Result<World, CommandError> {
    let mut world = World::new(keyferry_namespace(namespace)?);
    world.hub.issuer = issuer.cloned();
    let notes = snapshot_folder::read(folder, &mut world)?;
    for note in notes {
        ui::note(&note);
    }
    Ok(world)
}

fn unknown_target(answers: &Answers, question: &Question) -> Option<CommandError> {
    let mut names = question.targets.iter();
    let unknown = names.find(|name| !answers.counts.contains_key(*name))?;
    Some(CommandError::with_fix(
        format!("there is no target {unknown}"),
        "name a TargetCluster, or a folder below targets",
    ))
}
