//! `keyferry rehearse`: predicts what an outage, a key rotation or a new CA costs, before it
//! happens. It reads, and changes nothing.

mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use keyferry_api::config::Overrides;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;
use keyferry_fleet::facts::Fleet;
use keyferry_fleet::judge::judge;
use keyferry_fleet::rehearsal::{Event, Parameters, Rehearsal, RotationOrder, rehearse};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;

use crate::args::HubArgs;
use crate::args::names::lifetime;
use crate::args::output_format::DocumentFormat;
use crate::command_error::CommandError;
use crate::doctor_report::UNDETERMINED;
use crate::fleet::{drift, sources};
use crate::ui;

#[derive(Args)]
pub(super) struct RehearseArgs {
    #[command(subcommand)]
    event: EventCommand,
}

#[derive(Subcommand)]
enum EventCommand {
    /// No apiserver of the hub answers.
    HubOutage(OutageArgs),
    /// The hub gets a new signing key.
    KeyRotation(RotationArgs),
    /// The hub's apiservers drop the public part of a key.
    RemoveKey(KeyArgs),
    /// The discovery documents, or a target, get a certificate of another CA.
    CaChange(AuthorityArgs),
    /// A key is revoked with keyferry revoke.
    Revoke(KeyArgs),
    /// No replica of Keyferry runs.
    KeyferryOutage(OutageArgs),
}

#[derive(Args)]
struct OutageArgs {
    /// How long it lasts [default: no end]
    #[arg(long = "for", value_name = "DURATION", value_parser = lifetime)]
    lasts: Option<Duration>,
    #[command(flatten)]
    scene: SceneArgs,
}

#[derive(Args)]
struct RotationArgs {
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    scene: SceneArgs,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct OrderArgs {
    /// Every apiserver lists the new key first, and signs with it once it is active.
    #[arg(long)]
    publish_first: bool,
    /// Every apiserver signs with a key that was never published.
    #[arg(long)]
    sign_at_once: bool,
}

#[derive(Args)]
struct KeyArgs {
    /// The key's kid, as keyferry keys shows it.
    // A kid is often base64url, which may begin with a hyphen.
    #[arg(value_name = "KID", allow_hyphen_values = true)]
    kid: String,
    #[command(flatten)]
    scene: SceneArgs,
}

#[derive(Args)]
struct AuthorityArgs {
    /// Whose certificate changes.
    #[arg(value_name = "WHOSE", value_enum)]
    server: CertifiedServer,
    /// The target, after `target`.
    #[arg(value_name = "NAME")]
    target: Option<String>,
    #[command(flatten)]
    scene: SceneArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CertifiedServer {
    /// The server of the discovery documents.
    Discovery,
    /// A target's apiserver.
    Target,
}

/// The facts, and what they do not say.
#[derive(Args)]
struct SceneArgs {
    /// Judge as of this time, in RFC 3339 [default: now]
    ///
    /// When the event happens.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// A folder that keyferry snapshot or kubectl wrote.
    ///
    /// Its objects are read instead of those of the hub.
    #[arg(long, value_name = "DIR")]
    snapshot: Option<PathBuf>,
    /// Namespace on the hub [default: all]
    ///
    /// Only its accesses are read.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Keyferry's configuration file.
    ///
    /// For its `discovery.maxAge` and `maxStaleAuthorization`.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// discovery.maxAge of the server [default: that of --config, else 60s]
    #[arg(long = "discovery-max-age", value_name = "DURATION", value_parser = lifetime, hide_short_help = true)]
    max_age: Option<Duration>,
    /// maxStaleAuthorization of the server [default: that of --config, else 5m]
    #[arg(long, value_name = "DURATION", value_parser = lifetime, hide_short_help = true)]
    max_stale_authorization: Option<Duration>,
    /// Whether replicas keep the keys on disk, by --state-dir [default: both are shown]
    #[arg(
        long = "has-state-dir",
        value_name = "true|false",
        hide_short_help = true
    )]
    state_dir: Option<bool>,
    /// How many replicas run.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 2,
        hide_short_help = true
    )]
    replicas: u16,
    /// When a target last fetched the keys (may be repeated)
    ///
    /// apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds of the target
    /// has it. Without it, the time of its next fetch is not known.
    #[arg(long, value_name = "TARGET=TIME", value_parser = fetch_of_target, hide_short_help = true)]
    fetched: Vec<(ObjectName, Timestamp)>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = RehearsalOutput::Table)]
    output: RehearsalOutput,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum RehearsalOutput {
    /// Columns, then the steps.
    Table,
    /// A JSON object, keyferry.dev/rehearsal/v1.
    Json,
    /// The same object as YAML.
    Yaml,
}

/// A text is not a target and a time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a target and a time like prod=2026-11-23T14:00:00Z")]
struct FetchError;

fn fetch_of_target(text: &str) -> Result<(ObjectName, Timestamp), FetchError> {
    let (target, at) = text.split_once('=').ok_or(FetchError)?;
    Ok((
        ObjectName::new(target).map_err(|_| FetchError)?,
        at.parse().map_err(|_| FetchError)?,
    ))
}

pub(super) async fn run(args: RehearseArgs) -> ExitCode {
    let (event, scene) = match event_of(args.event) {
        Ok(parsed) => parsed,
        Err(error) => return ui::command_misused(&error),
    };
    let parameters = match scene.parameters() {
        Ok(parameters) => parameters,
        Err(error) => return ui::command_failed(&error),
    };
    let now = SystemClock::start().now().wall;
    let fleet = match scene.read_fleet(now).await {
        Ok(fleet) => fleet,
        Err(error) => return ui::command_failed(&error),
    };
    let rehearsal = match rehearse_event(&scene, &event, &parameters, &fleet) {
        Ok(rehearsal) => rehearsal,
        Err(error) => return ui::command_misused(&error),
    };
    let code = if rehearsal.is_undetermined() {
        UNDETERMINED
    } else {
        0
    };
    match scene.output {
        RehearsalOutput::Table => ui::finish_with(&table::rehearsal_text(&rehearsal), code),
        RehearsalOutput::Json => {
            ui::finish_document(&rehearsal, DocumentFormat::Json, ExitCode::from(code))
        }
        RehearsalOutput::Yaml => {
            ui::finish_document(&rehearsal, DocumentFormat::Yaml, ExitCode::from(code))
        }
    }
}

fn event_of(command: EventCommand) -> Result<(Event, SceneArgs), CommandError> {
    Ok(match command {
        EventCommand::HubOutage(args) => (Event::HubOutage { lasts: args.lasts }, args.scene),
        EventCommand::KeyferryOutage(args) => {
            (Event::KeyferryOutage { lasts: args.lasts }, args.scene)
        }
        EventCommand::KeyRotation(args) => {
            let order = if args.order.publish_first {
                RotationOrder::PublishFirst
            } else {
                RotationOrder::SignAtOnce
            };
            (Event::KeyRotation { order }, args.scene)
        }
        EventCommand::RemoveKey(args) => {
            let kid = ForeignText::new(&args.kid);
            (Event::RemoveKey { kid }, args.scene)
        }
        EventCommand::Revoke(args) => {
            let kid = ForeignText::new(&args.kid);
            (Event::RevokeKey { kid }, args.scene)
        }
        EventCommand::CaChange(args) => {
            let event = authority_event(args.server, args.target.as_deref())?;
            (event, args.scene)
        }
    })
}

fn authority_event(server: CertifiedServer, target: Option<&str>) -> Result<Event, CommandError> {
    match (server, target) {
        (CertifiedServer::Discovery, None) => Ok(Event::DiscoveryAuthorityChange),
        (CertifiedServer::Discovery, Some(_)) => Err(CommandError::with_fix(
            "ca-change discovery concerns every target, so it takes no name",
            "leave the name out, or write ca-change target NAME",
        )),
        (CertifiedServer::Target, None) => Err(CommandError::with_fix(
            "ca-change target needs the target's name",
            "write ca-change target NAME; keyferry targets lists the names",
        )),
        (CertifiedServer::Target, Some(target)) => {
            let target = ObjectName::new(target).map_err(|error| {
                CommandError::new(format!("reading the target's name {target:?}: {error}"))
            })?;
            Ok(Event::TargetAuthorityChange { target })
        }
    }
}

fn rehearse_event(
    scene: &SceneArgs,
    event: &Event,
    parameters: &Parameters,
    fleet: &Fleet,
) -> Result<Rehearsal, CommandError> {
    let at = scene.at.unwrap_or(fleet.reading.judged_at);
    if at < fleet.reading.read_at {
        return Err(CommandError::with_fix(
            format!(
                "--at {at} is before the facts were read, {}",
                fleet.reading.read_at
            ),
            "leave --at out, or give a later time",
        ));
    }
    Ok(rehearse(fleet, event, parameters, at))
}

impl SceneArgs {
    /// Reads the facts of the hub, or of the folder, judged at `now`.
    async fn read_fleet(&self, now: Timestamp) -> Result<Fleet, CommandError> {
        let mut snapshot = match &self.snapshot {
            Some(folder) => drift::read_compared_folder(folder)?,
            None => sources::read_hub(&self.hub, self.namespace.as_deref(), now).await?,
        };
        if let Some(namespace) = &self.namespace {
            snapshot.keep_namespace(&sources::namespace(namespace)?);
        }
        sources::note_missing_files(&mut snapshot);
        Ok(judge(&snapshot, now))
    }

    /// What the facts do not say: from flags, else from the configuration file, else its defaults.
    fn parameters(&self) -> Result<Parameters, CommandError> {
        let defaults = Parameters::default();
        let server = match &self.config {
            Some(path) => {
                let read = config_file::read_config_file(path, Overrides::of_a_reader());
                Some(
                    read.map_err(|error| CommandError::of_configuration(&error))?
                        .server,
                )
            }
            None => None,
        };
        let of_file = server.map(|server| (server.max_age, server.max_stale_authorization));
        let (max_age, max_stale) =
            of_file.unwrap_or((defaults.max_age, defaults.max_stale_authorization));
        Ok(Parameters {
            max_age: self.max_age.unwrap_or(max_age),
            max_stale_authorization: self.max_stale_authorization.unwrap_or(max_stale),
            state_dir: self.state_dir,
            replicas: self.replicas,
            fetched_at: self.fetched.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests;
