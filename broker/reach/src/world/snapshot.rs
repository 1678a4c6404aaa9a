//! The files of a snapshot: what `kubectl get -o yaml` prints, and of which lists they are whole.
//!
//! A file says by its name which list it is: `hub/pods.yaml` is all Pods, and
//! `hub/pods.tenant-a.yaml` those of one namespace. A file with another name has objects, and no
//! list is whole because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyferry_api::name::ObjectName;
use serde_json::Value;

use super::slim_value::SlimValue;
use super::{ObjectError, TargetFiles, World};
use crate::list::{ListKind, Lists};

/// The most bytes of a snapshot.
pub const MAX_SNAPSHOT_BYTES: u64 = 256 << 20;
/// On how many threads files, or the items of one, are parsed at most, and how many items make another one worth it.
const MAX_THREADS: usize = 8;
const MIN_ITEMS_PER_THREAD: usize = 500;

/// A file of a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// An object in it has a mistake.
    #[error("{path}: {error}")]
    Object {
        /// The file.
        path: String,
        /// The mistake.
        error: Box<ObjectError>,
    },
    /// It is no YAML or JSON, or has more than the reader takes.
    #[error("{0} cannot be read as YAML or JSON; fix: give what kubectl get -o yaml prints")]
    Syntax(String),
    /// It names no release.
    #[error("{0} names no release; fix: write one like v1.37.2")]
    Release(String),
    /// The folder below `targets` is no name of a TargetCluster.
    #[error("{0} is no name of a TargetCluster; fix: name the folder as the TargetCluster")]
    TargetName(String),
}

/// Something about a file that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotNote {
    /// The list ends before its end, so nothing of it counts.
    Cut(String),
    /// It has the data of Secrets, which is not read.
    SecretData(String),
    /// No answer depends on it.
    Skipped(String),
}

/// What a file says, parsed.
struct Listed {
    objects: Vec<Value>,
    is_whole: bool,
}

impl World {
    /// Adds a file of a snapshot, by its path below the snapshot's folder.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn add_file(
        &mut self,
        path: &str,
        text: &str,
    ) -> Result<Option<SnapshotNote>, SnapshotError> {
        let listed = list_in(path, text)?;
        self.add_read_file(path, text, listed)
    }

    /// Adds files of a snapshot, as [`Self::add_file`] does one after the other. They are parsed on
    /// a few threads, all before the first is added.
    ///
    /// # Errors
    /// [`SnapshotError`] of the first file that has one.
    pub fn add_files(
        &mut self,
        files: &[(String, String)],
    ) -> Result<Vec<SnapshotNote>, SnapshotError> {
        let mut notes = Vec::new();
        for ((path, text), listed) in files.iter().zip(lists_in(files)) {
            notes.extend(self.add_read_file(path, text, listed?)?);
        }
        Ok(notes)
    }

    fn add_read_file(
        &mut self,
        path: &str,
        text: &str,
        listed: Option<Listed>,
    ) -> Result<Option<SnapshotNote>, SnapshotError> {
        let listed = match listed {
            Some(listed) if !listed.is_whole => {
                return Ok(Some(SnapshotNote::Cut(path.to_owned())));
            }
            listed => listed.map(|listed| listed.objects),
        };
        let parts: Vec<&str> = path.split('/').collect();
        match (parts.as_slice(), listed) {
            (["hub", file], Some(objects)) => self.add_hub_objects(path, file, objects),
            (["targets", target, "rbac", file], Some(objects)) => {
                let files = self.target(target)?;
                for object in objects {
                    files.add(object).map_err(|error| in_file(path, error))?;
                }
                note_list(&mut files.lists, file, &ListKind::RBAC);
                Ok(None)
            }
            (["targets", target, "authentication.yaml"], _) => {
                self.target(target)?.authentication = Some(text.as_bytes().to_vec());
                Ok(None)
            }
            (["targets", target, "release"], _) => {
                let release = text.trim().parse();
                let release = release.map_err(|_| SnapshotError::Release(path.to_owned()))?;
                self.target(target)?.release = Some(release);
                Ok(None)
            }
            _ => Ok(Some(SnapshotNote::Skipped(path.to_owned()))),
        }
    }

    fn add_hub_objects(
        &mut self,
        path: &str,
        file: &str,
        objects: Vec<Value>,
    ) -> Result<Option<SnapshotNote>, SnapshotError> {
        let (mut has_data, mut is_partial) = (false, false);
        for object in objects {
            is_partial |= object["kind"] == "PartialObjectMetadata";
            has_data |= object["kind"] == "Secret"
                && (object.get("data").is_some() || object.get("stringData").is_some());
            self.hub.add(object).map_err(|error| in_file(path, error))?;
        }
        // Metadata says all that counts of a Secret, and too little of anything else.
        if !is_partial || file.starts_with("secrets.") {
            note_list(&mut self.hub.lists, file, &ListKind::ALL);
        }
        Ok(has_data.then(|| SnapshotNote::SecretData(path.to_owned())))
    }

    fn target(&mut self, name: &str) -> Result<&mut TargetFiles, SnapshotError> {
        let name = ObjectName::new(name).map_err(|_| SnapshotError::TargetName(name.to_owned()))?;
        Ok(Arc::make_mut(self.targets.entry(name).or_default()))
    }
}

fn in_file(path: &str, error: ObjectError) -> SnapshotError {
    SnapshotError::Object {
        path: path.to_owned(),
        error: Box::new(error),
    }
}

/// Notes the list that a file's name names.
fn note_list(lists: &mut Lists, file: &str, kinds: &[ListKind]) {
    let Some((stem, _)) = file.rsplit_once('.') else {
        return;
    };
    // `targetclusters.keyferry.dev` is how kubectl names it too.
    let stem = stem.strip_suffix(".keyferry.dev").unwrap_or(stem);
    let (resource, namespace) = match stem.split_once('.') {
        Some((resource, namespace)) => (resource, Some(namespace)),
        None => (stem, None),
    };
    let Some(kind) = ListKind::named(resource).filter(|kind| kinds.contains(kind)) else {
        return;
    };
    match namespace {
        None => lists.note_whole(kind),
        Some(namespace) if kind.is_namespaced() => lists.note_namespace(kind, namespace),
        Some(_) => {}
    }
}

/// The objects of a file whose path says that it has some.
fn list_in(path: &str, text: &str) -> Result<Option<Listed>, SnapshotError> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["hub", _] | ["targets", _, "rbac", _] => read_list(path, text).map(Some),
        _ => Ok(None),
    }
}

/// What each file has. Parsing is most of the time that a large snapshot takes.
fn lists_in(files: &[(String, String)]) -> Vec<Result<Option<Listed>, SnapshotError>> {
    let next = AtomicUsize::new(0);
    let read_rest = || {
        let mut read = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((path, text)) = files.get(index) else {
                return read;
            };
            read.push((index, list_in(path, text)));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..thread_count())
            .map(|_| scope.spawn(read_rest))
            .collect();
        let mut read = read_rest();
        for other in others {
            match other.join() {
                Ok(more) => read.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        read.sort_by_key(|(index, _)| *index);
        read.into_iter().map(|(_, listed)| listed).collect()
    })
}

fn thread_count() -> usize {
    let available = std::thread::available_parallelism();
    available.map_or(1, usize::from).min(MAX_THREADS)
}

/// Reads the objects of a file, which may be a list of kubectl, documents or JSON.
fn read_list(path: &str, text: &str) -> Result<Listed, SnapshotError> {
    let syntax = || SnapshotError::Syntax(path.to_owned());
    if text.trim().is_empty() {
        return Ok(Listed {
            objects: Vec::new(),
            is_whole: false,
        });
    }
    if text.trim_start().starts_with('{') {
        let SlimValue(document) = serde_json::from_str(text).map_err(|_| syntax())?;
        return Ok(listed(vec![document]));
    }
    if let Some(items) = items_of_kubectl(text) {
        let objects = parse_items(&items.items).ok_or_else(syntax)?;
        let mut list: Value = serde_saphyr::from_str(&items.head).map_err(|_| syntax())?;
        let Some(fields) = list.as_object_mut() else {
            return Ok(Listed {
                objects,
                is_whole: false,
            });
        };
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("items".to_owned(), objects.into());
        return Ok(listed(vec![list]));
    }
    let documents: Vec<SlimValue> = serde_saphyr::from_multiple(text).map_err(|_| syntax())?;
    Ok(listed(
        documents
            .into_iter()
            .map(|SlimValue(document)| document)
            .collect(),
    ))
}

/// Parses items, on a few threads if they are many; `None` if one is no YAML.
fn parse_items(items: &[String]) -> Option<Vec<Value>> {
    let length = items.len().div_ceil(thread_count());
    let parse = |items: &[String]| -> Option<Vec<Value>> {
        let parsed = items.iter().map(|item| {
            serde_saphyr::from_str(item)
                .ok()
                .map(|SlimValue(item)| item)
        });
        parsed.collect()
    };
    std::thread::scope(|scope| {
        let parts = items.chunks(length.max(MIN_ITEMS_PER_THREAD));
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || parse(part))).collect();
        let mut objects = Vec::with_capacity(items.len());
        for part in parts {
            objects.extend(part.join().ok()??);
        }
        Some(objects)
    })
}

/// Takes the lists among documents apart, and those in lists.
fn listed(mut documents: Vec<Value>) -> Listed {
    let (mut objects, mut is_whole) = (Vec::new(), true);
    // The last one is taken first.
    documents.reverse();
    while let Some(mut document) = documents.pop() {
        match take_items(&mut document) {
            Some(items) => {
                is_whole &= is_whole_list(&document);
                documents.extend(items.into_iter().rev());
            }
            None if document.is_null() => {}
            None => {
                // What has no kind and version is the rest of something, or of a list that no one knows.
                let is_named = |field: &str| document.get(field).is_some_and(Value::is_string);
                is_whole &=
                    is_named("kind") && is_named("apiVersion") && document.get("items").is_none();
                objects.push(document);
            }
        }
    }
    Listed { objects, is_whole }
}

/// Takes the items out of a list. An apiserver leaves the kind and the version out in those of a
/// list of one kind, so such an item gets what the list says. `None` if it is no list.
pub fn take_items(list: &mut Value) -> Option<Vec<Value>> {
    let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
        return None;
    };
    let (version, kind) = (&list["apiVersion"], list["kind"].as_str());
    let item_kind = kind.and_then(|kind| kind.strip_suffix("List"));
    if let Some(kind) = item_kind.filter(|kind| !kind.is_empty()) {
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            let own = fields.entry("apiVersion");
            own.or_insert_with(|| version.clone());
            fields.entry("kind").or_insert_with(|| kind.into());
        }
    }
    Some(items)
}

/// kubectl writes the kind of a list after its items, so a list that was cut has none.
fn is_whole_list(list: &Value) -> bool {
    let is_list = list["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    let rest = list["metadata"]["continue"].as_str();
    is_list && rest.is_none_or(str::is_empty)
}

/// A list as kubectl prints it, item by item: one item is parsed at a time, so that a large list
/// takes little memory.
struct KubectlList {
    head: String,
    items: Vec<String>,
}

fn items_of_kubectl(text: &str) -> Option<KubectlList> {
    let mut list = KubectlList {
        head: String::new(),
        items: Vec::new(),
    };
    let mut lines = text.lines();
    if lines.next()? != "apiVersion: v1" || lines.next()? != "items:" {
        return None;
    }
    let mut is_in_item = false;
    for line in lines {
        if let Some(rest) = line.strip_prefix("- ") {
            is_in_item = true;
            list.items.push(format!("  {rest}\n"));
        } else if is_in_item && (line.starts_with("  ") || line.is_empty()) {
            let item = list.items.last_mut()?;
            item.push_str(line);
            item.push('\n');
        } else if line.starts_with("---") {
            return None;
        } else {
            is_in_item = false;
            list.head.push_str(line);
            list.head.push('\n');
        }
    }
    Some(list)
}
