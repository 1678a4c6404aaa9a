//! A result of an expression as a list of texts, for groups and extra.

use crate::cel::{List, Value};

/// A text, a list of texts or null, without empty ones. `None` for anything else, a list as `split`
/// gives it among it: the apiserver knows lists of values only, not Go's own lists of strings.
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

/// What an item is to Go: a type is its name, and an optional what it holds.
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
