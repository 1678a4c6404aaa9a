//! A folder with a snapshot: what `kubectl get -o yaml` prints, beside the files of targets. Its
//! files come one by one as name and bytes, so this module reads no file.
//!
//! ```text
//! hub/*.yaml                            objects of the hub, as YAML or JSON
//! targets/NAME/authentication.yaml      the target's AuthenticationConfiguration
//! targets/NAME/rbac/*.yaml              its RBAC
//! targets/NAME/release                  its release, such as v1.36.2
//! audit.jsonl                           lines of Keyferry's audit log
//! keys.json                             what `keyferry keys -o json` prints
//! gaps.yaml                             who read it, when, and what was not readable
//! ```

mod gaps_file;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::config::{ObjectSize, ReducedObject};
use keyferry_api::foreign_text::{self, ForeignText};
use keyferry_api::name::ObjectName;

pub use self::gaps_file::{GapsFile, GapsFileError};
use crate::audit_lines::AuditLines;
use crate::facts::Source;
use crate::gap::{ACCESSES, AUDIT_LOG, Gap, GapCause, KEY_JOURNAL, TARGETS};
use crate::keys_document::KeysDocument;
use crate::object_stream::{StreamError, read_objects};
use crate::snapshot::{Added, MAX_OBJECTS, OBJECT_VERSION, Snapshot, TargetFiles};

/// The most bytes of a folder that are read.
pub const MAX_FOLDER_BYTES: u64 = 256 * 1024 * 1024;
/// The most files of a folder.
pub const MAX_FILES: usize = 20_000;
/// The largest file about one target, in bytes.
const MAX_TARGET_FILE_BYTES: usize = 8 * 1024 * 1024;
/// The longest name of a release, in bytes.
const MAX_RELEASE_BYTES: usize = 256;
/// The most warnings that are kept.
const MAX_WARNINGS: usize = 100;

/// The first line of each file of a snapshot, without the sign of a comment.
pub const FOLDER_NOTE: &str = "Keyferry snapshot: no secret is in it, but it is a map for an attacker; \
                               keep it as you keep credentials.";

/// Why a folder is not read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// Its files are too large together.
    #[error("its files have more than {MAX_FOLDER_BYTES} bytes")]
    TooLarge,
    /// It has too many files.
    #[error("it has more than {MAX_FILES} files")]
    TooManyFiles,
    /// It has none of the files of a snapshot.
    #[error("it has no file of a snapshot, such as hub/targetclusters.yaml")]
    NoSnapshot,
}

/// Which part of a snapshot a file has, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileRole {
    HubObjects,
    Authentication(ObjectName),
    Rbac(ObjectName, String),
    Release(ObjectName),
    Audit,
    Keys,
    Gaps,
}

/// Reads a folder file by file.
#[derive(Debug)]
pub struct FolderReader {
    snapshot: Snapshot,
    gaps_file: Option<GapsFile>,
    bytes: u64,
    files: usize,
    known_files: usize,
    /// The lists that a file of their name has, even if it is empty.
    listed: BTreeSet<&'static str>,
    /// How many objects of a kind were skipped.
    skipped: BTreeMap<String, usize>,
    warnings: Vec<String>,
}

/// What a folder has.
#[derive(Debug)]
pub struct FolderReading {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// What is odd in the folder, one line each, without text that could mislead.
    pub warnings: Vec<String>,
}

impl FolderReader {
    /// Begins to read the folder at `path`, as it was given.
    pub fn new(path: &str) -> Self {
        let source = Source::Folder {
            path: ForeignText::new(path),
        };
        Self {
            snapshot: Snapshot::new(source, Timestamp::UNIX_EPOCH),
            gaps_file: None,
            bytes: 0,
            files: 0,
            known_files: 0,
            listed: BTreeSet::new(),
            skipped: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Whether a file of this name and size is to be read, and given to [`FolderReader::add_file`].
    ///
    /// # Errors
    /// [`FolderError`]: the folder is too large.
    pub fn accept_file(&mut self, name: &str, size: u64) -> Result<bool, FolderError> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(FolderError::TooManyFiles);
        }
        if FileRole::of(name).is_none() {
            self.warn(name, "is not a file of a snapshot, and was not read");
            return Ok(false);
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_FOLDER_BYTES {
            return Err(FolderError::TooLarge);
        }
        Ok(true)
    }

    /// Adds a file. `name` is its path in the folder, with `/` between its parts.
    pub fn add_file(&mut self, name: &str, bytes: &[u8]) {
        let Some(role) = FileRole::of(name) else {
            return;
        };
        self.known_files += 1;
        match role {
            FileRole::HubObjects => self.add_objects(name, bytes),
            FileRole::Audit => {
                let lines = AuditLines::read(name, bytes);
                if lines.unreadable > 0 {
                    let count = lines.unreadable;
                    self.warn(name, &format!("lines that are no audit records: {count}"));
                }
                self.snapshot.audit = Some(lines);
            }
            FileRole::Keys => match KeysDocument::read(bytes) {
                Ok(keys) => self.snapshot.keys = Some(keys),
                Err(error) => {
                    let message = format!("{name}: {error}");
                    self.push_gap(Gap::of_keys(GapCause::Failed, &message));
                }
            },
            FileRole::Gaps => match GapsFile::read(bytes) {
                Ok(file) => self.gaps_file = Some(file),
                Err(error) => {
                    // What it would name is not known, so no list may look whole.
                    let message = format!("{name} {error}");
                    self.warn(name, &error.to_string());
                    self.push_gap(Gap::of_targets(GapCause::Failed, &message));
                    self.push_gap(Gap::of_accesses(GapCause::Failed, None, &message));
                }
            },
            FileRole::Authentication(target) => {
                if let Some(text) = self.target_text(name, bytes, MAX_TARGET_FILE_BYTES) {
                    self.files_of(target).authentication = Some(text);
                }
            }
            FileRole::Rbac(target, file) => {
                if let Some(text) = self.target_text(name, bytes, MAX_TARGET_FILE_BYTES) {
                    self.files_of(target).rbac.insert(file, text);
                }
            }
            FileRole::Release(target) => {
                if let Some(text) = self.target_text(name, bytes, MAX_RELEASE_BYTES) {
                    self.files_of(target).release = Some(release_in(&text));
                }
            }
        }
    }

    /// Ends the reading. `modified_at` is when the folder's oldest file was written: the time of the
    /// reading, if the folder does not state it.
    ///
    /// # Errors
    /// [`FolderError::NoSnapshot`].
    pub fn finish(mut self, modified_at: Timestamp) -> Result<FolderReading, FolderError> {
        if self.known_files == 0 {
            return Err(FolderError::NoSnapshot);
        }
        for (kind, count) in std::mem::take(&mut self.skipped) {
            self.warn(&kind, &format!("not used; objects of this kind: {count}"));
        }
        self.snapshot.read_at = modified_at;
        if let Some(file) = self.gaps_file.take() {
            self.snapshot.read_at = file.read_at.unwrap_or(modified_at);
            self.snapshot.user = file.user;
            self.snapshot.tenant = file.tenant;
            file.gaps.into_iter().for_each(|gap| self.push_gap(gap));
        }
        self.add_absent_lists();
        Ok(FolderReading {
            snapshot: self.snapshot,
            warnings: self.warnings,
        })
    }

    /// Notes the lists that no file has. An empty list has a file of its name.
    fn add_absent_lists(&mut self) {
        let tenant = self.snapshot.tenant.clone();
        let no_targets = self.snapshot.targets.is_empty() && !self.listed.contains(TARGETS);
        let no_accesses = self.snapshot.accesses.is_empty() && !self.listed.contains(ACCESSES);
        let message = "the folder has no such list";
        if no_targets && tenant.is_none() && self.snapshot.is_whole(TARGETS) {
            self.push_gap(Gap::of_targets(GapCause::Absent, message));
        }
        if no_accesses && self.snapshot.is_whole(ACCESSES) {
            self.push_gap(Gap::of_accesses(GapCause::Absent, tenant, message));
        }
        if self.snapshot.keys.is_none() && self.snapshot.is_whole(KEY_JOURNAL) {
            self.push_gap(Gap::of_keys(
                GapCause::Absent,
                "the folder has no keys.json",
            ));
        }
        if self.snapshot.audit.is_none() && self.snapshot.is_whole(AUDIT_LOG) {
            self.push_gap(Gap::of_audit(
                GapCause::Absent,
                "the folder has no audit.jsonl",
            ));
        }
    }

    fn add_objects(&mut self, name: &str, bytes: &[u8]) {
        let file = name.rsplit('/').next().unwrap_or(name);
        for (list, resource) in [("targetclusters.", TARGETS), ("targetaccesses.", ACCESSES)] {
            if file.starts_with(list) {
                self.listed.insert(resource);
            }
        }
        let mut last = None;
        let read = read_objects(bytes, |object| {
            last = Some(object.full_name());
            self.add_object(name, &object);
        });
        if let Err(error) = read {
            self.add_stream_error(name, &error, last.as_deref());
        }
    }

    /// Notes that objects after the error are missing. Which kinds those have, nothing says, unless
    /// the file is named after one.
    fn add_stream_error(&mut self, name: &str, error: &StreamError, last: Option<&str>) {
        let cause = match error {
            StreamError::Cut | StreamError::OnePage => GapCause::Cut,
            StreamError::NotUtf8 | StreamError::Unreadable { .. } => GapCause::Failed,
        };
        let message = format!("{name}: {error}");
        if error.cuts_the_last_object()
            && let Some(last) = last
        {
            self.snapshot.distrust_object(last);
        }
        let file = name.rsplit('/').next().unwrap_or(name);
        if !file.starts_with("targetaccesses.") {
            self.push_gap(Gap::of_targets(cause, &message));
        }
        if !file.starts_with("targetclusters.") {
            self.push_gap(Gap::of_accesses(cause, None, &message));
        }
    }

    fn add_object(&mut self, name: &str, object: &ReducedObject) {
        let (version, kind) = object.version_and_kind();
        let resource = match kind {
            "TargetCluster" => TARGETS,
            "TargetAccess" => ACCESSES,
            _ => {
                self.skip_object(name, object);
                return;
            }
        };
        let gap = |cause, message: &str| match resource {
            TARGETS => Gap::of_targets(cause, message),
            _ => Gap::of_accesses(cause, None, message),
        };
        if version != OBJECT_VERSION {
            let version = foreign_text::one_line(version, 100);
            let message = format!(
                "{name}: an object is of version {version}, and this keyferry reads {OBJECT_VERSION}"
            );
            self.push_gap(gap(GapCause::Failed, &message));
            return;
        }
        let full_name = foreign_text::one_line(&object.full_name(), 320);
        if object.size() != ObjectSize::Kept {
            let problem = format!("{kind} {full_name} is too large to be read whole");
            self.warn(name, &problem);
        }
        match self.snapshot.add_object(object) {
            Added::New | Added::Again | Added::OtherKind => {}
            Added::NameInvalid => {
                let message = format!("{name}: {kind} {full_name:?} has no valid name");
                self.push_gap(gap(GapCause::Failed, &message));
            }
            Added::Contradicts { kind, name: object } => {
                let object = foreign_text::one_line(&object, 320);
                let message =
                    format!("{name}: {kind} {object} is there twice, with different content");
                self.push_gap(gap(GapCause::Failed, &message));
            }
            Added::TooMany => {
                let message = format!("{name}: there are more than {MAX_OBJECTS} objects");
                self.push_gap(gap(GapCause::Cut, &message));
            }
        }
    }

    fn skip_object(&mut self, name: &str, object: &ReducedObject) {
        let (version, kind) = object.version_and_kind();
        if kind == "Secret" && object.has_data() {
            let secret = foreign_text::one_line(&object.full_name(), 320);
            self.warn(
                name,
                &format!("Secret {secret} has its content here; only its name was read: remove it"),
            );
            return;
        }
        let kind = foreign_text::one_line(&format!("{version} {kind}"), 200);
        if self.skipped.len() < MAX_WARNINGS || self.skipped.contains_key(&kind) {
            *self.skipped.entry(kind).or_default() += 1;
        }
    }

    fn target_text(&mut self, name: &str, bytes: &[u8], limit: usize) -> Option<String> {
        let text = std::str::from_utf8(bytes).ok();
        let problem = match text {
            Some(text) if text.len() <= limit => return Some(text.to_owned()),
            Some(_) => format!("is larger than {limit} bytes, and was not read"),
            None => "is not UTF-8, and was not read".to_owned(),
        };
        self.warn(name, &problem);
        None
    }

    fn files_of(&mut self, target: ObjectName) -> &mut TargetFiles {
        self.snapshot.target_files.entry(target).or_default()
    }

    /// Keeps one gap of each resource and cause: a file of another kind would have one a line.
    fn push_gap(&mut self, gap: Gap) {
        let is_known = |known: &Gap| known.resource == gap.resource && known.cause == gap.cause;
        if !self.snapshot.gaps.iter().any(is_known) {
            self.snapshot.gaps.push(gap);
        }
    }

    fn warn(&mut self, name: &str, problem: &str) {
        let name = foreign_text::one_line(name, 300);
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("{name}: {problem}"));
        }
    }
}

impl FileRole {
    fn of(name: &str) -> Option<Self> {
        let is_objects = |file: &str| {
            [".yaml", ".yml", ".json"]
                .iter()
                .any(|ending| file.ends_with(ending))
        };
        let parts: Vec<&str> = name.split('/').collect();
        match parts.as_slice() {
            ["hub", file] if is_objects(file) => Some(Self::HubObjects),
            ["targets", target, rest @ ..] => {
                let target = ObjectName::new(target).ok()?;
                match rest {
                    ["authentication.yaml"] => Some(Self::Authentication(target)),
                    ["rbac", file] if is_objects(file) => {
                        Some(Self::Rbac(target, (*file).to_owned()))
                    }
                    ["release"] => Some(Self::Release(target)),
                    _ => None,
                }
            }
            ["audit.jsonl"] => Some(Self::Audit),
            ["keys.json"] => Some(Self::Keys),
            ["gaps.yaml"] => Some(Self::Gaps),
            _ => None,
        }
    }
}

/// The first line that is no comment.
fn release_in(text: &str) -> String {
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    foreign_text::one_line(line.unwrap_or_default(), 64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
