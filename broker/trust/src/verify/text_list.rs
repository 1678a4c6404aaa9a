//! Reads the result of an expression as a list of texts, for groups and extra.

use crate::cel::{List, Value};

/// Reads a text, a list of texts or null, without empty texts. Returns `None` for anything else,
/// also for a list that `split` returns: the apiserver accepts only lists of values, not Go's own
/// lists of strings.
pub(crate) fn read(value: &Value) -> Option<Vec<String>> {
    let texts: Vec<&str> = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text],
        Value::List(list) => items(list)?,
        _ => return None,
    };
    Some(
        texts
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn items(list: &List) -> Option<Vec<&str>> {
    if list.is_go_strings() {
        return None;
    }
    list.items().iter().map(native_text).collect()
}

/// Returns an item as Go converts it: a type becomes its name, and an optional its content.
fn native_text(value: &Value) -> Option<&str> {
    let mut value = value;
    while let Value::Optional(Some(inner)) = value {
        value = inner;
    }
    match value {
        Value::String(text) | Value::Type(text) => Some(text),
        _ => None,
    }
}
