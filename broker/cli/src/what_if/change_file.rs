//! The file of a change: objects as they are applied, each with its line.

use std::collections::BTreeSet;
use std::path::Path;

use keyferry_api::config::MAX_CONFIG_BYTES;
use keyferry_api::name::ObjectName;
use keyferry_reach::world::{ChangedObject, take_items};
use serde_json::Value;

use crate::command_error::CommandError;
use crate::local_file;

/// The most objects of a change.
const MAX_OBJECTS: usize = 5_000;

/// What a change has.
#[derive(Debug)]
pub(super) struct ChangeFile {
    pub(super) documents: Vec<ChangeDocument>,
}

/// One object, and the line at which it begins.
#[derive(Debug)]
pub(super) struct ChangeDocument {
    pub(super) object: ChangedObject,
    pub(super) value: Value,
    pub(super) line: usize,
}

impl ChangeFile {
    /// Reads the objects of a file or of standard input, for the hub or a target.
    ///
    /// # Errors
    /// It cannot be read, is no YAML or JSON, or an object is not whole or is there twice.
    pub(super) fn read(path: &Path, target: Option<&ObjectName>) -> Result<Self, CommandError> {
        let bytes = local_file::read(path, "the change", MAX_CONFIG_BYTES)
            .map_err(|error| CommandError::of_line(&error.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| CommandError::new(format!("{} is not UTF-8", path.display())))?;
        let file = Self::parse(&text, target).map_err(|problem| {
            CommandError::of_quoting_line(&format!("{}: {problem}", path.display()))
        })?;
        Ok(file)
    }

    fn parse(text: &str, target: Option<&ObjectName>) -> Result<Self, String> {
        let mut documents = Vec::new();
        let mut objects = BTreeSet::new();
        for (line, document) in split_documents(text) {
            let value: Value = serde_saphyr::from_str(&document)
                .map_err(|_| format!("line {line}: this document cannot be read as YAML or JSON, or has too many values; fix: give what kubectl apply takes, in smaller documents"))?;
            for (line, value) in items(line, &document, value)? {
                let object = ChangedObject::of(&value, target)
                    .map_err(|error| format!("line {line}: {error}"))?;
                if documents.len() == MAX_OBJECTS {
                    return Err(format!(
                        "it has more than {MAX_OBJECTS} objects; fix: split it"
                    ));
                }
                if !objects.insert(object.clone()) {
                    return Err(format!(
                        "line {line}: {object} is there twice; fix: keep one"
                    ));
                }
                documents.push(ChangeDocument {
                    object,
                    value,
                    line,
                });
            }
        }
        match documents.is_empty() {
            true => Err("it has no object; fix: give what kubectl apply takes".to_owned()),
            false => Ok(Self { documents }),
        }
    }

    pub(super) fn line_of(&self, object: &ChangedObject) -> Option<usize> {
        let mut documents = self.documents.iter();
        documents.find(|it| it.object == *object).map(|it| it.line)
    }
}

/// The documents of a stream, each with the line at which its content begins.
fn split_documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim_end();
        let rest = match bare {
            "---" | "..." => Some(""),
            line => line.strip_prefix("--- "),
        };
        if rest.is_some() {
            documents.push((index + 1, String::new()));
        }
        let content = rest.unwrap_or(line);
        let Some((start, document)) = documents.last_mut() else {
            continue;
        };
        if is_content(content) && !document.lines().any(is_content) {
            (*start, *document) = (index + 1, String::new());
        }
        document.push_str(content);
        document.push('\n');
    }
    documents.retain(|(_, document)| document.lines().any(is_content));
    documents
}

fn is_content(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim().starts_with('#')
}

/// The items of a list, or the object itself.
fn items(line: usize, document: &str, mut value: Value) -> Result<Vec<(usize, Value)>, String> {
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|it| it.ends_with("List"));
    // A kind may end so and be none, which has a name.
    let is_named = value["metadata"]["name"].is_string() && value.get("items").is_none();
    if !is_list || is_named {
        return Ok(vec![(line, value)]);
    }
    let is_page = value["metadata"]["continue"]
        .as_str()
        .is_some_and(|it| !it.is_empty());
    let Some(listed) = take_items(&mut value) else {
        return Err(format!(
            "line {line}: the list has no items; fix: give it whole"
        ));
    };
    if is_page {
        return Err(format!(
            "line {line}: the list is one page of several; fix: give it whole"
        ));
    }
    let starts = lines_of_items(line, document);
    let is_known = starts.len() == listed.len();
    let with_line = |(index, item): (usize, Value)| {
        let own = starts.get(index).filter(|_| is_known);
        (own.copied().unwrap_or(line), item)
    };
    Ok(listed.into_iter().enumerate().map(with_line).collect())
}

/// The lines at which the items of a list begin, if they are written one below the other.
fn lines_of_items(first: usize, document: &str) -> Vec<usize> {
    let lines = document.lines().enumerate();
    let mut lines = lines
        .skip_while(|(_, line)| !line.starts_with("items:"))
        .skip(1)
        .peekable();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(own) = lines.peek().map(|(_, line)| indent(line)) else {
        return Vec::new();
    };
    let starts =
        lines.filter(|(_, line)| indent(line) == own && line.trim_start().starts_with("- "));
    starts.map(|(index, _)| first + index).collect()
}

/// The object that a name of `--delete` names.
///
/// # Errors
/// It has another form.
pub(super) fn deleted_object(
    name: &str,
    target: Option<&ObjectName>,
) -> Result<ChangedObject, CommandError> {
    let parts: Vec<&str> = name.split('/').collect();
    let (kind, namespace, own_name) = match parts.as_slice() {
        [kind, name] => (*kind, "", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => ("", "", ""),
    };
    let object = ChangedObject {
        target: target.cloned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: own_name.to_owned(),
    };
    let needs_namespace = object
        .list()
        .is_some_and(keyferry_reach::ListKind::is_namespaced);
    let is_whole = !kind.is_empty() && !own_name.is_empty();
    if !is_whole || (object.list().is_some() && needs_namespace == namespace.is_empty()) {
        return Err(CommandError::with_fix(
            format!("{name} names no object"),
            "write KIND/NAMESPACE/NAME, such as RoleBinding/tenant-a/ci, or KIND/NAME without a namespace",
        ));
    }
    Ok(object)
}
