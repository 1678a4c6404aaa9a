//! `keyferry keys`: lists the hub's keys: which was last seen to sign, when each becomes active,
//! and when the hub may remove it.

mod rotate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use keyferry_api::config::{Configuration, ObjectSource, Overrides, TokenIssuer};
use keyferry_api::name::Namespace;
use keyferry_api::{foreign_text, lifetime};
use keyferry_client::key_records::KeyRecordsClient;
use keyferry_client::objects_of_hub::all_objects;
use keyferry_core::access_status;
use keyferry_hub::client::HubClient;
use keyferry_keys::key_journal::{KeyJournal, KeyRecord};
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;
use serde::Serialize;

use crate::args::output_format::DocumentFormat;
use crate::args::{HubArgs, KeyferryArgs};
use crate::command_error::CommandError;
use crate::ui;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: Option<KeysCommand>,
    #[command(flatten)]
    keyferry: KeyferryArgs,
    /// Keyferry's configuration file.
    ///
    /// For its `discovery.maxAge`, else 60 s, and for how many delivered objects hold a token of
    /// each key where it says `objects: CustomResources`.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = KeysOutput::Table)]
    output: KeysOutput,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Make the next key of a target's managed issuer the signing key.
    ///
    /// It has been published already, so no token is lost.
    Rotate(rotate::RotateArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum KeysOutput {
    /// Columns.
    Table,
    /// Events, oldest first.
    Timeline,
    /// A JSON object.
    Json,
    /// The same object as YAML.
    Yaml,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kid: String,
    algorithm: &'static str,
    state: &'static str,
    signs: Signs,
    signs_since: Option<Timestamp>,
    published_at: Timestamp,
    active_at: Timestamp,
    confirmed_at: Timestamp,
    withdrawn_at: Option<Timestamp>,
    held_until: Option<Timestamp>,
    tokens_until: Option<Timestamp>,
    remove_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered_objects: Option<usize>,
}

/// Whether a key signs, as seen in the tokens that Keyferry issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Signs {
    /// The newest key that signed an observed token.
    LastSeen,
    /// The key signed tokens before a newer key was seen to sign.
    Before,
    /// No token of this key was observed.
    NotSeen,
}

impl Signs {
    fn as_str(self) -> &'static str {
        match self {
            Self::LastSeen => "last seen",
            Self::Before => "before",
            Self::NotSeen => "not seen",
        }
    }
}

pub(super) async fn run(args: KeysArgs) -> ExitCode {
    if let Some(KeysCommand::Rotate(args)) = &args.command {
        return rotate::run(args).await;
    }
    let configuration = match args
        .config
        .as_deref()
        .map(|path| config_file::read_config_file(path, Overrides::of_a_reader()))
        .transpose()
    {
        Ok(configuration) => configuration,
        Err(error) => return ui::command_failed(&error.into()),
    };
    let max_age = configuration
        .as_ref()
        .map_or(Duration::from_secs(60), |configuration| {
            configuration.server.max_age
        });
    let journal = match args.keyferry.namespace() {
        Ok(namespace) => read(&args.hub, namespace).await,
        Err(error) => Err(error),
    };
    let journal = match journal {
        Ok(journal) => journal,
        Err(error) => return ui::command_failed(&error),
    };
    let now = SystemClock::start().now().wall;
    let delivered = delivered(configuration.as_ref(), &args.hub, now).await;
    let rows = rows(
        &journal,
        lifetime::activation_delay(max_age),
        delivered.as_ref(),
        now,
    );
    match args.output {
        KeysOutput::Table => ui::finish(&ui::table(&table(&rows, &journal, now))),
        KeysOutput::Timeline => ui::finish(&timeline(&rows, &journal, now)),
        KeysOutput::Json | KeysOutput::Yaml => {
            let document = journal_document(&journal, max_age, delivered.as_ref(), now);
            let format = match args.output {
                KeysOutput::Yaml => DocumentFormat::Yaml,
                _ => DocumentFormat::Json,
            };
            ui::finish_document(&document, format, ExitCode::SUCCESS)
        }
    }
}

/// Returns what `-o json` prints for a journal.
pub(crate) fn journal_document(
    journal: &KeyJournal,
    max_age: Duration,
    delivered: Option<&BTreeMap<String, usize>>,
    now: Timestamp,
) -> serde_json::Value {
    let rows = rows(journal, lifetime::activation_delay(max_age), delivered, now);
    let revoked: Vec<_> = journal
        .revoked
        .iter()
        .map(|(kid, revoked)| serde_json::json!({ "kid": kid, "at": revoked.at }))
        .collect();
    serde_json::json!({ "issuer": journal.issuer.as_str(), "keys": rows, "revoked": revoked })
}

async fn read(hub: &HubArgs, namespace: Namespace) -> Result<KeyJournal, CommandError> {
    let client = KeyRecordsClient::connect(&hub.access(), namespace).await?;
    Ok(client.read_journal().await?)
}

/// Counts the delivered objects with a token of each key, from the accesses' statuses. `None` if
/// the statuses are not available.
async fn delivered(
    configuration: Option<&Configuration>,
    hub: &HubArgs,
    now: Timestamp,
) -> Option<BTreeMap<String, usize>> {
    let configuration = configuration
        .filter(|configuration| configuration.server.objects == ObjectSource::CustomResources)?;
    let listed = async {
        let client = hub.access().config().await.and_then(HubClient::new)?;
        Ok::<_, CommandError>(all_objects(&configuration.server, &client).await?)
    };
    let objects = match listed.await {
        Ok(objects) => objects,
        Err(problem) => {
            ui::note(&format!(
                "how many delivered objects hold a token of each key is not known: {problem}"
            ));
            return None;
        }
    };
    let mut delivered = BTreeMap::new();
    for (name, access) in &objects.accesses {
        // Keys of a managed issuer are not the hub's.
        let target = access
            .meant()
            .and_then(|access| objects.target_spec(&access.target));
        if target.is_some_and(|target| target.issuer != TokenIssuer::Hub) {
            continue;
        }
        for (_, report) in access_status::delivered_objects(&access.record.status, name) {
            let expires: Option<Timestamp> = report
                .expires_at
                .as_ref()
                .and_then(|text| text.parse().ok());
            if let (Some(key_id), true) =
                (report.key_id, expires.is_some_and(|expires| expires > now))
            {
                *delivered.entry(key_id).or_default() += 1;
            }
        }
    }
    Some(delivered)
}

fn rows(
    journal: &KeyJournal,
    activation_delay: Duration,
    delivered: Option<&BTreeMap<String, usize>>,
    now: Timestamp,
) -> Vec<Row> {
    let signed = journal
        .keys
        .values()
        .filter(|record| record.signed_until.is_some() && record.withdrawn_at.is_none());
    let newest = signed.max_by_key(|record| record.published_at);
    let row = |record: &KeyRecord| {
        let active_at = self::active_at(record, activation_delay);
        let state = match record.withdrawn_at {
            Some(_) => "withdrawn",
            None if now < active_at => "activating",
            None => "active",
        };
        let signs = match (newest, record.signed_until) {
            (Some(newest), _) if newest.key.kid() == record.key.kid() => Signs::LastSeen,
            (_, Some(_)) => Signs::Before,
            (_, None) => Signs::NotSeen,
        };
        // Once a newer key signs and its tokens are accepted everywhere, the old key only verifies
        // the tokens that it signed before.
        let successor = newest.filter(|newest| {
            newest.published_at > record.published_at && record.withdrawn_at.is_none()
        });
        let remove_after = successor.map(|newest| {
            record
                .signed_until
                .max(Some(self::active_at(newest, activation_delay)))
                .unwrap_or(now)
        });
        Row {
            kid: record.key.kid().to_owned(),
            algorithm: record.key.algorithm().as_str(),
            state,
            signs,
            signs_since: record.signed_since,
            published_at: record.published_at,
            active_at,
            confirmed_at: record.confirmed_at,
            withdrawn_at: record.withdrawn_at,
            held_until: record.withdrawn_at.and(record.signed_until),
            tokens_until: record.signed_until,
            remove_after,
            delivered_objects: delivered
                .map(|delivered| delivered.get(record.key.kid()).copied().unwrap_or_default()),
        }
    };
    journal.keys.values().map(row).collect()
}

fn active_at(record: &KeyRecord, activation_delay: Duration) -> Timestamp {
    if record.first {
        record.published_at
    } else {
        record
            .published_at
            .saturating_add(activation_delay)
            .unwrap_or(Timestamp::MAX)
    }
}

/// Formats a time: a past one as it is, a future one as the duration until then.
fn when(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        return at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    }
    let seconds = at.as_second().saturating_sub(now.as_second());
    match (seconds / 3600, seconds % 3600 / 60) {
        (0, _) if seconds < 600 => format!("in {seconds} s"),
        (0, minutes) => format!("in {minutes} min"),
        (hours, minutes) => format!("in {hours} h {minutes} min"),
    }
}

fn table(rows: &[Row], journal: &KeyJournal, now: Timestamp) -> Vec<Vec<String>> {
    let objects = rows.iter().any(|row| row.delivered_objects.is_some());
    let mut head = vec![
        "KID",
        "ALG",
        "STATE",
        "SIGNS",
        "PUBLISHED",
        "ACTIVE",
        "LAST TOKEN ENDS",
        "SAFE TO REMOVE",
        "HELD UNTIL",
        "REVOKED",
    ];
    if objects {
        head.push("OBJECTS");
    }
    let dash = || "-".to_owned();
    let time = |time: Option<Timestamp>| time.map_or_else(dash, |time| when(time, now));
    let keys = rows.iter().map(|row| {
        let remove = match row.remove_after {
            Some(at) if at <= now => "now".to_owned(),
            Some(at) => when(at, now),
            None => dash(),
        };
        let signs = match (row.signs, row.signs_since) {
            (Signs::LastSeen, Some(since)) => format!("since {}", when(since, now)),
            (signs, _) => signs.as_str().to_owned(),
        };
        let mut cells = vec![
            row.kid.clone(),
            row.algorithm.to_owned(),
            row.state.to_owned(),
            signs,
        ];
        cells.extend([
            when(row.published_at, now),
            when(row.active_at, now),
            time(row.tokens_until),
            remove,
            time(row.held_until),
            dash(),
        ]);
        if objects {
            cells.push(
                row.delivered_objects
                    .map_or_else(dash, |count| count.to_string()),
            );
        }
        cells
    });
    let revoked = journal.revoked.iter().map(|(kid, revoked)| {
        let mut cells = vec![kid.clone(), dash(), "revoked".to_owned()];
        cells.extend(std::iter::repeat_with(dash).take(6));
        cells.push(when(revoked.at, now));
        cells
    });
    std::iter::once(head.into_iter().map(str::to_owned).collect())
        .chain(keys)
        .chain(revoked)
        .collect()
}

fn timeline(rows: &[Row], journal: &KeyJournal, now: Timestamp) -> String {
    let mut events: Vec<(Timestamp, String, String)> = Vec::new();
    for row in rows {
        let mut event = |at: Timestamp, past: &str, future: &str| {
            events.push((
                at,
                format!("{} {past}", row.kid),
                format!("{} {future}", row.kid),
            ))
        };
        event(row.published_at, "published", "will be published");
        event(
            row.active_at,
            "active: its tokens may be issued",
            "activates: its tokens may be issued then",
        );
        if let Some(at) = row.signs_since {
            event(
                at,
                "first seen to sign a token",
                "will be seen to sign a token",
            );
        }
        if let Some(at) = row.withdrawn_at {
            event(at, "withdrawn by the hub", "will be withdrawn by the hub");
        }
        if let Some(at) = row.held_until {
            event(
                at,
                "no longer needed by any token",
                "will no longer be needed by any token",
            );
        }
        if let Some(at) = row.remove_after {
            event(
                at,
                "safe to remove from the hub",
                "will be safe to remove from the hub",
            );
        }
    }
    events.extend(journal.revoked.iter().map(|(kid, revoked)| {
        (
            revoked.at,
            format!("{kid} revoked"),
            format!("{kid} will be revoked"),
        )
    }));
    events.sort();
    let line = |(at, past, future): (Timestamp, String, String)| {
        let event = if at <= now { past } else { future };
        format!(
            "{:<20}  {}",
            when(at, now),
            foreign_text::one_line(&event, usize::MAX)
        )
    };
    events.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
