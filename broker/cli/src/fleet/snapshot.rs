//! `keyferry snapshot`: writes what the user may read of a hub into a folder, whole or not at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::ReducedObject;
use keyferry_api::foreign_text::hide_credentials_in;
use keyferry_fleet::audit_lines::reduce_records;
use keyferry_fleet::folder::{FOLDER_NOTE, GapsFile};
use keyferry_fleet::snapshot::Snapshot;
use keyferry_platform::clock::{Clock, SystemClock};
use serde_json::Value;

use super::sources;
use crate::args::HubArgs;
use crate::command_error::CommandError;
use crate::yaml_document::yaml_of_document;
use crate::{signals, ui};

#[derive(Args)]
#[command(
    after_long_help = "Exit codes: 0 if the folder was written, 1 if not, 2 for a mistake in the call, \
                       130 or 143 if Ctrl-C or SIGTERM ended it; then nothing of it is left."
)]
pub(crate) struct SnapshotArgs {
    /// The folder to write: a new one, or an empty one.
    ///
    /// Only its owner can read it. It has no token, key or Secret, but it is a map for an attacker.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Namespace on the hub [default: all]
    ///
    /// Only what its tenant may read: its accesses.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Keyferry's audit log.
    ///
    /// Its records are copied into the folder.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    audit: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArgs,
}

pub(crate) async fn run(args: SnapshotArgs) -> ExitCode {
    let interruption = signals::interruption();
    // A signal would leave the unfinished folder, which is removed where the future is dropped.
    let written = tokio::select! {
        written = write_snapshot(&args) => written,
        code = interruption => return code,
    };
    match written {
        Ok(text) => ui::finish(&text),
        Err(error) => ui::command_failed(&error),
    }
}

async fn write_snapshot(args: &SnapshotArgs) -> Result<String, CommandError> {
    refuse_full_folder(&args.folder)?;
    let now = SystemClock::start().now().wall;
    let mut folder = UnfinishedFolder::create(&args.folder)?;
    let mut failure = None;
    let mut write = |object: &ReducedObject| {
        if failure.is_none()
            && let Err(error) = folder.write_object(object)
        {
            failure = Some(error);
        }
    };
    let read = sources::read_hub_objects(&args.hub, args.namespace.as_deref(), now, &mut write);
    let mut snapshot = read.await?;
    if let Some(error) = failure {
        return Err(error);
    }
    if let Some(path) = &args.audit {
        let log = sources::add_audit_log(&mut snapshot, path)?;
        folder.write_audit_log(&log)?;
    }
    sources::note_missing_files(&mut snapshot);
    folder.write_rest(&snapshot)?;
    folder.finish(&args.folder)?;
    let mut lines = vec![format!(
        "wrote {} TargetClusters and {} TargetAccesses to {}; show it with keyferry fleet --snapshot {}",
        snapshot.targets.len(),
        snapshot.accesses.len(),
        args.folder.display(),
        args.folder.display()
    )];
    for gap in &snapshot.gaps {
        lines.push(format!("not in it: {} ({})", gap.hides, gap.message));
        lines.push(format!("fix: {}", gap.fix));
    }
    Ok(ui::block(&lines.join("\n")))
}

/// A folder with files is not replaced: they may be what somebody keeps.
fn refuse_full_folder(folder: &Path) -> Result<(), CommandError> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(CommandError::with_fix(
                format!(
                    "writing the snapshot {}: the folder is not empty",
                    folder.display()
                ),
                "name a new folder",
            )),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(folder, &error)),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::new(format!("writing the snapshot {}: {error}", path.display()))
}

/// A folder beside the wanted one, which gets its name once it is whole.
struct UnfinishedFolder {
    folder: tempfile::TempDir,
    targets: ListFile,
    accesses: ListFile,
}

impl UnfinishedFolder {
    fn create(wanted: &Path) -> Result<Self, CommandError> {
        let parent = match wanted.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let create = || {
            std::fs::create_dir_all(parent)?;
            // Its mode is 0700.
            let folder = tempfile::Builder::new()
                .prefix(".keyferry-snapshot-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)?;
            let hub = folder.path().join("hub");
            std::fs::create_dir(&hub)?;
            std::fs::set_permissions(&hub, Permissions::from_mode(0o700))?;
            Ok(Self {
                targets: ListFile::create(&hub.join("targetclusters.yaml"))?,
                accesses: ListFile::create(&hub.join("targetaccesses.yaml"))?,
                folder,
            })
        };
        create().map_err(|error: std::io::Error| failed(wanted, &error))
    }

    fn write_object(&mut self, object: &ReducedObject) -> Result<(), CommandError> {
        let file = match object.version_and_kind().1 {
            "TargetCluster" => &mut self.targets,
            _ => &mut self.accesses,
        };
        let mut document = object.clone().into_value();
        hide_credentials_in(&mut document);
        file.write_item(&document)
    }

    fn write_audit_log(&self, log: &[u8]) -> Result<(), CommandError> {
        let path = self.folder.path().join("audit.jsonl");
        let write = || {
            let mut file = BufWriter::new(create_file(&path)?);
            writeln!(file, "{}", serde_json::json!({ "note": FOLDER_NOTE }))?;
            for record in reduce_records(log) {
                writeln!(file, "{record}")?;
            }
            file.into_inner()?.sync_all()
        };
        write().map_err(|error| failed(&path, &error))
    }

    fn write_rest(&mut self, snapshot: &Snapshot) -> Result<(), CommandError> {
        self.targets.finish()?;
        self.accesses.finish()?;
        let gaps = yaml_of_document(&GapsFile::document_of(snapshot))
            .map_err(|error| CommandError::new(error.to_string()))?;
        let path = self.folder.path().join("gaps.yaml");
        write_file(&path, &format!("# {FOLDER_NOTE}\n{gaps}"))?;
        if let Some(keys) = &snapshot.keys {
            let document = keys.document(FOLDER_NOTE);
            let text = ui::json(&document).map_err(|error| CommandError::new(error.to_string()))?;
            write_file(&self.folder.path().join("keys.json"), &text)?;
        }
        Ok(())
    }

    /// Gives the folder its name. An empty folder of that name is replaced.
    fn finish(self, wanted: &Path) -> Result<(), CommandError> {
        let unfinished = self.folder.keep();
        std::fs::rename(&unfinished, wanted).map_err(|error| {
            // The error that matters is that of the rename.
            let _ = std::fs::remove_dir_all(&unfinished);
            failed(wanted, &error)
        })
    }
}

/// A list of objects as `kubectl get -o yaml` prints it, written object by object.
struct ListFile {
    path: PathBuf,
    file: BufWriter<File>,
    is_empty: bool,
}

impl ListFile {
    fn create(path: &Path) -> std::io::Result<Self> {
        let mut file = BufWriter::new(create_file(path)?);
        write!(file, "# {FOLDER_NOTE}\napiVersion: v1\nitems:")?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_empty: true,
        })
    }

    fn write_item(&mut self, object: &Value) -> Result<(), CommandError> {
        let text =
            yaml_of_document(object).map_err(|error| CommandError::new(error.to_string()))?;
        self.is_empty = false;
        let mut lines = text.trim_end().lines();
        let first = lines.next().unwrap_or_default();
        let mut item = format!("\n- {first}");
        for line in lines {
            item.push_str("\n  ");
            item.push_str(line);
        }
        let written = self.file.write_all(item.as_bytes());
        written.map_err(|error| failed(&self.path, &error))
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        let end = if self.is_empty { " []" } else { "" };
        let written = write!(self.file, "{end}\nkind: List\nmetadata: {{}}\n")
            .and_then(|()| self.file.flush())
            .and_then(|()| self.file.get_ref().sync_all());
        written.map_err(|error| failed(&self.path, &error))
    }
}

fn create_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn write_file(path: &Path, text: &str) -> Result<(), CommandError> {
    let write = || {
        let mut file = create_file(path)?;
        file.write_all(text.trim_end().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(|error| failed(path, &error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_folder_is_for_its_owner_and_is_read_as_it_was_written() {
        let parent = tempfile::tempdir().unwrap();
        let wanted = parent.path().join("snap");
        let mut folder = UnfinishedFolder::create(&wanted).unwrap();
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "prod", "uid": "u", "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "address": "https://prod.test", "audience": "https://prod.test\u{202e}",
                "caBundle": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
                "serverName": "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----" },
        });
        folder.write_object(&ReducedObject::of(&object)).unwrap();
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let source = keyferry_fleet::facts::Source::Generated { seed: 1 };
        let mut snapshot = Snapshot::new(source, now);
        snapshot.keys = keyferry_fleet::keys_document::KeysDocument::read(
            br#"{"issuer":"https://hub","keys":[{"kid":"a","signs":"lastSeen"}],"revoked":[]}"#,
        )
        .ok();
        folder.write_rest(&snapshot).unwrap();
        folder.write_audit_log(b"hunter2\n").unwrap();
        folder.finish(&wanted).unwrap();
        for (path, mode) in [
            ("", 0o40700),
            ("hub", 0o40700),
            ("hub/targetclusters.yaml", 0o100_600),
            ("hub/targetaccesses.yaml", 0o100_600),
            ("gaps.yaml", 0o100_600),
            ("keys.json", 0o100_600),
            ("audit.jsonl", 0o100_600),
        ] {
            let path = wanted.join(path);
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode(),
                mode,
                "{path:?}"
            );
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                let first: String = text.lines().take(2).collect();
                assert!(first.contains("map for an attacker"), "{text}");
                assert!(
                    !text.contains('\u{202e}') && !text.contains("hunter2"),
                    "{text}"
                );
            }
        }
        let read = sources::read_folder(&wanted).unwrap();
        assert_eq!((read.read_at, read.accesses.len()), (now, 0));
        let target = read.targets.values().next().unwrap();
        assert_eq!(target.view.spec.audience, "https://prod.test\u{202e}");
        assert_eq!(
            target.view.spec.ca_bundle.as_deref(),
            object["spec"]["caBundle"].as_str()
        );
        assert_eq!(read.keys, snapshot.keys);
        let again = refuse_full_folder(&wanted).unwrap_err();
        assert!(
            again.problem.ends_with("the folder is not empty"),
            "{again}"
        );
        let entries = std::fs::read_dir(parent.path()).unwrap().count();
        assert_eq!(entries, 1, "nothing else is left");
    }
}
