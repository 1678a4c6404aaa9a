//! Reads the result of an expression as a list of texts, for groups and extra.

use keyferry_cel_kubernetes::{List, Value};

/// Reads a text, a list of texts or null, without empty texts. Returns `None` for anything else,
/// also for a list that `split` returns: the apiserver accepts only lists of values, not Go's own
/// lists of strings.
pub(crate) fn read_text_list(value: &Value) -> Option<Vec<String>> {
    let texts: Vec<&str> = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text],
        Value::List(list) => text_items(list)?,
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

fn text_items(list: &List) -> Option<Vec<&str>> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_cel_kubernetes::{Environment, Input, Minor, Scope};

    use super::*;

    #[test]
    fn a_list_from_split_is_no_list_of_strings() {
        let claims = serde_json::json!({"groups": ["dev", "ops", ""], "n": 1});
        let environment = Environment::new(Minor::V1_36);
        let texts = |text: &str| {
            let expression = environment.compile(Scope::Claims, text).unwrap();
            let input = Input::Claims(claims.as_object().unwrap());
            read_text_list(&expression.evaluate(input).unwrap())
        };
        assert_eq!(texts("'a,b'.split(',')"), None);
        assert_eq!(
            texts("'a,b'.split(',') + ['']"),
            Some(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(
            texts("claims.groups"),
            Some(vec!["dev".to_owned(), "ops".to_owned()])
        );
        assert_eq!(texts("claims.n"), None);
    }
}
