//! `keyferry what-if`: which ways to targets a change opens and closes, and which deliveries it
//! breaks, from a snapshot of the hub and its targets.

mod allow_file;
mod change_file;
mod markdown;
mod sarif;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{NameError, ObjectName};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_reach::ListKind;
use keyferry_reach::what_if::{Comparison, ObjectLocation, WhatIfReport, compare_worlds};
use keyferry_reach::world::{ChangedObject, World};

use self::allow_file::AllowedWays;
use self::change_file::ChangeFile;
use crate::args::TARGET;
use crate::args::output_format::DocumentFormat;
use crate::command_error::CommandError;
use crate::ui;
use crate::who_can::read_folder;

/// The exit code if a way is new, or may be.
const NEW_ACCESS: u8 = 1;
const UNDETERMINED: u8 = 3;

/// The flags of `keyferry what-if`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("change").args(["filename", "delete", "from"]).multiple(true).required(true))]
pub(crate) struct WhatIfArgs {
    /// Objects from a file, or - for standard input.
    ///
    /// As they are applied. Each replaces the object of its kind, namespace and name whole, as a
    /// rendered manifest does: fields that others own are not merged.
    #[arg(short, long, value_name = "PATH", requires = "snapshot")]
    filename: Option<PathBuf>,
    /// Take an object away: KIND/NAMESPACE/NAME, or KIND/NAME (may be repeated)
    #[arg(long, value_name = "KIND/NAMESPACE/NAME", requires = "snapshot")]
    delete: Vec<String>,
    /// The target whose RBAC or AuthenticationConfiguration changes [default: the hub changes]
    ///
    /// By the objects of -f and --delete.
    #[arg(long, alias = "at", value_name = "TARGET", value_parser = target_name, conflicts_with = "from")]
    at_target: Option<ObjectName>,
    /// What to start from.
    ///
    /// A folder as --snapshot has it, to compare with the one of --to.
    #[arg(long, value_name = "DIR", requires = "to", conflicts_with_all = ["snapshot", "filename", "delete"])]
    from: Option<PathBuf>,
    /// The folder of a snapshot that --from is compared with.
    #[arg(long, value_name = "DIR", requires = "from")]
    to: Option<PathBuf>,
    /// A folder that keyferry snapshot or kubectl wrote.
    ///
    /// As who-can reads it.
    #[arg(long, value_name = "DIR")]
    snapshot: Option<PathBuf>,
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
    /// Only check, and exit.
    ///
    /// With no-new-access the exit code is 1 if a way appears, 3 if one may appear, else 0.
    #[arg(long, value_enum, value_name = "CHECK")]
    check: Option<AccessCheck>,
    /// The TargetCluster (may be repeated)
    ///
    /// The check is about it alone.
    #[arg(id = "checked", long = "target", value_name = "NAME", value_parser = target_name, requires = "check", help_heading = TARGET)]
    targets: Vec<ObjectName>,
    /// The new ways that are expected: a YAML list with subject, target and door of each.
    #[arg(long, alias = "allow", value_name = "FILE", requires = "check")]
    allow_file: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = WhatIfFormat::Text)]
    output: WhatIfFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AccessCheck {
    /// No subject gets a new way, or more rights by a way that it has.
    NoNewAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhatIfFormat {
    /// For people: lines.
    Text,
    /// JSON with a stable schema.
    Json,
    /// A table for a pull request.
    Markdown,
    /// SARIF 2.1.0, for code hosts: the new ways.
    Sarif,
}

fn target_name(text: &str) -> Result<ObjectName, NameError> {
    ObjectName::new(text)
}

/// The two worlds, and what is known of the change between them.
struct WorldPair {
    before: World,
    after: World,
    changed: Vec<ChangedObject>,
    not_judged: Vec<(String, String)>,
    file: Option<ChangeFile>,
}

/// Prints what a change does; returns the exit code.
pub(crate) fn run(args: &WhatIfArgs) -> ExitCode {
    match compare(args, SystemClock::start().now().wall) {
        Ok((report, code)) => print_report(args.output, &report, code),
        Err(error) => ui::command_misused(&error),
    }
}

fn print_report(format: WhatIfFormat, report: &WhatIfReport, code: u8) -> ExitCode {
    match format {
        WhatIfFormat::Text => ui::finish_with(&text::lines(report), code),
        WhatIfFormat::Markdown => ui::finish_with(&markdown::table(report), code),
        WhatIfFormat::Json => ui::finish_document(report, DocumentFormat::Json, code.into()),
        WhatIfFormat::Sarif => {
            let log = sarif::SarifLog::of(report);
            ui::finish_document(&log, DocumentFormat::Json, code.into())
        }
    }
}

fn compare(args: &WhatIfArgs, now: Timestamp) -> Result<(WhatIfReport, u8), CommandError> {
    let allowed = match &args.allow_file {
        Some(path) => AllowedWays::read(path)?,
        None => AllowedWays::default(),
    };
    let mut pair = match (&args.from, &args.to) {
        (Some(from), Some(to)) => read_pair(args, from, to)?,
        _ => apply_change(args, now)?,
    };
    let mut known_targets = args.targets.iter();
    if let Some(unknown) = known_targets.find(|name| !pair.has_target(name)) {
        return Err(unknown_target(unknown));
    }
    pair.add_unread_subjects();
    let comparison = compare_worlds(&pair.before, &pair.after, &pair.changed, now);
    let mut report = WhatIfReport::of(&comparison, &pair.not_judged, |object| {
        location(args, pair.file.as_ref(), object)
    });
    for (way, change) in report.ways.iter_mut().zip(&comparison.ways) {
        way.is_allowed = change.appears && allowed.has(change);
    }
    let code = exit_code(args, &report, &comparison);
    Ok((report, code))
}

fn read_pair(args: &WhatIfArgs, from: &Path, to: &Path) -> Result<WorldPair, CommandError> {
    let read = |folder| read_folder(folder, &args.keyferry_namespace, args.issuer.as_ref());
    let (mut before, mut after) = (read(from)?, read(to)?);
    let mut unknown = before.aggregate_roles();
    unknown.extend(after.aggregate_roles());
    let not_judged = unknown.into_iter().map(|why| ("what follows".into(), why));
    Ok(WorldPair {
        before,
        after,
        changed: Vec::new(),
        not_judged: not_judged.collect(),
        file: None,
    })
}

/// Applies the change of the flags to the snapshot.
fn apply_change(args: &WhatIfArgs, now: Timestamp) -> Result<WorldPair, CommandError> {
    let folder = args.snapshot.as_deref().unwrap_or(Path::new("."));
    let before = read_folder(folder, &args.keyferry_namespace, args.issuer.as_ref())?;
    let target = args.at_target.as_ref();
    if let Some(target) = target.filter(|target| !before.has_target(target)) {
        return Err(unknown_target(target));
    }
    let mut after = before.clone();
    let (mut changed, mut not_judged) = (Vec::new(), Vec::new());
    for name in &args.delete {
        let object = change_file::deleted_object(name, target)?;
        let why = after
            .delete(&object)
            .map_err(|it| CommandError::of_quoting_line(&it.to_string()))?;
        not_judged.extend(why.map(|why| (format!("removal of {object}"), why)));
        changed.push(object);
    }
    let file = match &args.filename {
        Some(path) => Some(ChangeFile::read(path, target)?),
        None => None,
    };
    for document in file.iter().flat_map(|file| &file.documents) {
        let object = &document.object;
        let why = after
            .apply(object, document.value.clone(), now)
            .map_err(|error| {
                let line = document.line;
                CommandError::of_quoting_line(&format!("line {line} of the change: {error}"))
            })?;
        not_judged.extend(why.map(|why| (object.to_string(), why)));
        changed.push(object.clone());
    }
    let unknown = after.settle(&before, &changed).into_iter();
    not_judged.extend(unknown.map(|why| ("what follows".into(), why)));
    Ok(WorldPair {
        before,
        after,
        changed,
        not_judged,
        file,
    })
}

fn unknown_target(name: &ObjectName) -> CommandError {
    CommandError::with_fix(
        format!("the snapshot has no target {name}"),
        "name a TargetCluster of the snapshot, or a folder below targets",
    )
}

impl WorldPair {
    fn has_target(&self, name: &ObjectName) -> bool {
        self.before.has_target(name) || self.after.has_target(name)
    }

    /// Notes the lists that may have subjects of which nothing is known.
    fn add_unread_subjects(&mut self) {
        for (world, which) in [(&self.before, "before"), (&self.after, "after")] {
            let lists = [
                ListKind::ServiceAccounts,
                ListKind::ClusterRoleBindings,
                ListKind::RoleBindings,
            ];
            let unread = lists
                .into_iter()
                .filter(|kind| !world.hub.lists.is_whole(*kind));
            self.not_judged.extend(unread.map(|kind| {
                let why = format!("{} {which} the change were not read", kind.resource());
                ("subjects that are not listed".to_owned(), why)
            }));
        }
    }
}

/// Where an object is written: in the file of the change, or in the folder of `--to`.
fn location(
    args: &WhatIfArgs,
    file: Option<&ChangeFile>,
    object: &ChangedObject,
) -> Option<ObjectLocation> {
    if let Some(line) = file.and_then(|file| file.line_of(object)) {
        let path = args.filename.as_ref()?;
        return Some(ObjectLocation {
            file: ForeignText::new(&path.to_string_lossy()),
            line: Some(line),
        });
    }
    let folder = args.to.as_ref()?;
    let list = object.list()?.resource();
    let path = match &object.target {
        None => folder.join("hub").join(format!("{list}.yaml")),
        Some(target) => folder.join(format!("targets/{target}/rbac/{list}.yaml")),
    };
    Some(ObjectLocation {
        file: ForeignText::new(&path.to_string_lossy()),
        line: None,
    })
}

fn exit_code(args: &WhatIfArgs, report: &WhatIfReport, comparison: &Comparison) -> u8 {
    if args.check.is_none() {
        return if report.has_undetermined() {
            UNDETERMINED
        } else {
            0
        };
    }
    let targets: BTreeSet<&ObjectName> = args.targets.iter().collect();
    let is_asked = |target: &Option<ObjectName>| {
        targets.is_empty()
            || target
                .as_ref()
                .is_none_or(|target| targets.contains(target))
    };
    let mut new_ways = report
        .ways
        .iter()
        .zip(&comparison.ways)
        .filter(|(way, change)| change.appears && !way.is_allowed && is_asked(&change.target))
        .peekable();
    let is_open =
        new_ways.peek().is_some() || report.has_more_ways || !report.not_judged.is_empty();
    if new_ways.any(|(_, change)| change.is_certain) {
        NEW_ACCESS
    } else if is_open {
        UNDETERMINED
    } else {
        0
    }
}
