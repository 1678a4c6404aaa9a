//! A result of an expression as a list of texts, for groups and extra.

use crate::cel::Value;

/// A text, a list of texts or null, without empty ones. `None` for anything else.
pub(super) fn read(value: &Value) -> Option<Vec<String>> {
    if let Some(text) = value.as_str() {
        return Some(Some(text.to_owned()).into_iter().filter(|text| !text.is_empty()).collect());
    }
    if matches!(value, Value::Null) {
        return Some(Vec::new());
    }
    let items: Option<Vec<&str>> = value.as_list()?.iter().map(Value::as_str).collect();
    Some(items?.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect())
}
