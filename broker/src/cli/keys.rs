//! `keyferry keys`: what is published, since when, and what may leave.

mod rotate;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use keyferry_core::config::Overrides;
use keyferry_core::key_ledger::{KeyLedger, KeyRecord};
use keyferry_core::lifetime;
use keyferry_core::name::Namespace;
use serde::Serialize;

use super::{HUB, HubArgs, ui};
use crate::client::key_records::KeyRecordsClient;
use crate::clock::{Clock, SystemClock};
use crate::controller::config_file;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: Option<KeysCommand>,
    /// Keyferry's own namespace on the hub.
    #[arg(long, alias = "namespace", short_alias = 'n', value_name = "NAMESPACE", default_value = "keyferry-system", help_heading = HUB)]
    keyferry_namespace: String,
    /// Keyferry's configuration file: for its `discovery.maxAge`; without it, 60 s.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Ask the servers to let the next key of a target's own issuer sign. It has been published already, so no token is lost.
    Rotate(rotate::RotateArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// Columns.
    Table,
    /// What happened, oldest first.
    Timeline,
    /// A JSON object.
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kid: String,
    algorithm: &'static str,
    state: &'static str,
    published_at: Timestamp,
    settled_at: Timestamp,
    confirmed_at: Timestamp,
    withdrawn_at: Option<Timestamp>,
    held_until: Option<Timestamp>,
}

pub(super) async fn run(args: KeysArgs) -> ExitCode {
    if let Some(KeysCommand::Rotate(args)) = &args.command {
        return rotate::run(args).await;
    }
    let max_age = match args.config.as_deref().map(|path| config_file::read(path, Overrides::of_a_reader())) {
        None => Duration::from_secs(60),
        Some(Ok(configuration)) => configuration.server.max_age,
        Some(Err(error)) => return ui::fail(&error.to_string(), None),
    };
    let ledger = match namespace(&args.keyferry_namespace) {
        Ok(namespace) => read(&args.hub, namespace).await,
        Err(problem) => Err(problem),
    };
    let ledger = match ledger {
        Ok(ledger) => ledger,
        Err(problem) => return ui::fail(&problem, None),
    };
    let now = SystemClock::start().now().wall;
    let rows: Vec<Row> = ledger.keys.values().map(|record| row(record, lifetime::settle(max_age), now)).collect();
    match args.output {
        Output::Table => ui::finish(&ui::table(&table(&rows, &ledger))),
        Output::Timeline => ui::finish(&timeline(&rows, &ledger)),
        Output::Json => {
            let revoked: Vec<_> = ledger.revoked.iter().map(|(kid, revoked)| serde_json::json!({ "kid": kid, "at": revoked.at })).collect();
            let document = serde_json::json!({ "issuer": ledger.issuer.as_str(), "keys": rows, "revoked": revoked });
            ui::finish(&serde_json::to_string_pretty(&document).unwrap_or_default())
        }
    }
}

/// Reads the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::new(text).map_err(|error| format!("reading --keyferry-namespace {text:?}: {error}"))
}

async fn read(hub: &HubArgs, namespace: Namespace) -> Result<KeyLedger, String> {
    let client = KeyRecordsClient::connect(&hub.access(), namespace).await.map_err(|error| error.to_string())?;
    client.read().await.map_err(|error| error.to_string())
}

fn row(record: &KeyRecord, settle: Duration, now: Timestamp) -> Row {
    let settled_at = if record.first { record.published_at } else { record.published_at.saturating_add(settle).unwrap_or(now) };
    let state = match record.withdrawn_at {
        Some(_) => "held",
        None if now < settled_at => "settling",
        None => "settled",
    };
    Row {
        // Text of an upstream: encoded where it could speak to a terminal.
        kid: record.key.kid().escape_debug().to_string(),
        algorithm: record.key.algorithm().as_str(),
        state,
        published_at: record.published_at,
        settled_at,
        confirmed_at: record.confirmed_at,
        withdrawn_at: record.withdrawn_at,
        held_until: record.withdrawn_at.and(record.signed_until),
    }
}

fn table(rows: &[Row], ledger: &KeyLedger) -> Vec<Vec<String>> {
    let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let head = ["KID", "ALG", "STATE", "PUBLISHED", "SETTLED", "HELD UNTIL"].map(str::to_owned).to_vec();
    let keys = rows.iter().map(|row| {
        let held = row.held_until.map_or_else(|| "-".to_owned(), time);
        vec![row.kid.clone(), row.algorithm.to_owned(), row.state.to_owned(), time(row.published_at), time(row.settled_at), held]
    });
    let dash = || "-".to_owned();
    let revoked =
        ledger.revoked.keys().map(|kid| vec![kid.escape_debug().to_string(), dash(), "revoked".to_owned(), dash(), dash(), dash()]);
    std::iter::once(head).chain(keys).chain(revoked).collect()
}

fn timeline(rows: &[Row], ledger: &KeyLedger) -> String {
    let mut events: Vec<(Timestamp, String)> = Vec::new();
    for row in rows {
        events.push((row.published_at, format!("{} published", row.kid)));
        events.push((row.settled_at, format!("{} settled: its tokens may leave", row.kid)));
        events.extend(row.withdrawn_at.map(|at| (at, format!("{} withdrawn by the hub", row.kid))));
        events.extend(row.held_until.map(|at| (at, format!("{} no longer needed by any token", row.kid))));
    }
    events.extend(ledger.revoked.iter().map(|(kid, revoked)| (revoked.at, format!("{} revoked", kid.escape_debug()))));
    events.sort();
    let lines: Vec<String> = events.into_iter().map(|(at, event)| format!("{}  {event}", at.strftime("%Y-%m-%dT%H:%M:%SZ"))).collect();
    lines.join("\n")
}
