//! Where the facts of a fleet are read: the hub, a folder, a configuration file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::config::{Configuration, ObjectSource, Overrides, ReducedObject};
use keyferry_api::name::Namespace;
use keyferry_client::fleet_reading::{FleetScope, read_fleet};
use keyferry_client::key_records::{KeyRecordsClient, KeysError};
use keyferry_fleet::audit_lines::{AuditLines, MAX_AUDIT_BYTES};
use keyferry_fleet::folder::{FolderReader, MAX_FOLDER_BYTES};
use keyferry_fleet::gap::{AUDIT_LOG, Gap, GapCause, KEY_JOURNAL};
use keyferry_fleet::keys_document::{KeysDocument, MAX_KEYS_BYTES};
use keyferry_fleet::snapshot::Snapshot;
use keyferry_hub::client::HubClient;
use keyferry_hub::key_record_store::RecordError;
use keyferry_hub::ports::HubError;
use keyferry_platform::config_file;
use keyferry_platform::regular_file;

use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::{keys, local_file, ui};

/// How deep the folders of a snapshot are: `targets/NAME/rbac/FILE`.
const MAX_DEPTH: usize = 4;
/// Where Keyferry is, if no status says it.
const DEFAULT_NAMESPACE: &str = "keyferry-system";
/// The default of `discovery.maxAge`.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(60);

/// Parses the flag `-n`.
pub(crate) fn namespace(text: &str) -> Result<Namespace, CommandError> {
    Namespace::new(text).map_err(|error| {
        CommandError::with_fix(
            format!("reading --namespace: {:?} {error}", ui::plain(text)),
            "name a namespace of the hub, or leave -n out for all of them",
        )
    })
}

/// Reads the hub with the user's own rights.
pub(crate) async fn read_hub(
    hub: &HubArgs,
    tenant: Option<&str>,
    now: Timestamp,
) -> Result<Snapshot, CommandError> {
    read_hub_objects(hub, tenant, now, &mut |_| {}).await
}

/// Reads the hub, and gives each object to `each_object` as soon as it was read.
pub(super) async fn read_hub_objects(
    hub: &HubArgs,
    tenant: Option<&str>,
    now: Timestamp,
    each_object: &mut (dyn FnMut(&ReducedObject) + Send),
) -> Result<Snapshot, CommandError> {
    let config = hub.access().config().await?;
    let server = config.cluster_url.to_string();
    let own_namespace = Namespace::new(&config.default_namespace).ok();
    let scope = match tenant {
        Some(text) => FleetScope::Tenant(namespace(text)?),
        None => FleetScope::Hub { own_namespace },
    };
    let is_tenant = tenant.is_some();
    let client = HubClient::new(config)?;
    let read = read_fleet(&client, &server, scope, now, each_object).await;
    let mut snapshot = read.map_err(|error| {
        CommandError::from(error).or_fix(
            "check that the hub's apiserver runs and takes your credentials, or show an earlier \
             reading with --snapshot DIR",
        )
    })?;
    if !is_tenant {
        read_journal(hub, &mut snapshot, now).await;
    }
    Ok(snapshot)
}

/// Reads the key journal, if the user may.
async fn read_journal(hub: &HubArgs, snapshot: &mut Snapshot, now: Timestamp) {
    let namespace = snapshot
        .keyferry_namespace()
        .or_else(|| Namespace::new(DEFAULT_NAMESPACE).ok());
    let Some(namespace) = namespace else {
        return;
    };
    let read = async {
        let client = KeyRecordsClient::connect(&hub.access(), namespace).await?;
        client.read_journal().await
    };
    match read.await {
        Ok(journal) => {
            let document = keys::journal_document(&journal, DEFAULT_MAX_AGE, None, now);
            snapshot.keys = KeysDocument::read(document.to_string().as_bytes()).ok();
        }
        Err(error) => {
            let cause = match &error {
                KeysError::Record(RecordError::Hub(HubError::Forbidden(_))) => GapCause::Refused,
                KeysError::None(_) | KeysError::Record(RecordError::Absent) => GapCause::Absent,
                _ => GapCause::Failed,
            };
            snapshot.gaps.push(Gap::of_keys(cause, &error.to_string()));
        }
    }
}

/// Reads a configuration file; `None` if the hub has the objects.
pub(crate) fn read_config(path: &Path) -> Result<Option<Configuration>, CommandError> {
    let configuration = config_file::read_config_file(path, Overrides::of_a_reader())?;
    let is_file = configuration.server.objects != ObjectSource::CustomResources;
    Ok(is_file.then_some(configuration))
}

/// Reads the folder of a snapshot. Symbolic links are not followed.
pub(crate) fn read_folder(folder: &Path) -> Result<Snapshot, CommandError> {
    let shown = folder.display().to_string();
    let failed = |problem: String| {
        CommandError::with_fix(
            format!("reading the snapshot {}: {problem}", ui::plain(&shown)),
            "name a folder that keyferry snapshot wrote, or that has hub/*.yaml of kubectl get \
             targetclusters,targetaccesses -A -o yaml",
        )
    };
    let mut files = Vec::new();
    list_files(folder, "", 1, &mut files).map_err(|error| failed(error.to_string()))?;
    files.sort();
    let mut reader = FolderReader::new(&shown);
    let mut oldest: Option<Timestamp> = None;
    for (name, path) in files {
        let metadata =
            std::fs::symlink_metadata(&path).map_err(|error| failed(error.to_string()))?;
        let accepted = reader
            .accept_file(&name, metadata.len())
            .map_err(|error| failed(error.to_string()))?;
        if !accepted {
            continue;
        }
        let bytes = regular_file::read_regular_file(&path, MAX_FOLDER_BYTES)
            .map_err(|error| failed(format!("{name}: {error}")))?;
        let modified = metadata.modified().ok();
        let modified = modified.and_then(|time| Timestamp::try_from(time).ok());
        oldest = oldest.into_iter().chain(modified).min();
        reader.add_file(&name, &bytes);
    }
    let reading = reader
        .finish(oldest.unwrap_or(Timestamp::UNIX_EPOCH))
        .map_err(|error| failed(error.to_string()))?;
    for warning in &reading.warnings {
        ui::note(&format!("warning: {warning}"));
    }
    Ok(reading.snapshot)
}

/// Lists the regular files below a folder, by their path in it.
fn list_files(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, PathBuf)>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        // Git's own files, and what editors leave.
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if kind.is_dir() && depth < MAX_DEPTH {
            list_files(&path, &format!("{name}/"), depth + 1, files)?;
        } else if kind.is_file() {
            files.push((name, path));
        }
    }
    Ok(())
}

/// Reads the newest lines of an audit log; returns its bytes.
pub(super) fn add_audit_log(snapshot: &mut Snapshot, path: &Path) -> Result<Vec<u8>, CommandError> {
    let bytes = match path == Path::new("-") {
        true => local_file::read(path, "the audit log", MAX_AUDIT_BYTES)?,
        false => read_end(path).map_err(|error| {
            let path = path.display();
            CommandError::new(format!("reading the audit log from {path}: {error}"))
        })?,
    };
    let lines = AuditLines::read(&path.display().to_string(), &bytes);
    if lines.lines == 0 && lines.unreadable > 0 {
        let path = path.display();
        return Err(CommandError::with_fix(
            format!("reading the audit log from {path}: no line is an audit record"),
            "name the file of audit.file, or what a sidecar shipped of it",
        ));
    }
    if lines.unreadable > 0 {
        let count = lines.unreadable;
        ui::note(&format!(
            "warning: lines of the audit log that are no records: {count}"
        ));
    }
    snapshot.gaps.retain(|gap| gap.resource != AUDIT_LOG);
    snapshot.audit = Some(lines);
    Ok(bytes)
}

/// Reads the last bytes of a file. One byte above the limit of an audit log says that its beginning
/// is missing.
fn read_end(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let limit = MAX_AUDIT_BYTES as u64 + 1;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads what `keyferry keys -o json` printed.
pub(crate) fn read_keys(path: &Path) -> Result<KeysDocument, CommandError> {
    let bytes = local_file::read(path, "the hub's keys", MAX_KEYS_BYTES)?;
    KeysDocument::read(&bytes).map_err(|error| {
        let path = path.display();
        CommandError::with_fix(
            format!("reading the hub's keys from {path}: {error}"),
            "write it with keyferry keys -o json",
        )
    })
}

/// Adds what `keyferry keys -o json` printed.
pub(super) fn add_keys(snapshot: &mut Snapshot, path: &Path) -> Result<(), CommandError> {
    let keys = read_keys(path)?;
    snapshot.gaps.retain(|gap| gap.resource != KEY_JOURNAL);
    snapshot.keys = Some(keys);
    Ok(())
}

/// Notes what no flag gave.
pub(crate) fn note_missing_files(snapshot: &mut Snapshot) {
    if snapshot.keys.is_none() && snapshot.is_whole(KEY_JOURNAL) {
        let gap = Gap::of_keys(GapCause::Absent, "it was not read");
        snapshot.gaps.push(gap);
    }
    if snapshot.audit.is_none() && snapshot.is_whole(AUDIT_LOG) {
        let gap = Gap::of_audit(GapCause::Absent, "it was not read");
        snapshot.gaps.push(gap);
    }
}
