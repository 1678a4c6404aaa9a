//! `keyferry tree`: the path of one access as a tree, from what uses its objects to the user at the
//! target.

use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::{Configuration, ObjectSource, Overrides};
use keyferry_client::access_path::{AccessPath, PathStep, PathVerdict, StepState};
use keyferry_client::configuration_source::ConfigurationSource;
use keyferry_client::wanted_objects::Wanted;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;

use crate::args::HubArgs;
use crate::args::access::AccessNameArgs;
use crate::args::objects_argument::ObjectsArgs;
use crate::args::only_access;
use crate::args::output_format::FormatArgs;
use crate::command_error::CommandError;
use crate::doctor_report::UNDETERMINED;
use crate::ui;

/// The flags of `keyferry tree`.
#[derive(Args)]
pub(super) struct TreeArgs {
    #[command(flatten)]
    named: AccessNameArgs,
    #[command(flatten)]
    objects: ObjectsArgs,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    hub: HubArgs,
}

/// Prints the path of an access; the exit code is its verdict.
pub(super) async fn run(args: TreeArgs) -> ExitCode {
    match path(&args).await {
        Ok(path) => {
            let code = exit_code(path.verdict);
            match args.format.output.document() {
                Some(format) => ui::finish_document(&path, format, ExitCode::from(code)),
                None => ui::finish_with(&text(&path), code),
            }
        }
        Err(error) => ui::command_misused(&error),
    }
}

async fn path(args: &TreeArgs) -> Result<AccessPath, CommandError> {
    let source = args.objects.source()?;
    let hub = args.hub.access();
    let access = match args.named.name_on(&hub).await? {
        Some(access) => access,
        None => only_access::find(args.named.namespace.as_deref(), &source, &hub).await?,
    };
    let now = SystemClock::start().now().wall;
    if let Some(configuration) = configuration_in_file(&source).await? {
        let hub_name = &configuration.server.hub_name;
        let policy = &configuration.policy;
        return Ok(AccessPath::of_policy(policy, &access, hub_name, now));
    }
    let client = args.hub.client().await?;
    Ok(AccessPath::read_from_hub(&client, &access, now).await)
}

/// Returns the configuration of a file that has the objects; `None` if they are on the hub.
async fn configuration_in_file(
    source: &ConfigurationSource,
) -> Result<Option<Configuration>, CommandError> {
    match source {
        ConfigurationSource::Hub => Ok(None),
        ConfigurationSource::File(path) => {
            let configuration = config_file::read_config_file(path, Overrides::of_a_reader())?;
            let in_file = configuration.server.objects == ObjectSource::File;
            Ok(in_file.then_some(configuration))
        }
        ConfigurationSource::Objects(file) => Ok(Some(
            file.read_configuration(Wanted::All)
                .map_err(keyferry_client::ClientError::from)?,
        )),
    }
}

fn exit_code(verdict: PathVerdict) -> u8 {
    match verdict {
        PathVerdict::Well => 0,
        PathVerdict::Broken => 1,
        PathVerdict::Undetermined => UNDETERMINED,
    }
}

/// Writes the path as a tree, each step with a sign and a word, and the first that is not well below.
fn text(path: &AccessPath) -> String {
    let mut lines = Vec::new();
    push_lines(&path.root, "", "", &mut lines);
    format!("{}\n\n{}", lines.join("\n"), end(path))
}

/// Adds the lines of a step and of those below it. `branch` is before the step, and `indent` before
/// those below it.
fn push_lines(step: &PathStep, branch: &str, indent: &str, lines: &mut Vec<String>) {
    let (sign, word) = match step.state {
        StepState::Holds => ("✓", "ok"),
        StepState::Broken => ("✕", "broken"),
        StepState::Unknown => ("?", "unknown"),
        StepState::NotAsked => ("–", "not asked"),
    };
    lines.push(format!(
        "{sign} {word:9}  {branch}{}: {}",
        title(step),
        step.detail
    ));
    let last = step.below.len().saturating_sub(1);
    for (index, next) in step.below.iter().enumerate() {
        let (branch, below) = if index == last {
            ("└── ", "    ")
        } else {
            ("├── ", "│   ")
        };
        push_lines(
            next,
            &format!("{indent}{branch}"),
            &format!("{indent}{below}"),
            lines,
        );
    }
}

fn title(step: &PathStep) -> String {
    if step.name.is_empty() {
        step.kind.to_owned()
    } else {
        format!("{} {}", step.kind, step.name)
    }
}

fn end(path: &AccessPath) -> String {
    let said = |start: &str, step: &PathStep| {
        let fix = step.fix.as_deref().map(ui::plain);
        let fix = fix.map_or_else(String::new, |fix| format!("\nfix: {fix}"));
        format!("{start} {}: {}{fix}", title(step), step.detail)
    };
    let first = |state| path.root.first_in(state);
    match path.verdict {
        PathVerdict::Broken => first(StepState::Broken)
            .map_or_else(String::new, |step| said("the first broken step is", step)),
        PathVerdict::Undetermined => first(StepState::Unknown).map_or_else(String::new, |step| {
            said(
                "undetermined: no step is known to be broken; the first unknown is",
                step,
            )
        }),
        PathVerdict::Well => {
            "every step holds, as Keyferry last stated; keyferry doctor asks the target now"
                .to_owned()
        }
    }
}
