//! Reads a document as a typed object and reports every field that does not fit, not only the
//! first.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::document::Document;
use super::strict::{Strict, StructureError, ValueKind};

/// The most misfits that are reported for one object.
const MAX_MISFITS: usize = 50;

/// A field that does not fit its type.
pub(super) struct Misfit {
    pub(super) path: String,
    pub(super) problem: String,
    pub(super) fix: String,
    /// Whether a placeholder replaced the field, so that errors about its value mean nothing.
    pub(super) replaced: bool,
}

/// A field that belongs elsewhere. Without an entry it would only be unknown, and the message would
/// not say where it belongs.
pub(super) struct MisplacedField {
    pub(super) path: &'static str,
    pub(super) problem: &'static str,
    pub(super) fix: &'static str,
}

/// Reads the document as a `T`, with the fields that do not fit.
///
/// A misfit is recorded and replaced by an empty value of its type, so that one reading finds all
/// of them.
pub(super) fn read_fields<T: DeserializeOwned>(
    document: &Document,
    misplaced: &[MisplacedField],
) -> (Option<T>, Vec<Misfit>) {
    let mut misfits: Vec<Misfit> = Vec::new();
    let mut fitted: Option<Value> = None;
    // A missing field is first null, then an empty value.
    for _ in 0..2 * MAX_MISFITS {
        let value = fitted.as_ref().unwrap_or(document.value());
        let error = match serde_path_to_error::deserialize::<_, T>(Strict(value)) {
            Ok(object) => return (Some(object), misfits),
            Err(error) => error,
        };
        let value = fitted.get_or_insert_with(|| document.value().clone());
        let path = error.path();
        let misfit = match error.inner() {
            StructureError::MissingField(name) => add_field(value, path, name),
            StructureError::UnknownField { name, known } => match remove_field(value, path, name) {
                Some(removed) => match unknown_field(path, name, &removed, known, misplaced) {
                    Some(misfit) => Some(misfit),
                    None => continue,
                },
                None => None,
            },
            StructureError::WrongKind(kind) => replace_value(value, path, *kind),
            StructureError::Other(_) => None,
        };
        let Some(misfit) = misfit else {
            misfits.push(Misfit {
                path: path_text(path),
                problem: error.inner().to_string(),
                fix: "see the reference".to_owned(),
                replaced: false,
            });
            return (None, misfits);
        };
        if !misfits
            .iter()
            .any(|known| known.replaced && covers(&known.path, &misfit.path))
        {
            misfits.push(misfit);
        }
    }
    (None, misfits)
}

/// Whether `path` is `above` or below it.
pub(super) fn covers(above: &str, path: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.is_empty() || rest.starts_with(['.', '[']))
}

/// Adds a missing field. The next reading finds its null and replaces it by an empty value.
fn add_field(value: &mut Value, path: &Path, name: &str) -> Option<Misfit> {
    value_at(value, path)?
        .as_object_mut()?
        .insert(name.to_owned(), Value::Null);
    Some(Misfit {
        path: field_path(path, name),
        problem: "is missing".to_owned(),
        fix: "add it".to_owned(),
        replaced: true,
    })
}

/// Removes an unknown field and returns its value.
fn remove_field(value: &mut Value, path: &Path, name: &str) -> Option<Value> {
    let depth = path.iter().count().checked_sub(1)?;
    path.iter()
        .take(depth)
        .try_fold(value, value_below)?
        .as_object_mut()?
        .remove(name)
}

/// Returns the misfit of an unknown field; `None` for a misplaced one that says nothing.
fn unknown_field(
    path: &Path,
    name: &str,
    value: &Value,
    known: &[&str],
    misplaced: &[MisplacedField],
) -> Option<Misfit> {
    let path = path_text(path);
    let (problem, fix) = match misplaced.iter().find(|field| field.path == path) {
        Some(_) if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => return None,
        Some(field) => (field.problem.to_owned(), field.fix),
        None => (
            format!("unknown field `{name}`, {}", expected_names(known)),
            "correct its spelling or remove it",
        ),
    };
    Some(Misfit {
        path,
        problem,
        fix: fix.to_owned(),
        replaced: false,
    })
}

/// Replaces a value of the wrong kind by an empty one.
fn replace_value(value: &mut Value, path: &Path, expected: ValueKind) -> Option<Misfit> {
    let value = value_at(value, path)?;
    let (found, is_scalar) = match value {
        Value::Null => ("null".to_owned(), false),
        Value::Bool(value) => (format!("boolean `{value}`"), true),
        Value::Number(number) if number.is_f64() => (format!("floating point `{number}`"), true),
        Value::Number(number) => (format!("integer `{number}`"), true),
        Value::String(text) => (format!("text {text:?}"), true),
        Value::Array(_) => (ValueKind::List.to_string(), false),
        Value::Object(_) => (ValueKind::Mapping.to_string(), false),
    };
    let fix = match expected {
        ValueKind::Text if value.is_boolean() => {
            "put it in quotes: YAML reads yes, no, on and off as true and false".to_owned()
        }
        ValueKind::Text if is_scalar => "put it in quotes".to_owned(),
        _ => format!("write {expected}"),
    };
    *value = expected.placeholder();
    Some(Misfit {
        path: path_text(path),
        problem: format!("is {found} where {expected} is expected"),
        fix,
        replaced: true,
    })
}

fn expected_names(known: &[&str]) -> String {
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "there are no fields".to_owned(),
        [only] => format!("expected {only}"),
        [first, second] => format!("expected {first} or {second}"),
        _ => format!("expected one of {}", names.join(", ")),
    }
}

fn path_text(path: &Path) -> String {
    let text = path.to_string();
    if text == "." { String::new() } else { text }
}

fn field_path(path: &Path, name: &str) -> String {
    match path_text(path) {
        place if place.is_empty() => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}

fn value_at<'a>(value: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    path.iter().try_fold(value, value_below)
}

fn value_below<'a>(value: &'a mut Value, segment: &Segment) -> Option<&'a mut Value> {
    match segment {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        _ => None,
    }
}
