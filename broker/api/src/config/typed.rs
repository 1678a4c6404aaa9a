//! Reads a document as a typed object and reports every field that does not fit, not only the
//! first.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::document::Document;
use super::strict::Strict;

/// The most misfits that are reported for one object.
const MOST_MISFITS: usize = 50;

/// A field that does not fit its type.
pub(super) struct Misfit {
    pub(super) path: String,
    pub(super) problem: String,
    pub(super) fix: String,
    /// Whether a placeholder replaced the field, so that errors about its value mean nothing.
    pub(super) replaced: bool,
}

/// Reads the document as a `T`, with the fields that do not fit.
///
/// A misfit is recorded and replaced by an empty value of its type, so that one reading finds all
/// of them.
pub(super) fn read<T: DeserializeOwned>(document: &Document) -> (Option<T>, Vec<Misfit>) {
    let mut misfits: Vec<Misfit> = Vec::new();
    let mut fixed: Option<Value> = None;
    // A missing field is first null, then an empty value.
    for _ in 0..2 * MOST_MISFITS {
        let value = fixed.as_ref().unwrap_or(document.value());
        let error = match serde_path_to_error::deserialize::<_, T>(Strict(value)) {
            Ok(object) => return (Some(object), misfits),
            Err(error) => error,
        };
        let message = error.inner().to_string();
        let value = fixed.get_or_insert_with(|| document.value().clone());
        let Some(misfit) = fix(value, error.path(), &message) else {
            misfits.push(Misfit {
                path: printed(error.path()),
                problem: message,
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

/// Makes the field fit and returns what was wrong with it; `None` if that is not possible.
fn fix(value: &mut Value, path: &Path, message: &str) -> Option<Misfit> {
    let place = printed(path);
    if let Some(field) = quoted(message, "missing field `") {
        at(value, path)?
            .as_object_mut()?
            .insert(field.to_owned(), Value::Null);
        let path = if place.is_empty() {
            field.to_owned()
        } else {
            format!("{place}.{field}")
        };
        return Some(Misfit {
            path,
            problem: "is missing".to_owned(),
            fix: "add it".to_owned(),
            replaced: true,
        });
    }
    if let Some(field) = quoted(message, "unknown field `") {
        let misfit = Misfit {
            path: if place.ends_with(field) {
                place
            } else {
                format!("{place}.{field}")
            },
            problem: message.to_owned(),
            fix: "correct its spelling or remove it".to_owned(),
            replaced: false,
        };
        let parent = parent(value, path).filter(|parent| parent.contains_key(field));
        parent?.remove(field)?;
        return Some(misfit);
    }
    let (found, expected) = message
        .strip_prefix("invalid type: ")?
        .rsplit_once(", expected ")?;
    let (expected, stand_in) = match expected {
        text if text.contains("string") => ("text", Value::from("")),
        "a sequence" => ("a list", Value::Array(Vec::new())),
        "a boolean" => ("true or false", Value::Bool(false)),
        "u32" => ("a whole number", Value::from(0)),
        _ => ("a mapping", Value::Object(serde_json::Map::new())),
    };
    let scalar =
        !found.starts_with("map") && !found.starts_with("sequence") && !found.starts_with("null");
    let fix = match expected {
        "text" if found.starts_with("boolean") => {
            "put it in quotes: YAML reads yes, no, on and off as true and false".to_owned()
        }
        "text" if scalar => "put it in quotes".to_owned(),
        _ => format!("write {expected}"),
    };
    *at(value, path)? = stand_in;
    Some(Misfit {
        path: place,
        problem: format!("is {found} where {expected} is expected"),
        fix,
        replaced: true,
    })
}

fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    let rest = message.strip_prefix(before)?;
    // The list of known fields, if there is one, contains backticks too.
    let end = rest
        .find("`, expected")
        .or_else(|| rest.find("`, there are no"))
        .or_else(|| rest.strip_suffix('`').map(str::len))?;
    rest.get(..end)
}

fn printed(path: &Path) -> String {
    let text = path.to_string();
    if text == "." { String::new() } else { text }
}

fn at<'a>(value: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    path.iter().try_fold(value, step)
}

fn step<'a>(value: &'a mut Value, segment: &Segment) -> Option<&'a mut Value> {
    match segment {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        _ => None,
    }
}

/// The mapping that contains the last segment of the path.
fn parent<'a>(value: &'a mut Value, path: &Path) -> Option<&'a mut serde_json::Map<String, Value>> {
    let depth = path.iter().count().checked_sub(1)?;
    path.iter()
        .take(depth)
        .try_fold(value, step)?
        .as_object_mut()
}
